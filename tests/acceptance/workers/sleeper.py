"""Holds a lock, is stopped in the middle of its section, and says what it finds when it wakes.

sleeper.py FOLDER FLAVOUR TTL, where FLAVOUR is blocking or asyncio.

From the grant on it does nothing but ask its lease, again and again: `is_held()`, which does no I/O.
Each answer is noted with a reading of the clock from *before* the question, so the last "yes"
says how long the lease was believed in. After the first "no" it asks the rest, and then does what
a program does that does not ask: it finishes its write, on a plain resource and on a guarded one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from resources import Guarded, Plain, say

from fencelock import AsyncClient, AsyncLease, Client, Lease, LeaseLost, StaleToken
from fencelock.testing import Attempt, HistoryFile, boottime

NAME = "sleeper"


class Section:
    """What the sleeper does with its lease, and what it saw."""

    def __init__(self, folder: Path) -> None:
        self.history = HistoryFile(folder / "history")
        self.plain = Plain(folder / "plain")
        self.guarded = Guarded(folder / "list.db")
        self.losses: list[int] = []
        self.last_yes = 0.0
        self.attempt: Attempt | None = None

    def acquire(self) -> None:
        self.attempt = self.history.acquire(NAME, "list")

    def begin(self, lease: Lease | AsyncLease) -> None:
        assert self.attempt is not None
        self.attempt.leased(lease)
        self.plain_words = self.plain.read()
        self.base, self.words = self.guarded.read(lease.token)
        say(token=lease.token)

    def ask(self, lease: Lease | AsyncLease) -> bool:
        at = boottime()
        held = lease.is_held()
        if held:
            self.last_yes = at
        return held

    def lost(self, lease: Any) -> None:
        self.losses.append(lease.token)
        assert self.attempt is not None
        self.attempt.lost()

    def woke(self, lease: Lease | AsyncLease) -> dict[str, Any]:
        """What the lease says, without asking anyone."""
        found: dict[str, Any] = {"last_yes": self.last_yes, "held": lease.is_held()}
        found["remaining"] = lease.remaining()
        try:
            lease.check()
            found["check"] = None
        except LeaseLost as error:
            found["check"] = error.reason
        found["lost"] = lease.lost.is_set()
        return found

    def write_late(self, token: int) -> dict[str, Any]:
        """Finish the section as if nothing had happened."""
        self.plain.write([*self.plain_words, NAME])
        self.history.plain(NAME, "plain", base=len(self.plain_words))
        try:
            seq = self.guarded.write(token, [*self.words, NAME])
        except StaleToken as error:
            self.history.write(NAME, "list", token=token, base=self.base, accepted=False)
            return {"stale": error.token, "newest": error.newest}
        self.history.write(NAME, "list", token=token, base=self.base, seq=seq)
        return {"stale": None}


def blocking(folder: Path, ttl: float) -> None:
    section = Section(folder)
    with Client(f"sqlite://{folder / 'locks.db'}") as locks:
        section.acquire()
        try:
            with locks.lock("list", ttl=ttl, on_lost=section.lost) as lease:
                section.begin(lease)
                while section.ask(lease):
                    time.sleep(0.001)
                found = section.woke(lease)
                found |= section.write_late(lease.token)
                found["verified"] = lease.verify()
        except LeaseLost as error:
            found["raised"] = error.token
        time.sleep(2 * ttl)  # time enough for a second report, or a revival
        say(**found, still_held=lease.is_held(), losses=section.losses, released=lease.release())


async def with_asyncio(folder: Path, ttl: float) -> None:
    section = Section(folder)
    async with AsyncClient(f"sqlite://{folder / 'locks.db'}") as locks:
        section.acquire()
        try:
            async with locks.lock("list", ttl=ttl, on_lost=section.lost) as lease:
                section.begin(lease)
                try:
                    while section.ask(lease):
                        await asyncio.sleep(0.001)
                finally:  # cancelled by the loss, if the services of the client woke first
                    found = section.woke(lease)
                    found |= section.write_late(lease.token)
                await asyncio.sleep(60)
        except LeaseLost as error:
            found["raised"] = error.token
        found["verified"] = await lease.verify()
        await asyncio.sleep(2 * ttl)
        say(**found, still_held=lease.is_held(), losses=section.losses, released=await lease.release())


if __name__ == "__main__":
    where, flavour, life = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    if flavour == "asyncio":
        asyncio.run(with_asyncio(where, life))
    else:
        blocking(where, life)
