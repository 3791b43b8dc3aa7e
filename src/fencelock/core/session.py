"""A session: what one client holds, owes and waits for, on one backend.

`holds` is the table of leases that are held. Taking an entry out of it is how a hold ends,
and dict.pop is atomic: see `hold.py`. `debts` are requests that may still have a record in
the backend though nobody wants it: a release that failed, an acquire whose reply was lost,
a lease that was garbage. The renewer pays them in the background, until the record must
have expired by itself.

Two services work for a session, started when there is something to do, gone when there
is not: the timekeeper and the renewer, see `renew.py`.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fencelock.core import events
from fencelock.core.hold import DROPPED, HELD, LOST, RELEASED, Hold, Terms
from fencelock.core.ports import Request
from fencelock.core.renew import Background, keep_time, renew_due
from fencelock.errors import BackendError, BackendUnavailable, ConfigurationError, FencelockError

if TYPE_CHECKING:
    from fencelock.core.ports import Backend, Origin
    from fencelock.runtime.base import Runtime
    from fencelock.state import Entry

__all__ = ["STEP_LIMIT", "Debt", "Session"]

STEP_LIMIT = 5.0
"""No single step of a backend takes longer, in seconds."""
UNDO_LIMIT = 1.0
"""How long a caller whose acquire failed waits for the clean-up; then it goes on in the background."""
ECHO = 0.5
"""So many seconds after a debt of doubt was paid it is paid once more."""
CLOSE_LIMIT = 5.0
"""How long closing waits for those who are still in the middle of something."""

log = logging.getLogger("fencelock")

abandoned: set[str] = set()
"""The owner ids of all abandoned holds of this process."""


class Debt:
    """A record that is to be removed, and when it will have vanished by itself.

    `doubtful`: a step that was given up may be done after this was paid, by a server that was slow or by a
    packet that was sent again. So it is paid once more, a little later.
    """

    __slots__ = ("doubtful", "due", "paid", "request", "until")

    def __init__(self, request: Request, due: float, until: float) -> None:
        self.request = request
        self.due = due
        self.until = until
        self.doubtful = self.paid = False


class Session:
    """What one client holds, owes and waits for."""

    def __init__(self, runtime: Runtime, backend: Backend, namespace: str, origin: Origin) -> None:
        self.runtime = runtime
        self.backend = backend
        self.origin = origin
        self.backend_name, self.client = backend.name, origin.client  # for events
        self.closed = False
        self.over = False  # closed, and so is the backend
        self.last_will: Callable[[Session], None] | None = None  # at the end of the program
        self.retired = False  # its client is garbage, and an abandoned hold has yet to end
        backend.open(runtime, namespace, self.lost_in_backend)
        self._empty()

    def _empty(self) -> None:
        self.holds: dict[str, Hold] = {}
        self.debts: dict[str, Debt] = {}
        self.pending: dict[str, tuple[Request, object]] = {}  # and the thread or task that asks
        self.doubts: set[str] = set()  # owners in `pending` of whom a step got no answer
        self.entrants: dict[tuple[object, str], Hold] = {}
        self.dropped: deque[tuple[Hold, str | None]] = deque()
        self.timekeeper = Background(self, "fencelock-timekeeper", keep_time)
        self.renewer = Background(self, "fencelock-renewer", renew_due)

    def check_open(self) -> None:
        """Raise if the client was closed, or is used where it does not belong."""
        self.runtime.check()
        if self.closed:
            raise ConfigurationError("this client is closed: make a new one")

    def request(self, terms: Terms) -> Request:
        """Make a new request for a lock, with an identity of its own."""
        return Request(
            self.runtime.new_id(), terms.name, terms.mode, terms.limit, terms.ttl, self.origin, terms.metadata
        )

    # Holds ------------------------------------------------------------------------------

    def add(self, hold: Hold) -> None:
        """From now on the hold is renewed, and its loss is noticed."""
        self.holds[hold.request.owner] = hold
        self.timekeeper.wake_by(hold.due if hold.due < hold.deadline else hold.deadline)

    def end(self, hold: Hold, *, tell: bool = True) -> bool:
        """Take the hold out of the table as released; `False` if it had ended already."""
        if self.holds.pop(hold.request.owner, None) is None:
            return False
        hold.state = RELEASED
        if hold.entrant is not None:
            self.forget_entrant(hold)
        if hold.abandoned:
            abandoned.discard(hold.request.owner)
        if tell and events.to_released:
            events.tell(events.Released, events.to_released, self, hold, self.runtime.now() - hold.since)
        return True

    def is_held(self, hold: Hold, now: float | None = None) -> bool:
        """Whether the hold is certain, by the local clock. Seeing its end makes it a loss."""
        if hold.state is not HELD:
            return False
        if (self.runtime.now() if now is None else now) < hold.deadline:
            return True
        self.lose(hold, self.why_expired(hold))
        return False

    def expire(self, hold: Hold) -> None:
        """Its deadline has passed: a loss, unless it was abandoned and only waited for that."""
        if not hold.abandoned:
            self.lose(hold, self.why_expired(hold))
        elif self.end(hold):
            self.owe(hold.request, hold.ttl)

    def why_expired(self, hold: Hold) -> str:
        """Tell why the deadline has passed."""
        margin = hold.terms.margin
        early = f", {margin:g}s before the end" if margin else ""
        if hold.deadline >= hold.latest - margin:
            return f"max_hold of {hold.terms.max_hold:g}s is over{early}"
        if not hold.terms.renew:
            return f"its ttl of {hold.ttl:g}s is over and renew is off{early}"
        return f"not renewed within its ttl of {hold.ttl:g}s{early}"

    def lose(self, hold: Hold, reason: str, *, gone: bool = False, wanted: bool = False) -> bool:
        """End the hold as lost, once; `gone` says that the backend has no record of it.

        With `wanted` its holder said so: the work is told to stop, but nothing went wrong.
        """
        if self.holds.pop(hold.request.owner, None) is None:
            return False
        if not gone:
            # First: whoever hears of the loss may close the client. Not before the margin is over.
            self.owe(hold.request, hold.ttl, hold.terms.margin)
        self.mark_lost(hold, reason, wanted=wanted)
        return True

    def mark_lost(self, hold: Hold, reason: str, *, wanted: bool = False) -> None:
        """Tell everyone who wants to know that the hold was lost."""
        hold.reason = reason
        hold.state = LOST
        abandoned.discard(hold.request.owner)
        self.forget_entrant(hold)
        for event in list(hold.__dict__.values()):
            event.set()
        events.log_loss(self, hold, logging.DEBUG if wanted else logging.WARNING)
        if hold.task is not None:
            task = hold.task
            self.runtime.interrupt(task, lambda: hold.take_interrupt(task))
        lease = hold.lease() if hold.lease is not None else None
        if lease is not None and hold.terms.on_lost is not None:
            self.runtime.callback(hold.terms.on_lost, lease)
        # Last: no subscriber delays what the work is told.
        if wanted:
            events.tell(events.Released, events.to_released, self, hold, self.runtime.now() - hold.since)
        else:
            events.lost(self, hold)

    def lost_in_backend(self, owner: str, reason: str) -> None:
        """The backend knows that a lease has ended. May be called on any thread."""
        hold = self.holds.get(owner)
        if hold is not None:
            self.lose(hold, reason, gone=True)

    def event(self, hold: Hold) -> Any:
        """Return the event that is set when the hold is lost."""
        event = hold.__dict__.setdefault("event", self.runtime.event())
        if hold.state is LOST:
            event.set()
        return event

    def share_event(self, hold: Hold, event: Any) -> None:
        """Set `event` as well when the hold is lost: several holds may share one."""
        hold.__dict__[f"shared {len(hold.__dict__)}"] = event
        if hold.state is LOST:
            event.set()

    def drop(self, hold: Hold, place: str | None = None) -> None:
        """A lease was garbage-collected. Called by a destructor: touch nothing but a deque.

        With a `place`, `acquire()` had handed it out, there: what it protects may go on.
        """
        self.dropped.append((hold, place))
        if self.timekeeper.signal is not None:
            self.timekeeper.signal.notify()

    def bury_dropped(self) -> None:
        """Give back what nobody has a lease for any more."""
        while self.dropped:
            try:
                hold, place = self.dropped.popleft()
            except IndexError:
                return  # another thread has buried the last: the timekeeper's, or one that closes the client
            hold.depth -= 1
            if hold.depth > 0:
                continue
            if place is not None:
                self.abandon(hold, place)
            elif self.end(hold):
                self.owe(hold.request, hold.ttl)
                log.debug("lease on %r was garbage-collected: released", hold.request.name)

    def abandon(self, hold: Hold, place: str = "") -> None:
        """Renew it no longer, and let it end with its ttl: its holder may be at work without knowing."""
        if hold.request.owner not in self.holds or hold.abandoned:
            return
        hold.abandoned = True
        self.forget_entrant(hold)
        abandoned.add(hold.request.owner)
        self.timekeeper.wake_by(hold.deadline)
        log.warning("%s%s", DROPPED % hold.request.name, place)

    def abandoned_on(self, name: str, holder: Entry | None) -> bool:
        """Whether a lease that this process has dropped holds the lock."""
        self.bury_dropped()
        if not abandoned:
            return False  # there may be many holds, and many tries
        if holder is not None and holder.owner in abandoned:
            return True
        return any(hold.abandoned and hold.request.name == name for hold in list(self.holds.values()))

    # Reentrancy -------------------------------------------------------------------------

    def enter_again(self, terms: Terms) -> Hold | None:
        """Return the hold that this thread or task has on the lock already."""
        self.bury_dropped()
        hold = self.entrants.get((self.runtime.current(), terms.name))
        if hold is None or not self.is_held(hold):
            return None
        if hold.request.mode not in {terms.mode, "exclusive"}:
            raise ConfigurationError(
                f"lock {terms.name!r} is held in mode {hold.request.mode!r} here and cannot be entered again "
                f"as {terms.mode!r}: it would wait for itself, release it first"
            )
        return hold

    def note_entrant(self, hold: Hold) -> None:
        """Let this thread or task enter again."""
        hold.entrant = (self.runtime.current(), hold.request.name)
        self.entrants[hold.entrant] = hold
        if hold.request.owner not in self.holds:  # it has ended meanwhile, and was not here to be forgotten
            self.forget_entrant(hold)

    def forget_entrant(self, hold: Hold) -> None:
        """Nobody may enter again."""
        if hold.entrant is not None and self.entrants.get(hold.entrant) is hold:
            del self.entrants[hold.entrant]

    # Debts ------------------------------------------------------------------------------

    def owe(self, request: Request, ttl: float, due_in: float = 0.0) -> Debt:
        """The backend may have a record of this request that nobody wants."""
        now = self.runtime.now()
        debt = self.debts.setdefault(request.owner, Debt(request, now + due_in, now + max(ttl, 5.0)))
        debt.doubtful = debt.doubtful or request.owner in self.doubts
        self.timekeeper.wake_by(debt.due)
        return debt

    async def pay(self, debt: Debt, limit: float = STEP_LIMIT) -> None:
        """Remove the record, or raise; a debt that is paid is forgotten."""
        now = self.runtime.now()
        debt.due = math.inf  # being paid: the renewer need not
        try:
            await self.backend.abandon(debt.request, deadline=now + limit)
        except BackendError as error:
            events.failed(self, "abandon", error)
            now = self.runtime.now()
            debt.due = now + min(1.0, debt.request.ttl / 3)
            if debt.until <= now:
                self.debts.pop(debt.request.owner, None)  # it has expired by itself
            else:
                self.timekeeper.wake_by(debt.due)
            raise
        except FencelockError:
            self.debts.pop(debt.request.owner, None)  # it cannot be used at all: nothing was left there
            raise
        except BaseException:
            debt.due = self.runtime.now()
            self.timekeeper.wake_by(debt.due)
            raise
        if debt.doubtful and not debt.paid and not self.closed:
            debt.paid = True
            debt.due = self.runtime.now() + ECHO
            self.timekeeper.wake_by(debt.due)
        else:
            self.debts.pop(debt.request.owner, None)

    async def undo(self, *requests: Request, limit: float = UNDO_LIMIT) -> None:
        """Leave nothing of requests that failed. Does not raise: what fails stays a debt."""
        if self.over:
            return  # closing has withdrawn them
        # Paid here and now; the renewer sees to it only if this is interrupted.
        debts = [self.owe(request, request.ttl, limit) for request in requests]
        await self.runtime.finish(self._pay_all(debts, limit))

    async def _pay_all(self, debts: Sequence[Debt], limit: float) -> None:
        give_up = self.runtime.now() + limit
        for debt in debts:
            try:
                await self.pay(debt, give_up - self.runtime.now())
            except FencelockError as error:
                log.debug("clean-up of %r failed and will be tried again: %s", debt.request, error)
                return

    async def force_release(self, name: str, owner: str | None) -> Sequence[Entry]:
        """Break a lock; return who held it or, if `owner` waited, that waiter."""
        try:
            out = await self.backend.force_release(name, owner, deadline=self.runtime.now() + STEP_LIMIT)
        except BackendError as error:
            events.failed(self, "force_release", error)
            raise
        events.broken(self, name, out)
        return out

    # The end ----------------------------------------------------------------------------

    async def close(self) -> None:
        """Release everything, stop the services, close the backend. Idempotent."""
        if self.closed:
            return
        self.closed = self.backend.closing = True
        self.backend.wake()
        give_up = self.runtime.now() + CLOSE_LIMIT
        try:
            # A signal handler may close the client in the middle of this very thread's wait, which
            # cannot go on before the handler returns: it is withdrawn here, and nothing waits for it.
            me = self.runtime.current()
            for request, caller in list(self.pending.values()):
                if caller is me:
                    self.owe(request, request.ttl)
            await self._give_back(give_up)
            while self._others_wait(me) and self.runtime.now() < give_up:
                await self.runtime.sleep(0.01)
            await self.timekeeper.stop(give_up - self.runtime.now())
            await self.renewer.stop(give_up - self.runtime.now())
        except (KeyboardInterrupt, SystemExit):
            await self._give_back(give_up)  # one signal does not leave what was yet to be released
            raise
        finally:
            await self.backend.close()
            self.over = True

    def _others_wait(self, me: object) -> bool:
        return any(caller is not me for _, caller in list(self.pending.values()))

    async def _give_back(self, give_up: float) -> None:
        self.bury_dropped()
        for hold in list(self.holds.values()):
            if self.end(hold):
                self.owe(hold.request, hold.ttl)
        for debt in list(self.debts.values()):
            if self.runtime.now() >= give_up:
                log.warning("closing: %d locks could not be released and will expire", len(self.debts))
                return
            try:
                await self.pay(debt)
            except BackendUnavailable:
                return
            except FencelockError as error:
                log.debug("closing: %s", error)

    def has_handed_out(self) -> bool:
        """Whether a lease that `acquire()` returned is held, and in no block."""
        return not self.closed and any(hold.handed for hold in list(self.holds.values()))

    def retire(self) -> None:
        """The client is garbage, and so are its leases: wait until those that were handed out have ended."""
        self.bury_dropped()
        for hold in list(self.holds.values()):
            if hold.handed:
                self.abandon(hold)
            elif self.end(hold):
                self.owe(hold.request, hold.ttl)
        self.retired = True
        self.timekeeper.notify()

    def forget(self) -> None:
        """The client is gone and was not closed, and its event loop may be gone too."""
        if self.closed:
            return
        self.closed = True
        ended = [hold.request for hold in list(self.holds.values()) if self.end(hold)]
        owed = [debt.request for debt in list(self.debts.values())]
        try:
            self.backend.forget([*ended, *owed])
        except FencelockError as error:
            log.debug("%d locks were not released and will expire: %s", len(ended), error)

    def forked(self) -> None:
        """In a forked child: nothing here is ours. The parent goes on with it."""
        abandoned.clear()
        for hold in list(self.holds.values()):
            hold.state = LOST
            hold.reason = "it belongs to the parent process, this is a forked child"
        self._empty()
        self.backend.forked()
