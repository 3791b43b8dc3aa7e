"""A session: what one client has on one backend, and how that begins and ends.

It wires the parts, and callers talk to the part they mean:

    holds       the table of what is held, and how a hold ends          holds.py
    cleanups    records that are to be removed                          cleanup.py
    reentry     who may enter again what it holds                       reentry.py
    dropped     leases that were garbage-collected                      dropped.py
    acquiring   the acquisitions that are under way                     acquire.py

Two services work for a session, started when there is something to do, gone when there is not: the timekeeper
and the renewer, see `renew.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fencelock.core import events
from fencelock.core.background import Background
from fencelock.core.cleanup import Cleanups
from fencelock.core.dropped import DroppedLeases
from fencelock.core.hold import LOST, Hold, Terms
from fencelock.core.holds import Holds, abandoned
from fencelock.core.ports import STEP_LIMIT
from fencelock.core.reentry import Reentry, check_mode
from fencelock.core.renew import keep_time, renew_due
from fencelock.errors import BackendError, ConfigurationError, FencelockError

if TYPE_CHECKING:
    from fencelock.core.acquire import Acquisition
    from fencelock.core.ports import Backend, Origin
    from fencelock.runtime.base import Runtime
    from fencelock.state import Entry

__all__ = ["Session"]

CLOSE_LIMIT = 5.0
"""How long closing waits for those who are still in the middle of something."""

log = logging.getLogger("fencelock")


class Session:
    """What one client has on one backend."""

    def __init__(self, runtime: Runtime, backend: Backend, namespace: str, origin: Origin) -> None:
        self.runtime = runtime
        self.backend = backend
        self.origin = origin
        self.source = events.Source(backend.name, origin.client)
        self.closed = False
        self.last_will: Callable[[Session], None] | None = None  # at the end of the program
        self.retired = False  # its client is garbage, and an abandoned hold has yet to end
        backend.open(runtime, namespace, self._lost_in_backend)
        self._start_empty()

    def _start_empty(self) -> None:
        self.timekeeper = Background(self, "fencelock-timekeeper", keep_time)
        self.renewer = Background(self, "fencelock-renewer", renew_due)
        self.cleanups = Cleanups(self.runtime, self.backend, self.source, self.timekeeper)
        self.reentry = Reentry(self.runtime)
        self.holds = Holds(self.runtime, self.source, self.cleanups, self.reentry, self.timekeeper)
        self.dropped = DroppedLeases(self.holds, self.timekeeper)
        self.acquiring: dict[str, Acquisition] = {}  # by owner

    def check_open(self) -> None:
        """Raise if the client was closed, or is used where it does not belong."""
        self.runtime.check()
        if self.closed:
            raise ConfigurationError("this client is closed: make a new one")

    def is_idle(self) -> bool:
        """Whether there is nothing to do for the services."""
        return not (self.holds or self.cleanups or self.dropped)

    def enter_again(self, terms: Terms) -> Hold | None:
        """Return the hold that this thread or task has on the lock already."""
        self.dropped.collect()
        hold = self.reentry.find(terms.name)
        if hold is None or not self.holds.is_held(hold):
            return None
        check_mode(hold, terms)
        return hold

    def let_enter_again(self, hold: Hold) -> None:
        """Let this thread or task enter again what it has acquired."""
        self.reentry.note(hold)
        if hold not in self.holds:  # it has ended meanwhile, and was not there to be forgotten
            self.reentry.forget(hold)

    def is_abandoned_on(self, name: str, holder: Entry | None) -> bool:
        """Whether a lease that this process has dropped holds the lock."""
        self.dropped.collect()
        return self.holds.abandoned_on(name, holder)

    async def force_release(self, name: str, owner: str | None) -> Sequence[Entry]:
        """Break a lock; return who held it or, if `owner` waited, that waiter."""
        try:
            out = await self.backend.force_release(name, owner, deadline=self.runtime.now() + STEP_LIMIT)
        except BackendError as error:
            events.failed(self.source, "force_release", error)
            raise
        events.broken(self.source, name, out)
        return out

    def _lost_in_backend(self, owner: str, reason: str) -> None:
        self.holds.lose_by_owner(owner, reason)

    # The end ----------------------------------------------------------------------------

    async def close(self) -> None:
        """Release everything, stop the services, close the backend. Idempotent."""
        if self.closed:
            return
        self.closed = self.backend.closing = True
        self.cleanups.repeats = False
        self.backend.wake()
        give_up = self.runtime.now() + CLOSE_LIMIT
        try:
            # A signal handler may close the client in the middle of this very thread's wait, which
            # cannot go on before the handler returns: it is withdrawn here, and nothing waits for it.
            me = self.runtime.current()
            for acquisition in list(self.acquiring.values()):
                if acquisition.caller is me:
                    self.cleanups.add(acquisition.request, acquisition.request.ttl)
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
            self.cleanups.over = True

    def _others_wait(self, me: object) -> bool:
        return any(acquisition.caller is not me for acquisition in list(self.acquiring.values()))

    async def _give_back(self, give_up: float) -> None:
        self.dropped.collect()
        for hold in self.holds.all():
            self.holds.end_unreleased(hold)
        await self.cleanups.finish(give_up)

    def has_handed_out(self) -> bool:
        """Whether a lease that `acquire()` returned is held, and in no block."""
        return not self.closed and any(hold.handed for hold in self.holds.all())

    def retire(self) -> None:
        """The client is garbage, and so are its leases: wait until those that were handed out have ended."""
        self.dropped.collect()
        for hold in self.holds.all():
            if hold.handed:
                self.holds.abandon(hold)
            else:
                self.holds.end_unreleased(hold)
        self.retired = True
        self.timekeeper.notify()

    def forget(self) -> None:
        """The client is gone and was not closed, and its event loop may be gone too."""
        if self.closed:
            return
        self.closed = True
        self.cleanups.repeats = False
        ended = [hold.request for hold in self.holds.all() if self.holds.end(hold)]
        pending = [cleanup.request for cleanup in self.cleanups.all()]
        try:
            self.backend.forget([*ended, *pending])
        except FencelockError as error:
            log.debug("%d locks were not released and will expire: %s", len(ended), error)

    def forked(self) -> None:
        """In a forked child: nothing here is ours. The parent goes on with it."""
        abandoned.clear()
        for hold in self.holds.all():
            hold.state = LOST
            hold.reason = "it belongs to the parent process, this is a forked child"
        self._start_empty()
        self.backend.forked()
