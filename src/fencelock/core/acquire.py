"""Acquire: the way of one request through the queue.

An acquisition takes `acquire` steps until it is granted, and waits in between: for a push, at most
until the next heartbeat, until a request before it may have expired, and until the one
deadline that covers the whole call. A push that was lost costs latency, not liveness.

Whatever goes wrong (timeout, cancellation, an error, Ctrl-C), the request is withdrawn before
the error travels on; if that fails as well its cleanup stays pending in the background. If a step
got no answer it is withdrawn once more, a little later: a slow server, or a packet that was sent
again, may take the step after the withdrawal.

The validity of a grant counts from before the step was sent. A grant that is over when it
arrives, because the process was stopped meanwhile, is no grant: another step is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from fencelock.core import events
from fencelock.core.hold import HELD, Hold, Terms
from fencelock.core.ports import STEP_LIMIT, Busy, Grant, PoolExhausted, Request, patience
from fencelock.errors import AcquireCancelled, AcquireTimeout, BackendError, BackendUnavailable

if TYPE_CHECKING:
    from fencelock.core.session import Session

__all__ = ["Acquisition", "acquire"]

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
    without a lease, so an interrupt here leaves nothing that would be renewed for ever.
    `answered` is called after each step that the backend took. A try has an answer by `answer_by`, or none.
    `is_well`: the backend has answered within this timeout already, for another lock.
    """
    session.check_open()
    if terms.reentrant:
        again = session.enter_again(terms)
        if again is not None:
            return lease(again)
    acquisition = Acquisition(session, terms, timeout, answered, answer_by, is_well)
    owner = acquisition.request.owner
    hold: Hold | None = None
    try:
        session.acquiring[owner] = acquisition
        hold = await acquisition.run()
        result = lease(hold)
        acquisition.register(hold)
        return result
    except BaseException as error:
        await acquisition.withdraw(error, hold)
        raise
    finally:
        session.acquiring.pop(owner, None)
        if acquisition.in_doubt:
            session.cleanups.end_doubt(acquisition.request)


