"""Leases that were garbage-collected while they were held.

A destructor runs in the middle of anything, of a step on the very same table too. So it only notes the hold
here; the timekeeper ends it, or the next call that looks.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencelock.core.background import Background
    from fencelock.core.hold import Hold
    from fencelock.core.holds import Holds

__all__ = ["DroppedLeases"]

log = logging.getLogger("fencelock")


class DroppedLeases:
    """The holds of leases that were dropped and have not been looked at yet."""

    def __init__(self, holds: Holds, timekeeper: Background) -> None:
        self._holds = holds
        self._timekeeper = timekeeper
        self._waiting: deque[tuple[Hold, str | None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def all(self) -> list[tuple[Hold, str | None]]:
        """Return the holds, each with its place."""
        return list(self._waiting)

    def add(self, hold: Hold, place: str | None = None) -> None:
        """A lease was garbage-collected. Called by a destructor: touch nothing but a deque.

        With a `place`, `acquire()` had handed it out, there: what it protects may go on.
        """
        self._waiting.append((hold, place))
        if self._timekeeper.signal is not None:
            self._timekeeper.signal.notify()

    def collect(self) -> None:
        """End each hold whose last lease was dropped; abandon it if `acquire()` had handed it out."""
        while self._waiting:
            try:
                hold, place = self._waiting.popleft()
            except IndexError:
                return  # another thread took the last: the timekeeper's, or one that closes the client
            hold.depth -= 1
            if hold.depth > 0:
                continue
            if place is not None:
                self._holds.abandon(hold, place)
            elif self._holds.end_unreleased(hold):
                log.debug("lease on %r was garbage-collected: released", hold.request.name)
