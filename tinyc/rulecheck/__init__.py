"""Whether rules are true: every rule, built-in or a user's, gets a verdict (document 004 §8; docs/rules.md)."""
