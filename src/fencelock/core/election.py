"""Election: the head of a queue leads.

A candidate stands in the queue of the election's name like anyone who wants a lock; to lead
is to hold it. There is nothing more to the protocol. What this module adds is the life around it:

    serve      campaign, lead, step down, campaign again: what a service does
    campaign   stand in the queue until elected, however long the store is away
    Watch      who leads now, and who leads next

*Stepping down.* A leadership is definite until its local deadline, which is counted from before
the request was sent, so it ends before the store would let anyone else lead. With a margin it ends
so much earlier, and the record stays in the store until the work has ended or the margin is over:
work that stops within the margin has stopped before anyone else can lead. The same goes for
resigning: the record is removed when the work has ended, not before. `serve` never campaigns while
its work goes on, so one `serve` never leads twice at once.

*A store that is away* makes a campaign longer: after the few seconds that every acquire rides out,
it is tried again, with pauses that grow and jitter. It is told once when the store goes and once
when it answers again. What waiting cannot help (a wrong argument, a file that cannot be opened)
is raised.

Not promised: a margin where the store itself ends the lease (a forced release, a session that
expired): that is known when it has happened. Nor that work which does not look, or does not end
when it is cancelled, stops in time: give its resource the token.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fencelock.core.acquire import acquire
from fencelock.core.hold import LOST, Hold, Terms
from fencelock.core.ports import STEP_LIMIT
from fencelock.core.release import release
from fencelock.core.session import Session
from fencelock.errors import BackendError, LeaseLost, QuorumNotReached, Unsupported
from fencelock.state import Entry, LockState

__all__ = ["Outage", "Watch", "campaign", "head", "leader", "resign", "serve"]

L = TypeVar("L")
R = TypeVar("R")

RESIGNED = "resigned"
LOOK_AGAIN = 2.0
"""A watch notices within so many seconds that its client was closed."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 5.0
STAND_BACK = 1.0
"""Where there is no queue, a leader that resigned lets the others try for so long."""

log = logging.getLogger("fencelock")


class Outage:
    """Tells of a store that is away: once when it goes, once when it answers again."""

    def __init__(self, session: Session, what: str, tell: Callable[[str], None] = log.warning) -> None:
        self._runtime = session.runtime
        self._what = what
        self._tell = tell
        self._since: float | None = None
        self._pause = FIRST_PAUSE

    async def rest(self, error: BackendError, longest: float) -> None:
        """Wait before the next try; raise the error if waiting cannot help."""
        if not getattr(error, "transient", isinstance(error, QuorumNotReached)):
            raise error
        if self._since is None:
            self._since = self._runtime.now()
            self._tell(f"{self._what} goes on, though the store is away: {error}")
        seconds, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        await self._runtime.sleep(min(longest, seconds * (1.0 - self._runtime.jitter() / 2)))

    def over(self) -> None:
        """The store has answered."""
        if self._since is not None:
            self._tell(f"{self._what}: the store is back after {self._runtime.now() - self._since:.1f}s")
            self._since, self._pause = None, FIRST_PAUSE


async def campaign(
    session: Session, terms: Terms, lease: Callable[[Hold], L], tell: Callable[[str], None] = log.warning
) -> L:
    """Stand for election until elected, at most for the timeout of the terms, and return the lease."""
    outage = Outage(session, f"the campaign for {terms.name!r}", tell)
    deadline = session.runtime.now() + terms.timeout
    left = terms.timeout
    while True:
        try:
            return await acquire(session, terms, left, lease, outage.over)
        except BackendError as error:
            left = deadline - session.runtime.now()
            if left <= 0:
                raise
            await outage.rest(error, left)
        left = max(0.0, deadline - session.runtime.now())


async def serve(
    session: Session, terms: Terms, lease: Callable[[Hold], L], work: Callable[[L], Awaitable[R]]
) -> R:
    """Do `work(lease)` whenever elected, until it returns while it still leads; return what it returns.

    `work` gives the lease back when it ends, and raises `LeaseLost` if it was lost by then.
    """
    while True:
        elected: list[Hold] = []

        def office(hold: Hold, elected: list[Hold] = elected) -> L:
            elected.append(hold)
            return lease(hold)

        held = await campaign(session, terms, office)
        hold = elected[0]
        try:
            return await work(held)
        except LeaseLost as error:
            if (error.name, error.token) != (hold.request.name, hold.token):
                raise
            log.debug("leadership of %r ended, campaigning again: %s", terms.name, error.reason)
        finally:
            await _vacate(session, hold)
        if hold.reason == RESIGNED and "fifo" not in session.backend.capabilities:
            await session.runtime.sleep(STAND_BACK)


async def _vacate(session: Session, hold: Hold) -> None:
    """The work has ended: let the next one lead, if the record was kept for it."""
    if hold.state is LOST and (hold.reason == RESIGNED or session.cleanups.get(hold.request) is not None):
        await session.cleanups.undo(hold.request)


async def resign(session: Session, hold: Hold, *, in_office: bool) -> None:
    """Step down. In an office of `serve` that is a loss, and the record stays until the work has ended."""
    if in_office:
        session.holds.lose(hold, RESIGNED, gone=True, wanted=True)
    else:
        hold.depth = min(hold.depth, 1)  # however often it was entered
        await release(session, hold)


async def leader(session: Session, name: str) -> Entry | None:
    """Return who leads, or `None`."""
    _check(session)
    return head(await session.backend.inspect(name, deadline=session.runtime.now() + STEP_LIMIT))


class Watch:
    """The changes of leader of one election, through whatever outages there are."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._seen: LockState | None = None
        self._outage = Outage(session, f"watching who leads {name!r}")

    async def change(self) -> LockState | None:
        """Return the state once its leader is another than before; `None` when the client was closed."""
        session, seen = self._session, self._seen
        if seen is None:
            _check(session)
        while not session.closed:
            try:
                deadline = session.runtime.now() + LOOK_AGAIN
                state = await session.backend.observe(self._name, seen, deadline=deadline)
            except BackendError as error:
                if not session.closed:
                    await self._outage.rest(error, LONGEST_PAUSE)
                continue
            self._outage.over()
            if seen is None or _who(state) != _who(seen):
                self._seen = state
                return state
        return None


def _check(session: Session) -> None:
    session.check_open()
    if "inspect" not in session.backend.capabilities:
        raise Unsupported(capability="inspect", backend=session.backend.name)


def head(state: LockState) -> Entry | None:
    """Return the leader in a state."""
    return state.holders[0] if state.holders else None


def _who(state: LockState) -> tuple[str, int] | None:
    entry = head(state)
    return None if entry is None else (entry.owner, entry.token)