class Acquisition:
    """One request on its way through the queue.

                 +--> granted ----> done, or over on arrival: ask again
        ask -----+--> queued -----> wait: a push is done, all else asks again
                 +--> no answer --> ride out the outage, then ask again

    At the deadline, or when the client is closed, it gives up. `sent` is when the latest step was sent.
    """

    # An acquisition that is granted at once never looks at these.
    busy: Busy | None = None  # the latest answer that was not a grant
    late = 0  # grants that were over on arrival
    outage = math.inf  # when the first step was sent that got no answer

    def __init__(
        self,
        session: Session,
        terms: Terms,
        timeout: float,
        answered: Callable[[], None] | None = None,
        answer_by: float = math.inf,
        is_well: bool = False,
    ) -> None:
        self.session = session
        self.terms = terms
        self.timeout = timeout
        self.answered = answered
        self.is_well = is_well
        runtime = session.runtime
        self.request = Request(
            runtime.new_id(), terms.name, terms.mode, terms.limit, terms.ttl, session.origin, terms.metadata
        )
        self.caller = runtime.current()  # the thread or task that waits for it
        self.started = self.sent = runtime.now()
        self.deadline = self.started + timeout
        # When a step has an answer, or none: the earlier of both.
        self.step_limit = STEP_LIMIT if timeout > 0 else TRY_LIMIT
        self.last_answer = self.deadline if timeout > 0 else answer_by
        self.cause: BackendUnavailable | None = None  # what the first step of an outage failed with
        self.in_doubt = False

    async def run(self) -> Hold:
        """Ask for the lock, and wait in between, until it is granted."""
        session = self.session
        while True:
            limit = self.sent + self.step_limit
            limit = limit if limit < self.last_answer else self.last_answer  # `min` takes longer
            try:
                answer: Grant | Busy = await session.backend.acquire(
                    self.request, wait=self.timeout > 0, deadline=limit
                )
            except PoolExhausted:  # nothing was sent, and the server is well
                answer = self.busy or UNKNOWN
            except BackendUnavailable as error:
                await self._no_answer(error)
                continue
            except BaseException as error:
                self._note_failure(error)
                raise
            now = session.runtime.now()
            if self.cause is not None:
                self.outage, self.cause = math.inf, None
            if self.answered is not None:
                self.answered()
            if answer.__class__ is Grant:
                if now < self.sent + answer.validity - self.terms.margin:
                    return Hold(self.request, self.terms, answer.token, self.sent, answer.validity, now)
                self._over_on_arrival(now)
            else:
                assert isinstance(answer, Busy)
                pushed = await self._queued(answer, now)
                if pushed is not None:
                    return pushed

    def register(self, hold: Hold) -> None:
        """Put the hold into the table; raise if the client was closed meanwhile."""
        session = self.session
        if events.to_acquired:  # before add: no other thread can end it, and tell of that, first
            waited = hold.since - self.started
            events.tell(events.Acquired, events.to_acquired, session.source, hold, waited)
        session.holds.add(hold)
        if session.closed:  # closing may have looked at the table before the hold was in it
            session.holds.end(hold)
            raise self._closed(hold.since)
        if self.terms.reentrant:
            session.let_enter_again(hold)

    def _over_on_arrival(self, now: float) -> None:
        """The process was stopped, or the answer took too long: ask again, or give up."""
        self.late += 1
        if self.late == TOO_LATE or now >= self.deadline:
            detail = f"its answers take longer than the ttl of {self.request.ttl:g}s"
            raise BackendUnavailable(backend=self.session.backend.name, detail=detail)
        self.sent = now

    async def _queued(self, busy: Busy, now: float) -> Hold | None:
        """Wait until another step may help; return the hold if a push brought it."""
        is_first, self.busy = self.busy is None, busy
        if now >= self.deadline:
            raise self._timed_out(now)
        if is_first:
            events.waiting(self.session.source, self.request)
        until = now + min(patience(self.request.ttl) / 3, max(busy.recheck, SOON))
        pushed = await self._wait(min(until, self.deadline))
        now = self._still_wanted()
        if pushed is not None and self._is_enough(pushed, now - self.sent):
            return Hold(self.request, self.terms, pushed.token, self.sent, pushed.validity, now)
        if now >= self.deadline:
            raise self._timed_out(now)
        self.sent = now
        return None

    async def _wait(self, until: float) -> Grant | None:
        session = self.session
        try:
            return await session.backend.wait(self.request, until)
        except BackendUnavailable as error:
            events.failed(session.source, "wait", error)
            # Pushes do not come through: the next step will tell, but not at once and for ever.
            await session.runtime.sleep(min(OUTAGE_PAUSE, until - session.runtime.now()))
            return None

    def _is_enough(self, pushed: Grant, age: float) -> bool:
        """Whether a pushed grant will do. If not, another step is taken, and gives a whole ttl.

        It may be good for less than the ttl until the first renewal, so it must be renewed at all, and
        there must be time for that.
        """
        terms = self.terms
        return age < (pushed.validity - terms.margin) / 2 and (terms.renew or pushed.validity >= terms.ttl)

    async def _no_answer(self, error: BackendUnavailable) -> None:
        """Let the backend recover before the next step, or give up."""
        self._note_failure(error)
        now = self._still_wanted()  # a step may fail because the client was closed
        # The last error may say no more than that the time was over.
        self.outage, self.cause = min(self.outage, self.sent), self.cause or error
        is_well = self.is_well or self.busy is not None
        if is_well and now >= self.deadline and self._outage_is_brief():
            raise self._timed_out(now) from None
        is_over = now >= self.deadline or now - self.outage >= RIDE_OUT
        if self.timeout == 0 or not error.transient or is_over:
            raise self.cause from self.cause.__cause__
        runtime = self.session.runtime
        await runtime.sleep(min(self.deadline - now, OUTAGE_PAUSE * (0.5 + runtime.jitter())))
        self.sent = self._still_wanted()

    def _note_failure(self, error: BaseException) -> None:
        """A step was not answered, or not as it should be: it may be done nevertheless."""
        self.in_doubt = True
        self.session.cleanups.doubt(self.request)
        if isinstance(error, BackendError):
            events.failed(self.session.source, "acquire", error)

    def _outage_is_brief(self) -> bool:
        """Whether only the last step had no answer, or what was left was too short for one."""
        return self.outage == self.sent or self.deadline - self.outage <= EARLY

    # How it ends without the lock ----------------------------------------------------------

    def _still_wanted(self) -> float:
        """Return the time, unless the client was closed meanwhile."""
        now = self.session.runtime.now()
        if self.session.closed:
            raise self._closed(now)
        return now

    def _closed(self, now: float) -> AcquireCancelled:
        waited = now - self.started
        return AcquireCancelled(name=self.request.name, waited=waited, reason="its client was closed")

    def _timed_out(self, now: float) -> AcquireTimeout:
        name, holder = self.request.name, (self.busy or UNKNOWN).holder
        if holder is not None:
            holder = replace(holder, age=holder.age + now - self.sent)
        dropped = self.session.is_abandoned_on(name, holder)
        return AcquireTimeout(name=name, waited=now - self.started, holder=holder, dropped=dropped)

    async def withdraw(self, error: BaseException, hold: Hold | None) -> None:
        """Leave nothing of it in the backend, and tell that it has ended with an error."""
        session, request = self.session, self.request
        waited = session.runtime.now() - self.started
        try:
            if isinstance(error, BackendUnavailable):
                session.cleanups.add(request, request.ttl)  # no answers: the caller need not wait for that
            elif self.timeout > 0 or not isinstance(error, AcquireTimeout):  # a try leaves nothing
                await session.cleanups.undo(request)
        finally:
            if hold is None:
                events.not_acquired(session.source, request, error, waited, self.timeout)
            elif hold.state is HELD and hold not in session.holds:
                # Interrupted after the grant was told. If it is in the table, whatever ends it will tell.
                held = session.runtime.now() - hold.since
                events.tell(events.Released, events.to_released, session.source, hold, held)
