"""Renewal: one service for all leases of a client, and a timekeeper that no I/O can hold up.

The *timekeeper* never talks to the backend. It looks at the clock and at the table of holds:
a deadline that has passed is a loss, at once, even while the renewer is stuck; a renewal that
is due is handed to the *renewer*. The renewer talks to the backend and nothing else waits
for it. It renews in batches, whatever is due or nearly due, and has four outcomes:

    RENEWED   count anew from before the call was sent
    HELD      looked at only (renew=False, or max_hold reached): look again later
    LOST      it is over, nothing is retried and nothing revived
    UNKNOWN   no answer: try again soon, until the deadline makes it a loss

A reply that says RENEWED for a hold which ended meanwhile leaves a record that is
not wanted: its cleanup becomes pending.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencelock.core import events
from fencelock.core.background import LINGER
from fencelock.core.hold import HELD, LOST, RELEASED, Hold, check_margin
from fencelock.core.ports import Outcome, Renewal
from fencelock.errors import BackendError, BackendUnavailable, LeaseLost, NotHeld

if TYPE_CHECKING:
    from fencelock.core.session import Session

__all__ = ["extend", "keep_time", "renew_due", "verify"]

EARLY = 1 / 12
"""What is due within this part of its ttl is renewed along with the rest."""

RENEWED = Outcome.RENEWED
"""Looked up once: on an enumeration that takes longer than the rest of a comparison."""

log = logging.getLogger("fencelock")


async def keep_time(session: Session) -> bool:
    """Look at the clock once: report losses, hand what is due to the renewer, then rest."""
    session.dropped.collect()
    now = session.runtime.now()
    wake = now + LINGER
    if now < session.timekeeper.wanted_at < wake:
        # That hold may be gone again. The next is due later: no call has to wake this if it looks by then.
        wake = session.timekeeper.wanted_at
    # Whatever it finds, it looks again by then. Otherwise a call that adds or renews holds while many are
    # looked at would call it back at once, and it would not rest until that is over.
    session.timekeeper.wake_at = wake
    due = False
    for hold in session.holds.all():  # there may be many: most have both before them, and later
        if hold.deadline < wake:
            if hold.deadline <= now:
                session.holds.expire(hold)
                due = True  # its cleanup
                continue
            wake = hold.deadline
        if hold.due < wake and not hold.abandoned:
            if hold.due <= now:
                due = True
            else:
                wake = hold.due
    for cleanup in session.cleanups.all():
        due = due or cleanup.due <= now
        wake = min(wake, cleanup.due if cleanup.due > now else wake)
    if due:
        session.renewer.notify()
    busy = bool(session.holds or session.cleanups)
    if session.retired and not busy and session.last_will is not None:
        session.last_will(session)
    if not session.closed:
        await session.timekeeper.rest(wake)
    return busy


async def renew_due(session: Session) -> bool:
    """Renew once whatever is due, run the cleanups that are, then rest until the timekeeper calls."""
    now = session.runtime.now()
    due = [hold for hold in session.holds.all() if hold.due <= now + hold.ttl * EARLY and not hold.abandoned]
    cleanups = session.cleanups.due(now)
    size = session.backend.renew_batch
    for start in range(0, len(due), size):
        await _renew(session, due[start : start + size])
    await session.cleanups.run_due(cleanups, now)
    if not session.closed:
        await session.renewer.rest(math.inf)
    return bool(due or cleanups)


async def _renew(session: Session, holds: Sequence[Hold]) -> None:
    now = session.runtime.now()
    for hold in holds:
        hold.due = math.inf  # under way
    asked = [hold.ttl for hold in holds]
    limit = min(5.0, max(0.05, min(asked) / 3))
    outcomes: Sequence[Outcome | None]
    try:
        outcomes = await _send(session, [_renewal(hold, now) for hold in holds], now, now + limit)
    except BackendError as error:
        log.debug("renewal of %d leases failed: %s", len(holds), error)
        outcomes = [None] * len(holds)
    answered = session.runtime.now()
    for hold, outcome, ttl in zip(holds, outcomes, asked, strict=True):
        if outcome is RENEWED and hold.state is HELD and answered < hold.deadline:
            hold.move(now, ttl)
        else:
            settle(session, hold, outcome, now, ttl)
    session.timekeeper.wake_by(min([hold.due for hold in holds]))


def _renewal(hold: Hold, now: float) -> Renewal:
    """Ask for as much as the lease may have yet, if that is more than it has."""
    terms, more = hold.terms, hold.ttl
    if now + more > hold.latest:
        more = hold.latest - now
    extend = terms.renew and more > 0 and now + more - terms.margin > hold.deadline
    return Renewal(hold.request, hold.token, more, extend)


async def _send(
    session: Session, renewals: Sequence[Renewal], sent: float, deadline: float
) -> Sequence[Outcome]:
    try:
        outcomes = await session.backend.renew(renewals, deadline=deadline)
    except BackendError as error:
        events.failed(session.source, "renew", error)
        raise
    events.renewed(session.source, outcomes, session.runtime.now() - sent)
    return outcomes


def settle(session: Session, hold: Hold, outcome: Outcome | None, sent: float, validity: float = 0.0) -> None:
    """Write down what became of a renewal. `None` and UNKNOWN are the same: no answer."""
    now = session.runtime.now()
    if outcome is Outcome.LOST:
        # Its record may lie there yet, expired: a clock that is set back would make it live again.
        session.holds.lose(hold, "the backend has no record of it: it expired there, or was force-released")
    elif hold.state is not HELD or now >= hold.deadline:
        # Over, whatever the backend says; is_held() may have said so already.
        session.holds.lose(hold, hold.why_expired())
        if outcome is RENEWED and hold.state is LOST:
            session.cleanups.add(hold.request, hold.ttl)
    elif outcome is RENEWED:
        hold.move(sent, validity)
    elif outcome is Outcome.HELD:
        hold.due = now + hold.ttl / 3
    else:
        hold.due = now + min(1.0, hold.ttl / 10) * (0.5 + session.runtime.jitter())


async def verify(session: Session, hold: Hold) -> bool:
    """Ask the backend whether the lease is held. What it says settles the matter."""
    if not session.holds.is_held(hold):
        return False
    now = session.runtime.now()
    question = _renewal(hold, now)._replace(extend=False)
    (outcome,) = await _send(session, [question], now, now + limit_for(hold))
    if outcome is Outcome.LOST:
        settle(session, hold, outcome, now)
    elif outcome is Outcome.UNKNOWN:
        raise BackendUnavailable(
            backend=session.backend.name, detail="no answer to the question who holds the lock"
        )
    return session.holds.is_held(hold)


def limit_for(hold: Hold) -> float:
    """How long to wait for an answer about a hold."""
    return min(5.0, max(0.5, hold.ttl))


async def extend(session: Session, hold: Hold, ttl: float) -> None:
    """Give the lease a new ttl, counted from now.

    A shorter one counts here before it is sent: the store may keep it from any moment on, and renewals
    and longer extensions that are under way must not move the deadline further. Until it is answered, it
    may be done at any later time: the lease cannot be believed in for longer than that.
    """
    ensure_held(session, hold)
    check_margin(hold.terms.margin, ttl)
    if ttl > hold.cap:
        detail = f"an extension to {hold.cap:g}s has no answer and may yet be done: acquire the lock anew"
        raise BackendUnavailable(backend=session.backend.name, detail=detail, transient=False)
    now, cap = session.runtime.now(), hold.cap
    more = min(ttl, hold.latest - now)
    shorter = ttl < hold.ttl or now + more - hold.terms.margin < hold.deadline
    if shorter:
        hold.shortenings += 1
        hold.ttl = hold.cap = ttl
        hold.deadline = min(hold.deadline, now + more - hold.terms.margin)
        session.timekeeper.wake_by(hold.deadline)
    shortenings = hold.shortenings
    renewal = Renewal(hold.request, hold.token, more, extend=True, exact=shorter)
    (outcome,) = await _send(session, [renewal], now, now + limit_for(hold))
    if outcome is Outcome.UNKNOWN:
        raise BackendUnavailable(backend=session.backend.name, detail="no answer to the extension")
    if shorter and hold.cap == ttl:
        hold.cap = cap
    if outcome is Outcome.RENEWED and session.holds.is_held(hold) and hold.shortenings == shortenings:
        hold.ttl = ttl
    settle(session, hold, outcome, now, more)
    session.timekeeper.wake_by(min(hold.due, hold.deadline))
    ensure_held(session, hold)


def ensure_held(session: Session, hold: Hold) -> None:
    """Raise `LeaseLost` or `NotHeld` unless the hold is certain."""
    if not session.holds.is_held(hold):
        if hold.state is RELEASED:
            raise NotHeld(name=hold.request.name)
        raise lease_lost(hold)


def lease_lost(hold: Hold) -> LeaseLost:
    """Return the error that tells of this loss."""
    return LeaseLost(name=hold.request.name, token=hold.token, reason=hold.reason)
