"""Cleanups: requests that may still have a record in the backend, though the client wants none.

A release that failed, an acquire whose reply was lost and a lease that was garbage leave such a record. Its
cleanup is *pending* until the backend has answered `abandon`, or the record must have expired by itself. The
renewer runs what is due in the background; `undo` runs a cleanup here and now, for a caller that waits for it
a moment.

A request is *in doubt* if one of its steps got no answer: a slow server, or a packet that was sent again, may
do that step after the cleanup. So such a cleanup runs a second time, a little later.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencelock.core import events
from fencelock.core.ports import STEP_LIMIT
from fencelock.errors import BackendError, BackendUnavailable, FencelockError

if TYPE_CHECKING:
    from fencelock.core.background import Background
    from fencelock.core.ports import Backend, Request
    from fencelock.runtime.base import Runtime

__all__ = ["ECHO", "UNDO_LIMIT", "Cleanup", "Cleanups"]

UNDO_LIMIT = 1.0
"""How long a caller whose acquire failed waits for the cleanup; then it goes on in the background."""
ECHO = 0.5
"""A cleanup in doubt runs a second time after so many seconds."""

log = logging.getLogger("fencelock")


class Cleanup:
    """A record to remove, when to try, and when it will have expired by itself."""

    __slots__ = ("due", "in_doubt", "request", "until", "was_answered")

    def __init__(self, request: Request, due: float, until: float) -> None:
        self.request = request
        self.due = due
        self.until = until
        self.in_doubt = False
        self.was_answered = False  # and is pending because it was in doubt


class Cleanups:
    """The pending cleanups of one client."""

    def __init__(
        self, runtime: Runtime, backend: Backend, source: events.Source, timekeeper: Background
    ) -> None:
        self._runtime = runtime
        self._backend = backend
        self._source = source
        self._timekeeper = timekeeper
        self._pending: dict[str, Cleanup] = {}  # by owner
        self._doubts: set[str] = set()  # owners of requests that are in doubt
        self.repeats = True
        """Whether cleanups in doubt run a second time: not while the client is closed."""
        self.over = False
        """The client is closed, and so is the backend."""

    def __len__(self) -> int:
        return len(self._pending)

    def all(self) -> list[Cleanup]:
        """Return the pending cleanups."""
        return list(self._pending.values())

    def due(self, now: float) -> list[Cleanup]:
        """Return those that are due."""
        return [cleanup for cleanup in self.all() if cleanup.due <= now]

    def get(self, request: Request) -> Cleanup | None:
        """Return the pending cleanup of a request."""
        return self._pending.get(request.owner)

    def doubt(self, request: Request) -> None:
        """A step of this request got no answer, or an odd one: it may be done nevertheless."""
        self._doubts.add(request.owner)

    def end_doubt(self, request: Request) -> None:
        """The acquire is over: what it left has a cleanup that knows of the doubt."""
        self._doubts.discard(request.owner)

    def add(self, request: Request, ttl: float, due_in: float = 0.0) -> Cleanup:
        """The backend may have a record of this request that is not wanted."""
        now = self._runtime.now()
        owner = request.owner
        cleanup = self._pending.setdefault(owner, Cleanup(request, now + due_in, now + max(ttl, 5.0)))
        cleanup.in_doubt = cleanup.in_doubt or owner in self._doubts
        self._timekeeper.wake_by(cleanup.due)
        return cleanup

    async def run(self, cleanup: Cleanup, limit: float = STEP_LIMIT) -> None:
        """Remove the record, or raise."""
        now = self._runtime.now()
        cleanup.due = math.inf  # under way: the renewer need not
        try:
            await self._backend.abandon(cleanup.request, deadline=now + limit)
        except BackendError as error:
            events.failed(self._source, "abandon", error)
            self._retry(cleanup)
            raise
        except FencelockError:
            # The backend cannot be used at all: nothing was left there.
            self._pending.pop(cleanup.request.owner, None)
            raise
        except BaseException:
            self._delay(cleanup, 0.0)
            raise
        if cleanup.in_doubt and not cleanup.was_answered and self.repeats:
            cleanup.was_answered = True
            self._delay(cleanup, ECHO)
        else:
            self._pending.pop(cleanup.request.owner, None)

    def _retry(self, cleanup: Cleanup) -> None:
        now = self._runtime.now()
        cleanup.due = now + min(1.0, cleanup.request.ttl / 3)
        if cleanup.until <= now:
            self._pending.pop(cleanup.request.owner, None)  # the record has expired by itself
        else:
            self._timekeeper.wake_by(cleanup.due)

    def _delay(self, cleanup: Cleanup, seconds: float) -> None:
        cleanup.due = self._runtime.now() + seconds
        self._timekeeper.wake_by(cleanup.due)

    async def run_due(self, due: Sequence[Cleanup], now: float) -> None:
        """Run those that were due at `now`, until the backend does not answer."""
        for cleanup in due:
            if cleanup.due > now:
                continue  # another thread or task has begun to run it meanwhile
            try:
                await self.run(cleanup)
            except BackendUnavailable:
                break
            except FencelockError as error:
                log.debug("cleanup of %r failed: %s", cleanup.request, error)

    async def undo(self, *requests: Request, limit: float = UNDO_LIMIT) -> None:
        """Leave nothing of requests that failed. Does not raise: a cleanup that fails stays pending."""
        if self.over:
            return  # closing has withdrawn them
        # They run here and now; the renewer sees to them only if this is interrupted.
        cleanups = [self.add(request, request.ttl, limit) for request in requests]
        await self._runtime.finish(self._run_all(cleanups, limit))

    async def _run_all(self, cleanups: Sequence[Cleanup], limit: float) -> None:
        give_up = self._runtime.now() + limit
        for cleanup in cleanups:
            try:
                await self.run(cleanup, give_up - self._runtime.now())
            except FencelockError as error:
                log.debug("cleanup of %r failed and will be tried again: %s", cleanup.request, error)
                return

    async def finish(self, give_up: float) -> None:
        """The client is being closed: run all, once, until `give_up` or until the backend does not answer."""
        for cleanup in self.all():
            if self._runtime.now() >= give_up:
                log.warning("closing: %d locks could not be released and will expire", len(self))
                return
            try:
                await self.run(cleanup)
            except BackendUnavailable:
                return
            except FencelockError as error:
                log.debug("closing: %s", error)
