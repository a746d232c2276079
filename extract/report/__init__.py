"""What was chosen and why, as text, JSON and HTML. See docs/architecture.md."""
