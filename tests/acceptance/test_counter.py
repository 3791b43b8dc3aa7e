"""Eight processes add to one number without any care of their own: under the lock nothing is lost.

The number lies in a file; to add is to read it, wait a moment and write it. The control does the
same without the lock and does lose: if it did not, the test would have no teeth.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from crew import Crew, sqlite_url
from workers.resources import Counter

import fencelock
from fencelock.testing import History, check

PROCESSES = 8
TIMES = int(os.environ.get("FENCELOCK_TIMES", "80"))


def count(folder: Path, flavours: list[str]) -> int:
    """Let the processes count, all at once, and return what the file says."""
    with Crew() as crew:
        members = [crew.start("count", folder, flavour, TIMES) for flavour in flavours]
        for member in members:
            member.hear()
        for member in members:
            member.tell("go")
        for member in members:
            assert member.hear() == {"done": TIMES}
            assert member.end() == 0, member.errors
    counter = Counter(folder / "counter")
    try:
        return counter.read()
    finally:
        counter.close()


@pytest.mark.parametrize("mixture", ["blocking", "asyncio", "both"])
def test_nothing_is_lost_under_the_lock(tmp_path: Path, mixture: str) -> None:
    flavours = ["blocking", "asyncio"] * (PROCESSES // 2) if mixture == "both" else [mixture] * PROCESSES
    assert count(tmp_path, flavours) == PROCESSES * TIMES
    report = check(History.load(tmp_path / "history"))
    assert report.ok, str(report)
    assert report.grants == report.releases == PROCESSES * TIMES
    with fencelock.Client(sqlite_url(tmp_path)) as locks:
        assert locks.list() == []


def test_without_the_lock_it_is(tmp_path: Path) -> None:
    assert count(tmp_path, ["none"] * PROCESSES) < PROCESSES * TIMES
