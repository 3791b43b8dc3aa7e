"""Breaks what locks stand on, on purpose, and judges what they did: `make chaos`."""
