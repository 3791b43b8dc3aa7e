"""Appends words to a plain list and to a guarded one, under a lock on Redis, until told to stop.

redis_append.py URL FOLDER CLIENT FLAVOUR KIND TTL, where KIND is lock, read, write or permit.

It does not ask its lease before it writes, as most programs do not: the guarded list must refuse what
comes too late, the plain one cannot. Outages and losses are part of the day: it writes them down and goes on.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from pathlib import Path
from typing import Any

from resources import Guarded, Plain, say

from fencelock import AcquireTimeout, AsyncClient, Client, FencelockError, StaleToken
from fencelock.testing import Attempt, HistoryFile, Mode

SECTION = 0.02
LIMIT = 2
WAIT = 5.0


class Appender:
    """What both flavours have in common: the section, and the history."""

    def __init__(self, folder: Path, client: str, kind: str, ttl: float) -> None:
        self.folder, self.client, self.kind, self.ttl = folder, client, kind, ttl
        self.history = HistoryFile(folder / "history")
        self.guarded = Guarded(folder / "list.db")
        self.plain = Plain(folder / "plain")
        self.current: dict[int, Attempt] = {}

    def lock(self, locks: Any) -> tuple[Any, Mode, int | None]:
        terms = {"ttl": self.ttl, "on_lost": self.lost}
        if self.kind == "permit":
            return locks.semaphore("list", LIMIT, **terms), "permit", LIMIT
        if self.kind == "read":
            return locks.rwlock("list", **terms).read(), "shared", None
        if self.kind == "write":
            return locks.rwlock("list", **terms).write(), "exclusive", None
        return locks.lock("list", **terms), "exclusive", None

    def lost(self, lease: Any) -> None:
        attempt = self.current.get(lease.token)
        if attempt is not None:
            attempt.lost()

    @property
    def stopped(self) -> bool:
        return (self.folder / "stop").exists()

    def failed(self, attempt: Attempt, error: FencelockError) -> None:
        if isinstance(error, AcquireTimeout):
            attempt.timeout()
        else:
            attempt.failed(str(error))

    def begin(self, attempt: Attempt, lease: Any) -> None:
        self.current = {lease.token: attempt}
        attempt.leased(lease)

    def read(self, token: int) -> Any:
        if self.kind in {"read", "permit"}:
            return None
        words = self.plain.read()
        try:
            return words, *self.guarded.read(token)
        except StaleToken:
            self.history.write(self.client, "list", token=token, accepted=False)
            return None

    def write(self, token: int, found: Any, word: str) -> None:
        if found is None:
            return
        plain, base, guarded = found
        self.plain.write([*plain, word])
        self.history.plain(self.client, "plain", base=len(plain))
        try:
            seq = self.guarded.write(token, [*guarded, word])
        except StaleToken:
            self.history.write(self.client, "list", token=token, base=base, accepted=False)
        else:
            self.history.write(self.client, "list", token=token, base=base, value=word, seq=seq)


def blocking(url: str, work: Appender) -> None:
    with Client(url, client_name=work.client) as locks:
        lock, mode, limit = work.lock(locks)
        for number in itertools.count():
            if work.stopped:
                return
            attempt = work.history.acquire(work.client, "list", mode=mode, limit=limit)
            try:
                lease = lock.acquire(timeout=WAIT)
            except FencelockError as error:
                work.failed(attempt, error)
                time.sleep(SECTION)
                continue
            work.begin(attempt, lease)
            found = work.read(lease.token)
            time.sleep(SECTION)
            work.write(lease.token, found, f"{work.client}.{number}")
            attempt.release()
            try:
                lease.release()
            except FencelockError:
                continue
            attempt.released()


async def with_asyncio(url: str, work: Appender) -> None:
    async with AsyncClient(url, client_name=work.client) as locks:
        lock, mode, limit = work.lock(locks)
        for number in itertools.count():
            if work.stopped:
                return
            attempt = work.history.acquire(work.client, "list", mode=mode, limit=limit)
            try:
                lease = await lock.acquire(timeout=WAIT)
            except FencelockError as error:
                work.failed(attempt, error)
                await asyncio.sleep(SECTION)
                continue
            work.begin(attempt, lease)
            found = work.read(lease.token)
            await asyncio.sleep(SECTION)
            work.write(lease.token, found, f"{work.client}.{number}")
            attempt.release()
            try:
                await lease.release()
            except FencelockError:
                continue
            attempt.released()


if __name__ == "__main__":
    _, where, folder, client, flavour, kind, life = sys.argv
    appender = Appender(Path(folder), client, kind, float(life))
    say(ready=True)
    if flavour == "asyncio":
        asyncio.run(with_asyncio(where, appender))
    else:
        blocking(where, appender)
    say(done=True)
