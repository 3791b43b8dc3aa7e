"""Random ids, drawn from the kernel: a forked child never draws those of its parent."""

from __future__ import annotations

import os

__all__ = ["new_id"]


def new_id() -> str:
    """Return 32 hexadecimal digits that no other call returns."""
    return os.urandom(16).hex()
