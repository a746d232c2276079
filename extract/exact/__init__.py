"""Exact DAG extraction. See docs/architecture.md."""
