"""Adds one to a number in a file, many times: read, wait a moment, write.

count.py FOLDER FLAVOUR TIMES, where FLAVOUR is blocking, asyncio, or none for no lock at all.
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


def blocking(folder: Path, times: int) -> None:
    counter, client = Counter(folder / "counter"), f"blocking-{os.getpid()}"
    with HistoryFile(folder / "history") as history, Client(f"sqlite://{folder / 'locks.db'}") as locks:
        lock = locks.lock("counter", ttl=20)
        for _ in range(times):
            attempt = history.acquire(client, "counter")
            lease = lock.acquire()
            attempt.leased(lease)
            value = counter.read()
            time.sleep(MOMENT)
            counter.write(value + 1)
            attempt.release()
            lease.release()
            attempt.released()


async def with_asyncio(folder: Path, times: int) -> None:
    counter, client = Counter(folder / "counter"), f"asyncio-{os.getpid()}"
    with HistoryFile(folder / "history") as history:
        async with AsyncClient(f"sqlite://{folder / 'locks.db'}") as locks:
            lock = locks.lock("counter", ttl=20)
            for _ in range(times):
                attempt = history.acquire(client, "counter")
                lease = await lock.acquire()
                attempt.leased(lease)
                value = counter.read()
                await asyncio.sleep(MOMENT)
                counter.write(value + 1)
                attempt.release()
                await lease.release()
                attempt.released()


def unlocked(folder: Path, times: int) -> None:
    counter = Counter(folder / "counter")
    for _ in range(times):
        value = counter.read()
        time.sleep(MOMENT)
        counter.write(value + 1)


if __name__ == "__main__":
    where, flavour, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    say(ready=True)
    sys.stdin.readline()
    if flavour == "asyncio":
        asyncio.run(with_asyncio(where, count))
    else:
        (blocking if flavour == "blocking" else unlocked)(where, count)
    say(done=count)
