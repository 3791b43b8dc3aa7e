"""Acquire and release: the way of one request through the queue.

`acquire` takes `acquire` steps until it is granted, and waits in between: for a push, at most
until the next heartbeat, until somebody before it may have expired, and until the one
deadline that covers the whole call. A push that was lost costs latency, not liveness.

Whatever goes wrong (timeout, cancellation, an error, Ctrl-C), the request is withdrawn before
the error travels on; if that fails as well it is owed, and tried again in the background. If a
step got no answer it is withdrawn once more, a little later: a slow server, or a packet that was
sent again, may take the step after the withdrawal.

The validity of a grant counts from before the step was sent. A grant that is over when it
arrives, because the process was stopped meanwhile, is no grant: another step is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from fencelock.core import events
from fencelock.core.hold import LOST, RELEASED, Hold, Terms
from fencelock.core.ports import Busy, Grant, PoolExhausted, Request, patience
from fencelock.core.session import STEP_LIMIT, Session
from fencelock.errors import AcquireCancelled, AcquireTimeout, BackendError, BackendUnavailable

__all__ = ["acquire", "release"]

L = TypeVar("L")

RIDE_OUT = 2.0
"""A waiter survives an outage of so many seconds before it gives up."""
TOO_LATE = 3
"""So many grants that are over when they arrive are an error, not bad luck."""
TRY_LIMIT = 2.0
"""A try does not wait for the lock, but the backend has so long to answer."""
OUTAGE_PAUSE = 0.1
SOON = 0.001
UNKNOWN = Busy(0.0, None)
"""The answer to a request that no connection was free for."""
EARLY = 0.01
"""A wait may end so much before its deadline (uvloop's timers count whole milliseconds). A step that gets no
answer in what is left tells of no outage."""


async def acquire(
    session: Session,
    terms: Terms,
    timeout: float,
    lease: Callable[[Hold], L],
    answered: Callable[[], None] | None = None,
    answer_by: float = math.inf,
    is_well: bool = False,
) -> L:
    """Wait for the lock, at most `timeout` seconds, and return what `lease` makes of the hold.

    The lease is made before the hold is registered: at no point is there a registered hold
    whose lease nobody has, so an interrupt here leaves nothing that would be renewed for ever.
    `answered` is called after each step that the backend took. A try has an answer by `answer_by`, or none.
    `is_well`: the backend has answered within this timeout already, for another lock.
    """
    session.check_open()
    if terms.reentrant:
        again = session.enter_again(terms)
        if again is not None:
            return lease(again)
    request = session.request(terms)
    owner = request.owner
    hold: Hold | None = None
    started = session.runtime.now()
    try:
        session.pending[owner] = (request, session.runtime.current())
        grant, sent, now = await _stand_in_line(
            session, request, started, timeout, terms, answered, answer_by, is_well
        )
        hold = Hold(request, terms, grant.token, sent, grant.validity, now)
        result = lease(hold)
        if events.to_acquired:  # before add: nobody can end it, and tell of that, first
            events.tell(events.Acquired, events.to_acquired, session, hold, now - started)
        session.add(hold)
        if session.closed:  # meanwhile; closing may have looked at the table before we were in it
            session.end(hold)
            raise _closed(request, now - started)
        if terms.reentrant:
            session.note_entrant(hold)
        return result
    except BaseException as error:
        waited = session.runtime.now() - started
        try:
            if isinstance(error, BackendUnavailable):
                session.owe(request, request.ttl)  # it does not answer: the caller need not wait for that
            elif timeout > 0 or not isinstance(error, AcquireTimeout):  # a try leaves nothing
                await session.undo(request)
        finally:
            events.not_acquired(session, request, hold, error, waited, timeout)
        raise
    finally:
        session.pending.pop(owner, None)
        session.doubts.discard(owner)


async def _stand_in_line(
    session: Session,
    request: Request,
    started: float,
    timeout: float,
    terms: Terms,
    answered: Callable[[], None] | None,
    answer_by: float,
    is_well: bool,
) -> tuple[Grant, float, float]:
    """Return the grant, when it was asked for, and when it was there."""
    runtime, backend = session.runtime, session.backend
    sent, deadline = started, started + timeout
    outage, late = math.inf, 0
    cause: BackendUnavailable | None = None
    busy: Busy | None = None
    while True:
        limit = min(answer_by, sent + TRY_LIMIT) if timeout == 0 else min(deadline, sent + STEP_LIMIT)
        try:
            answer: Grant | Busy = await backend.acquire(request, wait=timeout > 0, deadline=limit)
            outage, cause = math.inf, None
        except PoolExhausted:  # nothing was sent, and the server is well
            answer, outage, cause = busy or UNKNOWN, math.inf, None
        except BackendUnavailable as error:
            _note_failure(session, request, error)
            now = _still_wanted(session, request, started)  # a step may fail because the client was closed
            # The last error may say no more than that the time was over.
            outage, cause = min(outage, sent), cause or error
            if (is_well or busy is not None) and now >= deadline and _is_brief(outage, sent, deadline):
                raise _timed_out(session, request, busy or UNKNOWN, started, sent, now) from None
            if timeout == 0 or not error.transient or now >= deadline or now - outage >= RIDE_OUT:
                raise cause from cause.__cause__
            sent = await _breathe(session, request, started, deadline - now)
            continue
        except BaseException as error:
            _note_failure(session, request, error)
            raise
        now = runtime.now()
        if answered is not None:
            answered()
        if answer.__class__ is Grant:
            if now < sent + answer.validity - terms.margin:
                return answer, sent, now
            late += 1
            if late == TOO_LATE or now >= deadline:
                raise _too_late(request, backend.name)
            sent = now
            continue
        assert isinstance(answer, Busy)
        is_first, busy = busy is None, answer
        if now >= deadline:
            raise _timed_out(session, request, answer, started, sent, now)
        if is_first:
            events.waiting(session, request)
        until = now + min(patience(request.ttl) / 3, max(answer.recheck, SOON))
        pushed = await _wait(session, request, min(until, deadline))
        now = _still_wanted(session, request, started)
        if pushed is not None and _is_enough(pushed, now - sent, terms):
            return pushed, sent, now
        if now >= deadline:
            raise _timed_out(session, request, answer, started, sent, now)
        sent = now


def _is_brief(outage: float, sent: float, deadline: float) -> bool:
    """Whether only the last step had no answer, or what was left was too short for one."""
    return outage == sent or deadline - outage <= EARLY


def _note_failure(session: Session, request: Request, error: BaseException) -> None:
    """A step was not answered, or not as it should be: it may be done nevertheless."""
    session.doubts.add(request.owner)
    if isinstance(error, BackendError):
        events.failed(session, "acquire", error)


async def _breathe(session: Session, request: Request, started: float, left: float) -> float:
    """Let the backend recover; return the time."""
    await session.runtime.sleep(min(left, OUTAGE_PAUSE * (0.5 + session.runtime.jitter())))
    return _still_wanted(session, request, started)


def _still_wanted(session: Session, request: Request, started: float) -> float:
    """Return the time, unless the client was closed meanwhile."""
    now = session.runtime.now()
    if session.closed:
        raise _closed(request, now - started)
    return now


def _is_enough(pushed: Grant, age: float, terms: Terms) -> bool:
    """Whether a pushed grant will do. If not, another step is taken, and gives a whole ttl.

    It may be good for less than the ttl until the first renewal, so it must be renewed at all, and
    there must be time for that.
    """
    return age < (pushed.validity - terms.margin) / 2 and (terms.renew or pushed.validity >= terms.ttl)


async def _wait(session: Session, request: Request, until: float) -> Grant | None:
    try:
        return await session.backend.wait(request, until)
    except BackendUnavailable as error:
        events.failed(session, "wait", error)
        # Pushes do not come through: the next step will tell, but not at once and for ever.
        await session.runtime.sleep(min(OUTAGE_PAUSE, until - session.runtime.now()))
        return None


def _too_late(request: Request, backend: str) -> BackendUnavailable:
    detail = f"its answers take longer than the ttl of {request.ttl:g}s"
    return BackendUnavailable(backend=backend, detail=detail)


def _closed(request: Request, waited: float) -> AcquireCancelled:
    return AcquireCancelled(name=request.name, waited=waited, reason="its client was closed")


def _timed_out(
    session: Session, request: Request, answer: Busy, started: float, sent: float, now: float
) -> AcquireTimeout:
    holder = answer.holder
    if holder is not None:
        holder = replace(holder, age=holder.age + now - sent)
    dropped = session.abandoned_on(request.name, holder)
    return AcquireTimeout(name=request.name, waited=now - started, holder=holder, dropped=dropped)


async def release(session: Session, hold: Hold) -> bool:
    """Give the lock back; say whether it was held until now.

    Whatever happens on the way, the hold is over and the record is gone, or owed. Called
    again after an error, it tries again.
    """
    request = hold.request
    if hold.depth > 1:
        held = session.is_held(hold)
        hold.depth -= 1
        return held
    now = session.runtime.now()
    if not session.is_held(hold, now):
        await _release_again(session, hold)
        return False
    try:
        if not session.end(hold, tell=False):
            return False
        hold.depth = 0
        there = await session.backend.release(request, hold.token, deadline=now + STEP_LIMIT)
    except BackendError as error:
        session.owe(request, hold.ttl)
        events.failed(session, "release", error)
        if events.to_released:
            events.tell(events.Released, events.to_released, session, hold, now - hold.since)
        raise
    except BaseException:
        try:
            await session.undo(request)
        finally:
            if events.to_released and hold.state is RELEASED:
                events.tell(events.Released, events.to_released, session, hold, now - hold.since)
        raise
    if not there:
        session.mark_lost(hold, "the backend had no record of it when it was released")
    elif events.to_released:
        events.tell(events.Released, events.to_released, session, hold, now - hold.since)
    return there


async def _release_again(session: Session, hold: Hold) -> None:
    debt = session.debts.get(hold.request.owner)
    if debt is not None and hold.state is not LOST:  # the debts of the lost are the renewer's business
        await session.pay(debt)
