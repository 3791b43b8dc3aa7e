"""The checks, one module per theme. Whatever is in here is found by `checks()`."""
