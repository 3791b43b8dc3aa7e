"""Takes and passes on a few locks as fast as it can, with several threads or tasks, until told to stop.

postgres_churn.py URL FOLDER CLIENT FLAVOUR TTL NAMES EACH

Sections are short, so that most grants are handovers. Outages and losses are part of the day: it writes them
down and goes on. Every section reads and writes a file without any care; the history has the rest.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

from resources import say

from fencelock import AcquireTimeout, AsyncClient, Client, FencelockError
from fencelock.testing import Attempt, HistoryFile

WAIT = 20.0
MOMENT = 0.002


class Churn:
    """What both flavours have in common: the history, and when it is over."""

    def __init__(self, folder: Path, client: str, ttl: float, names: int, each: int) -> None:
        self.folder, self.client, self.ttl, self.each = folder, client, ttl, each
        self.names = [f"job-{number}" for number in range(names)]
        self.history = HistoryFile(folder / "history")
        self.current: dict[str, Attempt] = {}

    @property
    def stopped(self) -> bool:
        return (self.folder / "stop").exists()

    def lost(self, lease: Any) -> None:
        attempt = self.current.get(lease.owner)
        if attempt is not None:
            attempt.lost()

    def begin(self, number: int) -> Attempt:
        return self.history.acquire(f"{self.client}.{number}", self.names[number % len(self.names)])

    def granted(self, attempt: Attempt, lease: Any) -> None:
        self.current[lease.owner] = attempt
        attempt.leased(lease)

    def failed(self, attempt: Attempt, error: FencelockError) -> None:
        if isinstance(error, AcquireTimeout):
            attempt.timeout()
        else:
            attempt.failed(str(error))

    def leaves(self, attempt: Attempt, lease: Any) -> None:
        attempt.observe(lease)
        attempt.release()
        self.current.pop(lease.owner, None)


def blocking(url: str, churn: Churn) -> None:
    def work(number: int) -> None:
        lock = locks.lock(churn.names[number % len(churn.names)], ttl=churn.ttl, on_lost=churn.lost)
        while not churn.stopped:
            attempt = churn.begin(number)
            try:
                lease = lock.acquire(timeout=WAIT)
            except FencelockError as error:
                churn.failed(attempt, error)
                time.sleep(MOMENT)
                continue
            churn.granted(attempt, lease)
            time.sleep(random.random() * MOMENT)
            churn.leaves(attempt, lease)
            try:
                lease.release()
            except FencelockError:
                continue
            attempt.released()

    with Client(url, client_name=churn.client) as locks:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(churn.each)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


async def with_asyncio(url: str, churn: Churn) -> None:
    async def work(number: int) -> None:
        lock = locks.lock(churn.names[number % len(churn.names)], ttl=churn.ttl, on_lost=churn.lost)
        while not churn.stopped:
            attempt = churn.begin(number)
            try:
                lease = await lock.acquire(timeout=WAIT)
            except FencelockError as error:
                churn.failed(attempt, error)
                await asyncio.sleep(MOMENT)
                continue
            churn.granted(attempt, lease)
            await asyncio.sleep(random.random() * MOMENT)
            churn.leaves(attempt, lease)
            try:
                await lease.release()
            except FencelockError:
                continue
            attempt.released()

    async with AsyncClient(url, client_name=churn.client) as locks:
        await asyncio.gather(*(work(number) for number in range(churn.each)))


if __name__ == "__main__":
    _, where, folder, client, flavour, life, names, each = sys.argv
    made = Churn(Path(folder), client, float(life), int(names), int(each))
    say(ready=True)
    if flavour == "asyncio":
        asyncio.run(with_asyncio(where, made))
    else:
        blocking(where, made)
    say(done=True)
