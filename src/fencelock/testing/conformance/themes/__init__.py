"""The checks, theme by theme."""
