"""Leader election: one of many does the work, the others stand by.

`run(fn)` is the whole life of a service: campaign, lead, and when leadership ends (the lease was
lost, or resigned) campaign again, at the end of the queue. It returns what `fn` returns, once `fn`
returns while it leads. A store that is away makes the campaign longer, see `core/election.py`.

Under asyncio `fn` is cancelled when leadership ends; a thread cannot be, so a blocking `fn` must
look: `while lease.is_held()`, or `lease.lost.wait(seconds)` in its loop. `run` waits for `fn` to end
before it campaigns again, however long that takes, and leads with one lease at a time.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from fencelock.core.election import Watch, campaign, head, leader, resign, serve
from fencelock.core.hold import Hold, Terms
from fencelock.durations import Duration, duration
from fencelock.errors import BackendError, cannot_be_pickled
from fencelock.lease import AsyncLease, Lease
from fencelock.lock import IN_A_CHILD, AsyncLock, Lock
from fencelock.runtime.blocking import run
from fencelock.state import Entry

if TYPE_CHECKING:
    from fencelock.core.session import Session

__all__ = ["AsyncElection", "Election"]

R = TypeVar("R")
L = TypeVar("L", Lock, AsyncLock)

log = logging.getLogger("fencelock")


class ElectionBase(Generic[L]):
    """What both flavours of an election have in common."""

    def __init__(self, lock: L) -> None:
        self._lock: L = lock
        self._session: Session = lock.session
        self._offices: set[Terms] = set()  # the terms of each `run` that is under way

    @property
    def name(self) -> str:
        """The election's name."""
        return self._lock.terms.name

    def is_leader(self) -> bool:
        """Whether this election object certainly leads, by the local clock. No I/O."""
        return any(self._session.holds.is_held(hold) for hold in self._holds())

    def _holds(self) -> list[Hold]:
        ours = {self._lock.terms, *list(self._offices)}
        return [hold for hold in self._session.holds.all() if hold.terms in ours]

    def _office(self, margin: Duration | None) -> Terms:
        terms = self._lock.terms
        usual = min(terms.ttl, terms.max_hold) / 10
        return terms.with_margin(usual if margin is None else duration(margin, "margin"))

    def _not_given_back(self, lease: Lease | AsyncLease, error: BackendError) -> None:
        log.warning("leadership of %r ends after its ttl of %gs: %s", self.name, lease.ttl, error)

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, IN_A_CHILD)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class Election(ElectionBase[Lock]):
    """A leader election for blocking code.

    Example:
        >>> from fencelock import Client
        >>> with Client("memory://") as locks:
        ...     election = locks.election("billing")
        ...     election.run(lambda lease: election.is_leader())
        True
    """

    def lead(self) -> Lock:
        """Return the lock whose holder leads: `with election.lead() as lease:`."""
        return self._lock

    def run(self, fn: Callable[[Lease], R], *, margin: Duration | None = None) -> R:
        """Call `fn(lease)` whenever this process leads, until it returns while it still does.

        When renewals fail, `fn` is told so by its lease `margin` seconds before anyone else can lead: a
        tenth of the ttl if not given, at most half of it.
        """

        async def work(lease: Lease) -> R:
            return self._in_office(lease, fn)

        terms = self._office(margin)
        self._offices.add(terms)
        try:
            return run(serve(self._session, terms, self._lock._lease, work))
        finally:
            self._offices.discard(terms)

    def _in_office(self, lease: Lease, fn: Callable[[Lease], R]) -> R:
        try:
            lease.check()
            result = fn(lease)
        except BaseException as error:
            lease._leave(error)
            raise
        try:
            lease._leave(None)
        except BackendError as error:
            self._not_given_back(lease, error)
        return result

    def _campaign(self, margin: float, tell: Callable[[str], None]) -> Lease:
        """Return the lease once elected, for those who do what `run` does in their own way."""
        return run(campaign(self._session, self._office(margin), self._lock._lease, tell))

    def leader(self) -> Entry | None:
        """Return who leads now, as `inspect` shows it, or `None`."""
        return run(leader(self._session, self.name))

    def observe(self) -> Iterator[Entry | None]:
        """Yield the leader now, and again whenever it changes; `None` while there is none.

        Goes on through outages of the store, and ends when the client is closed.
        """
        watch = Watch(self._session, self.name)
        while (state := run(watch.change())) is not None:
            yield head(state)

    def resign(self) -> None:
        """Step down. What `run` has under way learns of it as a loss, and hands over when it returns."""
        for hold in self._holds():
            run(resign(self._session, hold, in_office=hold.terms in self._offices))


class AsyncElection(ElectionBase[AsyncLock]):
    """A leader election for asyncio."""

    def lead(self) -> AsyncLock:
        """Return the lock whose holder leads: `async with election.lead() as lease:`."""
        return self._lock

    async def run(self, fn: Callable[[AsyncLease], Awaitable[R]], *, margin: Duration | None = None) -> R:
        """Call `fn(lease)` whenever this process leads, until it returns while it still does.

        When renewals fail, `fn` is cancelled `margin` seconds before anyone else can lead: a tenth of the
        ttl if not given, at most half of it.
        """

        async def work(lease: AsyncLease) -> R:
            return await self._in_office(lease, fn)

        terms = self._office(margin)
        self._offices.add(terms)
        try:
            return await serve(self._session, terms, self._lock._lease, work)
        finally:
            self._offices.discard(terms)

    async def _in_office(self, lease: AsyncLease, fn: Callable[[AsyncLease], Awaitable[R]]) -> R:
        lease._arm(self._session.runtime.current())
        try:
            lease.check()
            result = await fn(lease)
        except BaseException as error:
            await lease._leave(error)
            raise
        try:
            await lease._leave(None)
        except BackendError as error:
            self._not_given_back(lease, error)
        return result

    async def leader(self) -> Entry | None:
        """Return who leads now, as `inspect` shows it, or `None`."""
        return await leader(self._session, self.name)

    async def observe(self) -> AsyncIterator[Entry | None]:
        """Yield the leader now, and again whenever it changes; `None` while there is none.

        Goes on through outages of the store, and ends when the client is closed.
        """
        watch = Watch(self._session, self.name)
        while (state := await watch.change()) is not None:
            yield head(state)

    async def resign(self) -> None:
        """Step down. What `run` has under way is cancelled, and hands over when it has ended."""
        for hold in self._holds():
            await resign(self._session, hold, in_office=hold.terms in self._offices)
