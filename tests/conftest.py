"""What all tests need: a heap that is small enough to be searched for garbage at any time."""

from __future__ import annotations

import gc

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take the ten thousand tests themselves off the collector's hands.

    Many tests ask for a collection, to see what becomes of a lease that nobody has any more. With the
    tests themselves to look through, each took most of a second, and every thread stood still meanwhile.
    """
    gc.collect()
    gc.freeze()
