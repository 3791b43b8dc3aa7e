"""A client in the simulation: a process with a session, and the witness of what it sees.

The witness writes the history. Three things it must learn from inside, because no user sees
them: when a place in the queue was acknowledged (from the answers of the backend), when a
renewal moved a deadline (by looking at the holds after each step of a service), and when a
loss was signalled (by `on_lost`). And one thing no history shows: that the client is never
surer of its lease than the server, even where nobody came to profit from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fencelock.core.hold import HELD, Hold, Terms
from fencelock.core.ports import Busy, Grant, Origin, Request
from fencelock.core.session import Session
from fencelock.lease import LeaseBase
from fencelock.runtime.simulated import Process, SimulatedRuntime, SimulatedService, Task
from fencelock.testing.history import History
from fencelock.testing.recorder import Attempt
from fencelock.testing.simulation.model import Server, SimulatedBackend
from fencelock.testing.simulation.network import Link, Weather
from fencelock.testing.simulation.plan import Visit

__all__ = ["Client"]


class Client:
    """A process with one session."""

    def __init__(
        self,
        process: Process,
        server: Server,
        weather: Weather,
        history: History,
        fail: Callable[[str], None],
    ) -> None:
        self.process = process
        self.world = process.world
        self.name = process.name
        self.history = history
        self.fail = fail
        self.link = Link(process, weather)
        self.runtime = self.make_runtime(process)
        self.backend = SimulatedBackend(server, self.link, self._answered)
        self.session = Session(self.runtime, self.backend, "", Origin(process.name, "sim", 1))
        self.closing = False
        # Closed while things went wrong, or Ctrl-C in the middle of the cleanup that another Ctrl-C
        # or a timeout caused: cleanups may still be pending, and their records expire on the server.
        self.may_leave_cleanups = False
        self.attempts: dict[str, Attempt] = {}  # by owner
        self.lost_at: dict[str, float] = {}
        self.ttls: dict[str, float] = {}  # by request
        self.multi: set[str] = set()  # requests for one of several locks
        self.short: set[str] = set()  # requests for a lease that is not renewed, or not for ever
        self._tickets: dict[str, int] = {}
        self._deadlines: dict[str, float] = {}
        self._granted: dict[str, float] = {}  # when, by owner
        self._dropped: list[tuple[Hold, Callable[[float], None]]] = []

    make_runtime: Callable[[Process], SimulatedRuntime] = staticmethod(SimulatedRuntime)

    def terms(self, visit: Visit, name: str | None = None) -> Terms:
        """Return what a visit asks for."""
        return Terms(
            name=name or visit.name,
            mode=visit.mode,
            limit=visit.limit,
            ttl=visit.ttl,
            timeout=visit.timeout,
            renew=visit.renew,
            max_hold=visit.max_hold,
            reentrant=visit.reentrant,
            metadata=None,
            on_lost=self._on_lost,
        )

    def attempt(self, visit: Visit, name: str | None = None) -> Attempt:
        """Record that an acquire is about to be called."""
        limit = visit.limit if visit.mode == "permit" else None
        attempt = self.history.acquire(self.name, name or visit.name, mode=visit.mode, limit=limit)
        self.ttls[attempt.request] = visit.ttl
        if visit.style == "all":
            self.multi.add(attempt.request)
        if not visit.renew or visit.max_hold != math.inf:
            self.short.add(attempt.request)
        return attempt

    def granted(self, attempt: Attempt, lease: LeaseBase) -> None:
        """Record that acquire returned this lease."""
        # The hold itself is asked: asking the lease takes time where the process is stalled.
        hold = lease._hold
        self.attempts[lease.owner] = attempt
        self._deadlines[lease.owner] = hold.deadline
        self._granted[lease.owner] = self.world.now
        attempt.granted(token=hold.token, deadline=hold.deadline, owner=lease.owner)
        self._check_validity(hold)

    def extended(self, attempt: Attempt, lease: LeaseBase, since: float) -> None:
        """Record that an extension moved the deadline; `since` is from before the decision."""
        deadline = self._deadlines[lease.owner] = lease._hold.deadline
        attempt.extended(deadline, at=since)
        self._check_validity(lease._hold)

    def stepped(self, task: Task) -> None:
        """A service has done something: see which deadlines have moved."""
        # Only the renewer moves them, and its thread may be stalled right after it has.
        service = self.session.renewer.service
        since = service.task.since if isinstance(service, SimulatedService) else task.since
        for hold in self.session.holds.all():
            self._note(hold.request.owner, hold, since)

        self._tell_dropped()

    def dropped(self, hold: Hold, leave: Callable[[float], None]) -> None:
        """A lease is about to be dropped: `leave(at)` then records until when it keeps others out.

        That is its deadline, which moves once more if a renewal is sent before the drop is noticed.
        """
        self._dropped.append((hold, leave))

    def _tell_dropped(self) -> None:
        dropped, self._dropped = self._dropped, []
        for hold, leave in dropped:
            if hold.state is not HELD or (hold.abandoned and hold.due < math.inf):
                leave(hold.deadline)
            else:
                self._dropped.append((hold, leave))

    def look_at(self, lease: LeaseBase) -> None:
        """See whether the lease's deadline has moved; the renewer may be stalled half-way through a batch."""
        service = self.session.renewer.service
        if isinstance(service, SimulatedService):
            self._note(lease.owner, lease._hold, service.task.since)

    def _note(self, owner: str, hold: Hold, since: float) -> None:
        known = self._deadlines.get(owner)
        if known is not None and known != hold.deadline:
            self._deadlines[owner] = hold.deadline
            self.attempts[owner].renewed(hold.deadline, at=max(since, self._granted[owner]))
            self._check_validity(hold)

    def close_session(self, *, in_need: bool = False) -> None:
        """Close the session in the background, as a program does that ends."""
        self.closing = True
        self.may_leave_cleanups = self.may_leave_cleanups or in_need
        self.process.spawn(self._close(), "close")

    async def _close(self) -> None:
        for hold in self.session.holds.all():
            if hold.request.owner in self.attempts:
                self.attempts[hold.request.owner].release()
        await self.session.close()

    def residue(self) -> list[str]:
        """Return what is left though nothing should be."""
        session = self.session
        left: dict[str, object] = {
            "holds": [hold.request for hold in session.holds.all()],
            "cleanups": [one.request for one in session.cleanups.all() if not self.may_leave_cleanups],
            "acquisitions": [one.request for one in list(session.acquiring.values())],
            "entrants": [hold.request for hold in session.reentry.all()],
            "dropped": session.dropped.all(),
            "signals": [owner for owner in self.backend.signals if not self.may_leave_cleanups],
            "tasks": [task.name for task in self.process.tasks],
        }
        return [f"{self.name} still has {what}: {items}" for what, items in left.items() if items]

    def _check_validity(self, hold: Hold) -> None:
        """A client is never sure of a lease for longer than the server keeps it: exclusion rests on this."""
        server = self.backend.server
        if hold.state is not HELD or server.wall_expiry:
            return
        kept = server.kept_until(hold.request, hold.token)
        if kept is None and (server.broken or self.world.now >= hold.deadline):
            return
        if kept is None or kept < hold.deadline:
            self.fail(
                f"validity: {self.name} is sure of {hold.request!r} until {hold.deadline:.6f}, "
                f"but the server keeps it until {kept}"
            )

    def _answered(self, request: Request, answer: Grant | Busy, ticket: int) -> None:
        task = self.world.current
        attempts: dict[str, Attempt] | None = task.note if task is not None else None
        if not attempts or request.name not in attempts:
            return
        attempt = self.attempts[request.owner] = attempts[request.name]
        known = self._tickets.get(request.owner)
        if ticket and ticket != known and (known is not None or isinstance(answer, Busy)):
            self._tickets[request.owner] = ticket
            if known is None:
                attempt.queued(ticket)
            else:
                attempt.requeued(ticket)

    def _on_lost(self, lease: LeaseBase) -> None:
        self.lost_at[lease.owner] = self.world.now
        attempt = self.attempts.get(lease.owner)
        if attempt is None:
            self.fail(f"{self.name}: on_lost for a lease that was never granted: {lease!r}")
        else:
            attempt.lost(lease._hold.reason)
        if lease.is_held():
            self.fail(f"{self.name}: on_lost called for a lease that says it is held: {lease!r}")
