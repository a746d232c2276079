"""From the naive program to the extracted one, step by step: each step one rule at one place, and checked."""
