"""The two ways to a job: under a lock of its own, or by its row alone.

    Locked     look for jobs, try the lock "{id}#{kind}" of one after the other, begin the attempt in the row
               with the lock's token. Any lock backend, any database.
    Unlocked   the row is the lease: its deadline is set by the UPDATE that begins the attempt. PostgreSQL
               finds, begins and reads in one statement; MariaDB and MySQL look first, then lock the row
               and begin in a short transaction. Nothing is locked while the handler runs.

Either way the row's token decides who may complete the job. The lock keeps others from beginning while its
holder is at work, also where the row was not renewed in time, and lets `fencelock ls` show who works.

What is found is tried in order: the highest priority first, in it what a crash has left, then what was due
first. A worker that meets others at the same jobs tries a random part of each priority instead, still in that
order, so that workers who look at the same moment do not all try the same one. PostgreSQL without locks needs
none of this: there each worker skips the rows that another has locked.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

from fencelock.connections import POSTGRESQL, settled
from fencelock.errors import ConfigurationError
from fencelock.jobs import steps
from fencelock.jobs.leases import RowLease
from fencelock.jobs.links import Link
from fencelock.jobs.statements import Statements
from fencelock.jobs.steps import Candidate, Claimed
from fencelock.lock import of_kind
from fencelock.runtime.base import Runtime

__all__ = ["Got", "Locked", "Unlocked", "Way", "way_for"]

WINDOW = 100
"""Jobs that are looked at, of each half."""
FEWEST = 8
"""Jobs that are tried before it is looked again, at least: others do the rest meanwhile."""
CALM = 3
"""After so many looks in a row of which it got every job it tried, a worker counts as alone again."""


class Got(NamedTuple):
    """An attempt that has begun: what its row says, and the lease."""

    claimed: Claimed
    lease: Any
    since: float
    """From before the row's deadline was set."""


Found = Candidate | Got


class Way(ABC):
    """How a worker comes to its jobs."""

    def __init__(self, runtime: Runtime, say: Statements, ttl: float, worker: str) -> None:
        self.runtime = runtime
        self.say = say
        self.ttl = ttl
        self.worker = worker
        self._reach = FEWEST
        self._crowded = 0
        """Looks until this worker counts as alone."""

    def tried(self, hits: int, misses: int) -> None:
        """Learn from what came of the last jobs that were found: try more of them where nobody else does."""
        self._reach = max(FEWEST, self._reach // 2) if misses > hits else min(WINDOW, self._reach * 2)
        self._crowded = CALM if misses else max(0, self._crowded - 1)

    async def find(self, link: Link, idle: int) -> list[Found]:
        """Look for jobs; `idle` could begin at once."""
        found = await link.step(lambda door: steps.find(door, self.say, WINDOW))
        chosen, wanted = list[Found](), self._reach + idle
        for (_, again), same in groupby(found, key=lambda one: (one.priority, one.again)):
            group = list(same)
            # Some of those left behind may be alive, with a lock and a row that is late: try others too.
            room = (wanted - len(chosen) + 1) // 2 if again else wanted - len(chosen)
            chosen += _some(group, room) if self._crowded else group[:room]
            if len(chosen) >= wanted:
                break
        return chosen

    @abstractmethod
    async def take(self, link: Link, found: Found, on_lost: Callable[[Any], None]) -> Got | None:
        """Begin an attempt, unless somebody else has the job."""

    async def release(self, got: Got) -> None:
        """Give the lease back."""

    async def _begun(self, link: Link, found: Candidate, floor: int) -> Claimed | None:
        return await link.step(
            lambda door: steps.claim(door, self.say, found, floor, self.ttl, self.worker),
            whole=self.say.is_two_steps,
        )


class Locked(Way):
    """Under a lock for each job."""

    def __init__(self, runtime: Runtime, say: Statements, ttl: float, worker: str, locks: Any) -> None:
        super().__init__(runtime, say, ttl, worker)
        self._locks = locks

    async def take(self, link: Link, found: Found, on_lost: Callable[[Any], None]) -> Got | None:
        assert isinstance(found, Candidate)
        try:
            lock = of_kind(self._locks.lock(found.name, ttl=self.ttl, on_lost=on_lost), "job")
        except ConfigurationError as error:
            return await self._nameless(link, found, str(error))
        lease = await settled(lock.try_acquire())
        if lease is None:
            return None
        since, claimed = self.runtime.now(), None
        try:
            claimed = await self._begun(link, found, lease.token)
        finally:
            if claimed is None:
                await settled(lease.release())
        return None if claimed is None else Got(claimed, lease, since)

    async def _nameless(self, link: Link, found: Candidate, reason: str) -> Got | None:
        """Begin a job whose id and kind make no name for a lock: it can only be dead."""
        since = self.runtime.now()
        claimed = await self._begun(link, found, 0)
        if claimed is None:
            return None
        return _by_row(self, claimed._replace(unreadable=f"its lock has no name: {reason}"), since)

    async def release(self, got: Got) -> None:
        if not isinstance(got.lease, RowLease):
            await settled(got.lease.release())


class Unlocked(Way):
    """By the row alone."""

    @property
    def finds_and_begins(self) -> bool:
        """Whether one statement does both."""
        return self.say.shape.dialect == POSTGRESQL

    async def find(self, link: Link, idle: int) -> list[Found]:
        if not self.finds_and_begins:
            return await super().find(link, idle)
        since = self.runtime.now()
        begun, _ = await link.step(lambda door: steps.claim_many(door, self.say, idle, self.ttl, self.worker))
        return [_by_row(self, claimed, since) for claimed in begun]

    async def take(self, link: Link, found: Found, on_lost: Callable[[Any], None]) -> Got | None:
        if isinstance(found, Got):
            return found
        since = self.runtime.now()
        claimed = await self._begun(link, found, 0)
        return None if claimed is None else _by_row(self, claimed, since)

    async def complete_and_take(self, link: Link, done: Claimed) -> tuple[bool, Got | None]:
        """Complete one job and begin the next, with one commit. Says whether it was completed."""
        since = self.runtime.now()
        begun, ended = await link.step(
            lambda door: steps.claim_many(door, self.say, 1, self.ttl, self.worker, done)
        )
        return ended, _by_row(self, begun[0], since) if begun else None


def _some(group: list[Candidate], count: int) -> list[Candidate]:
    """Return a random part, in order."""
    return [group[at] for at in sorted(random.sample(range(len(group)), min(len(group), count)))]


def _by_row(way: Way, claimed: Claimed, since: float) -> Got:
    lease = RowLease(way.runtime, name=claimed.name, token=claimed.token, ttl=way.ttl, since=since)
    return Got(claimed, lease, since)


def way_for(locks: Any, runtime: Runtime, say: Statements, ttl: float, worker: str) -> Way:
    """Return the way that `locks` stands for."""
    if locks is None:
        return Unlocked(runtime, say, ttl, worker)
    return Locked(runtime, say, ttl, worker, locks)
