"""Leader election: one of many does the work, the others stand by.

`run(fn)` is the whole life of a service: campaign, lead, and when the lease is lost (or
resigned) campaign again. It returns what `fn` returns, once `fn` returns while it leads.
Under asyncio `fn` is cancelled when leadership ends; a thread cannot be, so a blocking `fn`
must look: `while lease.is_held()`, or `lease.lost.wait(seconds)` in its loop.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from holdfast.core.election import change_of_leader, head, leader
from holdfast.core.hold import Hold
from holdfast.errors import LeaseLost
from holdfast.lease import AsyncLease, Lease
from holdfast.lock import AsyncLock, Lock
from holdfast.runtime.blocking import run
from holdfast.state import Entry

if TYPE_CHECKING:
    from holdfast.core.session import Session

__all__ = ["AsyncElection", "Election"]

R = TypeVar("R")
L = TypeVar("L", Lock, AsyncLock)

RESIGNED = "resigned"

log = logging.getLogger("holdfast")


class ElectionBase(Generic[L]):
    """What both flavours of an election have in common."""

    def __init__(self, lock: L) -> None:
        self._lock: L = lock
        self._session: Session = lock.session

    @property
    def name(self) -> str:
        """The election's name."""
        return self._lock.terms.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class Leadership(Lock):
    """A lock that knows which of its leases are alive, so that `resign` finds them."""

    def __init__(self, lock: Lock) -> None:
        super().__init__(lock._client, lock.session, lock.terms)
        self.leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self.working: weakref.WeakSet[Lease] = weakref.WeakSet()

    def _lease(self, hold: Hold) -> Lease:
        lease = super()._lease(hold)
        self.leases.add(lease)
        return lease


class AsyncLeadership(AsyncLock):
    """A lock that knows which of its leases are alive, so that `resign` finds them."""

    def __init__(self, lock: AsyncLock) -> None:
        super().__init__(lock._client, lock.session, lock.terms)
        self.leases: weakref.WeakSet[AsyncLease] = weakref.WeakSet()
        self.working: weakref.WeakSet[AsyncLease] = weakref.WeakSet()

    def _lease(self, hold: Hold) -> AsyncLease:
        lease = super()._lease(hold)
        self.leases.add(lease)
        return lease


class Election(ElectionBase[Lock]):
    """A leader election for blocking code."""

    _lock: Leadership

    def __init__(self, lock: Lock) -> None:
        super().__init__(Leadership(lock))

    def lead(self) -> Lock:
        """Return the lock whose holder leads: `with election.lead() as lease:`."""
        return self._lock

    def run(self, fn: Callable[[Lease], R]) -> R:
        """Call `fn(lease)` whenever this process leads, until it returns while it still does."""
        while True:
            lease: Lease | None = None
            try:
                with self._lock as lease:
                    self._lock.working.add(lease)
                    return fn(lease)
            except LeaseLost as error:
                if lease is None or error.token != lease.token:
                    raise
                log.info("leadership of %r ended, campaigning again: %s", self.name, error.reason)
            finally:
                if lease is not None and lease._hold.reason == RESIGNED:  # kept until the work has ended
                    run(self._session.undo(lease._hold.request))

    def leader(self) -> Entry | None:
        """Return who leads now, as `inspect` shows it, or `None`."""
        return run(leader(self._session, self.name))

    def observe(self) -> Iterator[Entry | None]:
        """Yield the leader now, and again whenever it changes; `None` while there is none."""
        state = None
        while True:
            state = run(change_of_leader(self._session, self.name, state))
            yield head(state)

    def resign(self) -> None:
        """Step down. What `run` has under way learns of it as a loss, and hands over when it returns."""
        for lease in list(self._lock.leases):
            if lease in self._lock.working:
                self._session.lose(lease._hold, RESIGNED, gone=True)
            else:
                lease.release()


class AsyncElection(ElectionBase[AsyncLock]):
    """A leader election for asyncio."""

    _lock: AsyncLeadership

    def __init__(self, lock: AsyncLock) -> None:
        super().__init__(AsyncLeadership(lock))

    def lead(self) -> AsyncLock:
        """Return the lock whose holder leads: `async with election.lead() as lease:`."""
        return self._lock

    async def run(self, fn: Callable[[AsyncLease], Awaitable[R]]) -> R:
        """Call `fn(lease)` whenever this process leads, until it returns while it still does."""
        while True:
            lease: AsyncLease | None = None
            try:
                async with self._lock as lease:
                    self._lock.working.add(lease)
                    return await fn(lease)
            except LeaseLost as error:
                if lease is None or error.token != lease.token:
                    raise
                log.info("leadership of %r ended, campaigning again: %s", self.name, error.reason)
            finally:
                if lease is not None and lease._hold.reason == RESIGNED:  # kept until the work has ended
                    await self._session.undo(lease._hold.request)

    async def leader(self) -> Entry | None:
        """Return who leads now, as `inspect` shows it, or `None`."""
        return await leader(self._session, self.name)

    async def observe(self) -> AsyncIterator[Entry | None]:
        """Yield the leader now, and again whenever it changes; `None` while there is none."""
        state = None
        while True:
            state = await change_of_leader(self._session, self.name, state)
            yield head(state)

    async def resign(self) -> None:
        """Step down. What `run` has under way is cancelled, and hands over when it has ended."""
        for lease in list(self._lock.leases):
            if lease in self._lock.working:
                self._session.lose(lease._hold, RESIGNED, gone=True)
            else:
                await lease.release()
