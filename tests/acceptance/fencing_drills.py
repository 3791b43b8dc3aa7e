"""The two drills that every guard goes through: the holder that slept, and 32 writers at once.

A `Cast` keeps its processes from one test to the next, since most of a short drill would be the start of
Python. Whoever played in a drill that failed is dismissed, and the next one begins with new players.

`FENCELOCK_FENCING_ROUNDS=50` makes the first longer, `FENCELOCK_FENCING_WRITES=100` the second.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

from crew import Crew, Member, sqlite_url, stop_between_steps
from workers.fencing_shelves import Shelf, shelf

import fencelock
from fencelock.testing import resume

ROUNDS = int(os.environ.get("FENCELOCK_FENCING_ROUNDS", "2"))
WRITES = int(os.environ.get("FENCELOCK_FENCING_WRITES", "8"))
"""For each of the 32 writers."""
TTL = 0.25
PATIENCE = 240.0
"""Seconds in which a crowd must be done."""
PROCESSES, THREADS = 4, 8
"""32 writers."""


class Cast:
    """The players of both drills; they leave with the block at the latest."""

    def __init__(self) -> None:
        self._crew = Crew()
        self._sleeper: Member | None = None
        self._writers: list[Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._crew.__exit__(kind, error, trace)

    def paused_holder(self, kind: str, where: str, folder: Path, rounds: int = ROUNDS) -> None:
        """Without the guard an update is lost, with it the stale write is refused: each time."""
        self._sleeper = self._sleeper or self._crew.start("fencing_sleeper")
        with self._on_stage(kind, where) as mine, fencelock.Client(sqlite_url(folder)) as locks:
            self._sleeper.tell(json.dumps([kind, where, sqlite_url(folder), TTL, rounds]))
            for number in range(rounds):
                one_nap(self._sleeper, mine, locks, folder, number)
            assert self._sleeper.hear() == {"rounds": rounds}

    def crowd(self, kind: str, where: str, writes: int = WRITES) -> None:
        """The stored token never falls, and the last write that was accepted has the highest token."""
        while len(self._writers) < PROCESSES:
            self._writers.append(self._crew.start("fencing_crowd", name=f"crowd {len(self._writers)}"))
        seen: list[int] = []
        with self._on_stage(kind, where) as mine:
            for seed, writer in enumerate(self._writers):
                writer.tell(json.dumps([kind, where, seed, THREADS, writes]))
            for writer in self._writers:
                assert writer.hear() == {"ready": THREADS}
            for writer in self._writers:
                writer.tell()
            with ThreadPoolExecutor(PROCESSES) as listeners:
                answers = [listeners.submit(writer.hear, PATIENCE) for writer in self._writers]
                while not all(answer.done() for answer in answers):
                    seen.append(int(mine.read()[1] or 0))
                    time.sleep(0.005)
            told = [answer.result() for answer in answers]
            errors = [error for one in told for error in one["errors"]]
            assert not errors, errors
            accepted = [token for one in told for token in one["accepted"]]
            refused = [token for one in told for token in one["refused"]]
            assert len(accepted) + len(refused) == PROCESSES * THREADS * writes
            rises(seen)
            last_write_is_the_newest(mine, accepted, refused)

    @contextlib.contextmanager
    def _on_stage(self, kind: str, where: str) -> Iterator[Shelf]:
        try:
            mine = shelf(kind, where)
            mine.create()
            yield mine
            mine.close()
        except BaseException:
            for player in self._crew.members:
                player.dismiss()
            self._crew.members.clear()
            self._sleeper, self._writers = None, []
            raise


def one_nap(sleeper: Member, mine: Shelf, locks: fencelock.Client, folder: Path, number: int) -> None:
    """Stop a holder in the middle of its section, take its lock, write, and let it finish."""
    token = sleeper.hear()["token"]
    stop_between_steps(sleeper.pid, folder / "locks.db")
    lease = locks.lock("shelf", ttl=20).acquire(timeout=30)
    assert lease.token > token
    plain, words = mine.read()
    mine.trample(f"{plain} test{number}")
    mine.write(lease.token, f"{words} test{number}")
    resume(sleeper.pid)
    sleeper.tell()
    assert sleeper.hear() == {"held": False, "newest": lease.token}
    plain, words = mine.read()
    assert plain.split()[-1] == f"sleeper{number}"
    assert f"test{number}" not in plain.split(), "no teeth: nothing was lost without the guard"
    assert words.split() == [f"test{n}" for n in range(number + 1)]
    mine.write(lease.token, words)  # the holder itself may go on
    assert lease.release()


def last_write_is_the_newest(mine: Shelf, accepted: list[int], refused: list[int]) -> None:
    """Also: one less than the mark is refused, an equal one passes."""
    assert refused, "no teeth: nobody came too late"
    assert len(set(accepted)) > 1, "the first one to write had the highest"  # records in random order: few
    highest = max(accepted)
    assert int(mine.read()[1]) == highest
    assert max(refused) < highest
    if (log := mine.log()) is not None:
        rises(log)
        assert sorted(log) == sorted(accepted)
    try:
        mine.write(highest - 1, "0")
    except fencelock.StaleToken as error:
        assert error.newest == highest
    else:
        raise AssertionError("a token below the highest was accepted")
    assert int(mine.read()[1]) == highest, "what was refused has been written"
    mine.write(highest, str(highest))


def rises(tokens: list[int]) -> None:
    fell = [(before, after) for before, after in pairwise(tokens) if after < before]
    assert not fell, f"the token fell: {fell[:5]}"
