"""What a kernel is estimated to cost, and why. See docs/architecture.md."""
