"""The two drills that every guard goes through: the holder that slept, and 32 writers at once.

`HOLDFAST_FENCING_ROUNDS=50` lets the first go on for longer.
"""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path

from crew import Crew, sqlite_url, stop_between_steps
from workers.fencing_shelves import Shelf, shelf

import holdfast
from holdfast.testing import resume

ROUNDS = int(os.environ.get("HOLDFAST_FENCING_ROUNDS", "2"))
TTL = 0.5
PROCESSES, THREADS = 4, 8
"""32 writers."""


def paused_holder(kind: str, where: str, folder: Path, rounds: int = ROUNDS) -> None:
    """Without the guard an update is lost, with it the stale write is refused: each time."""
    mine = shelf(kind, where)
    mine.create()
    with Crew() as crew, holdfast.Client(sqlite_url(folder)) as locks:
        sleeper = crew.start("fencing_sleeper", kind, where, sqlite_url(folder), TTL, rounds)
        for number in range(rounds):
            token = sleeper.hear()["token"]
            stop_between_steps(sleeper.pid, folder / "locks.db")
            lease = locks.lock("shelf", ttl=20).acquire(timeout=30)
            assert lease.token > token
            plain, words = mine.read()
            mine.trample(f"{plain} test{number}")
            mine.write(lease.token, f"{words} test{number}")
            resume(sleeper.pid)
            sleeper.tell()
            told = sleeper.hear()
            assert told == {"held": False, "newest": lease.token}
            plain, words = mine.read()
            assert plain.split()[-1] == f"sleeper{number}"
            assert f"test{number}" not in plain.split(), "no teeth: nothing was lost without the guard"
            assert words.split() == [f"test{n}" for n in range(number + 1)]
            mine.write(lease.token, words)  # the holder itself may go on
            assert lease.release()
        assert sleeper.end() == 0, sleeper.errors
    mine.close()


def crowd(kind: str, where: str, writes: int) -> None:
    """The stored token never falls, and the last write that was accepted has the highest token."""
    mine = shelf(kind, where)
    mine.create()
    seen: list[int] = []
    with Crew() as crew:
        workers = [
            crew.start("fencing_crowd", kind, where, seed, THREADS, writes, name=f"crowd {seed}")
            for seed in range(PROCESSES)
        ]
        while any(worker.process.poll() is None for worker in workers):
            seen.append(int(mine.read()[1] or 0))
            time.sleep(0.005)
        told = [worker.hear() for worker in workers]
    assert [error for one in told for error in one["errors"]] == []
    accepted = [token for one in told for token in one["accepted"]]
    refused = [token for one in told for token in one["refused"]]
    assert len(accepted) + len(refused) == PROCESSES * THREADS * writes
    assert refused, "no teeth: nobody came too late"
    assert len(set(accepted)) > 5
    assert int(mine.read()[1]) == max(accepted)
    assert max(refused) < max(accepted)
    rises(seen)
    if (log := mine.log()) is not None:
        rises(log)
        assert sorted(log) == sorted(accepted)
    last_word(mine, max(accepted))
    mine.close()


def rises(tokens: list[int]) -> None:
    fell = [(before, after) for before, after in pairwise(tokens) if after < before]
    assert not fell, f"the token fell: {fell[:5]}"


def last_word(mine: Shelf, highest: int) -> None:
    """The mark is the highest token: one less is refused, an equal one passes."""
    try:
        mine.write(highest - 1, "0")
    except holdfast.StaleToken as error:
        assert error.newest == highest
    else:
        raise AssertionError("a token below the highest was accepted")
    mine.write(highest, str(highest))
