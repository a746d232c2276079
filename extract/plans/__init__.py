"""Plans: candidates of the rules, ranked; the default one. See docs/architecture.md."""
