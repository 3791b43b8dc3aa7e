"""How much is measured: all of it, or so little that it only shows that a suite works.

`FENCELOCK_QUICK=1` makes the suites short (`sizing` has settings of its own). What it then says means
nothing; its JSON says so too, and the docs do not take it.
"""

from __future__ import annotations

import os

__all__ = ["QUICK", "count", "rounds", "seconds"]

QUICK = os.environ.get("FENCELOCK_QUICK", "") not in {"", "0"}


def rounds(number: int) -> int:
    """Return how many rounds: two still have a spread."""
    return min(number, 2) if QUICK else number


def count(number: int) -> int:
    """Return how many operations."""
    return max(2, number // 100) if QUICK else number


def seconds(number: float) -> float:
    """Return for how long."""
    return min(number, 0.3) if QUICK else number
