"""A service that runs in the background while there is something to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencelock.core.session import Session
    from fencelock.runtime.base import Service, Signal

__all__ = ["LINGER", "Background"]

LINGER = 5.0
"""An idle service looks around this often, and goes when it has found nothing for so long."""


class Background:
    """A service that is started when needed and ends when idle, and never runs twice.

    `licence` holds one item while the service does not run; taking it is the right to start
    it. The service puts it back *before* it looks for the last time, and a caller that adds work
    looks for the licence *after* adding: one of them sees the other.
    """

    def __init__(
        self, session: Session, name: str, body: Callable[[Session], Coroutine[Any, Any, bool]]
    ) -> None:
        self.session = session
        self.name = name
        self.body = body
        self.licence = [None]
        self.signal: Signal | None = None
        self.service: Service | None = None
        self.wake_at = math.inf
        self.wanted_at = math.inf
        """For when it was last woken."""

    def wake_by(self, when: float) -> None:
        """See to it that the service looks around at `when` or before. Cheap when it will anyway."""
        if self.licence:
            self._start()
        elif when < self.wake_at:
            self.wanted_at = when
            self.notify()

    def notify(self) -> None:
        """See to it that the service looks around now."""
        if self.licence:
            self._start()
        elif self.signal is not None:
            self.signal.notify()

    def _start(self) -> None:
        if self.session.closed:
            return
        signal = self.session.runtime.signal()
        try:
            self.licence.pop()
        except IndexError:
            self.notify()
            return
        try:
            self.wake_at = -math.inf  # it is about to look
            self.signal = signal
            self.service = self.session.runtime.spawn(self._run(), self.name)
        except BaseException:
            self.licence.append(None)  # it did not start: another caller may
            raise

    async def _run(self) -> None:
        idle = math.inf  # since when there has been nothing to do
        while True:
            # A hold that is added from here on finds wake_at in the future and says so: the
            # signal is remembered, and the wait below returns at once.
            self.wake_at = math.inf
            try:
                busy = await self.body(self.session)
            except BaseException:
                self.licence.append(None)
                raise
            now = self.session.runtime.now()
            idle = math.inf if busy else min(idle, now)
            if (now - idle >= LINGER or self.session.closed) and self._may_end():
                return

    def _may_end(self) -> bool:
        self.licence.append(None)
        if self.session.closed or self.session.is_idle():
            return True
        try:
            self.licence.pop()
        except IndexError:
            return True  # another caller started one meanwhile
        return False

    async def rest(self, until: float) -> None:
        """Sleep until then, or until notified."""
        assert self.signal is not None
        self.wake_at = until
        await self.signal.wait(until - self.session.runtime.now())

    async def stop(self, seconds: float) -> None:
        """Let the service end, the session being closed."""
        service = self.service
        if service is not None:
            if self.signal is not None:
                self.signal.notify()
            await service.join(seconds)
