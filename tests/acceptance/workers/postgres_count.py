"""Adds one to a number in a file, many times: read, wait a moment, write, and then say so in another file.

postgres_count.py URL FOLDER FLAVOUR TIMES CLIENT
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from resources import Counter, say

from fencelock import AsyncClient, Client
from fencelock.testing import HistoryFile

MOMENT = 0.0002
TTL = 2.0


class Work:
    """The number, what was said of it, and the history."""

    def __init__(self, folder: Path, client: str) -> None:
        self.counter, self.client = Counter(folder / "counter"), client
        self.history = HistoryFile(folder / "history")
        self._acks = os.open(folder / "acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def acknowledge(self) -> None:
        os.write(self._acks, b"+")


def blocking(url: str, work: Work, times: int) -> None:
    with Client(url) as locks:
        lock = locks.lock("counter", ttl=TTL)
        for _ in range(times):
            attempt = work.history.acquire(work.client, "counter")
            lease = lock.acquire()
            attempt.leased(lease)
            value = work.counter.read()
            time.sleep(MOMENT)
            work.counter.write(value + 1)
            work.acknowledge()
            attempt.release()
            lease.release()
            attempt.released()


async def with_asyncio(url: str, work: Work, times: int) -> None:
    async with AsyncClient(url) as locks:
        lock = locks.lock("counter", ttl=TTL)
        for _ in range(times):
            attempt = work.history.acquire(work.client, "counter")
            lease = await lock.acquire()
            attempt.leased(lease)
            value = work.counter.read()
            await asyncio.sleep(MOMENT)
            work.counter.write(value + 1)
            work.acknowledge()
            attempt.release()
            await lease.release()
            attempt.released()


if __name__ == "__main__":
    where, folder, flavour, count, client = sys.argv[1:]
    mine = Work(Path(folder), client)
    say(ready=True)
    sys.stdin.readline()
    if flavour == "asyncio":
        asyncio.run(with_asyncio(where, mine, int(count)))
    else:
        blocking(where, mine, int(count))
    say(done=int(count))
