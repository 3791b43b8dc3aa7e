"""Stalls: was this machine able to keep its promises while a check ran?

A lease of half a second is lost if its client gets no processor for that long, and rightly so.
That says nothing of the backend. A thread that wants to wake up every few milliseconds notes
when it could not; a check that failed beside such a stall is repeated, alone and at leisure. So is
one that failed while this machine had several times more to do than it can: a store that runs here
too is late then, though this process is not.
"""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType
from typing import Self

__all__ = ["Stalls"]

TICK = 0.02
WORTH_NOTING = 0.1
"""Seconds of standing still that can make a check fail."""
CROWDED = 4.0
"""As many for each processor want to run, over the last minute, that a check may fail by that."""


class Stalls:
    """Watches for stalls while its block lasts."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._seen: list[tuple[float, float]] = []  # when it ended, how long it was
        self._thread = threading.Thread(target=self._watch, name="conform-stalls", daemon=True)

    def longest(self, since: float) -> float:
        """Return the seconds of the longest stall that ended after `since`, 0 if there was none."""
        return max((length for ended, length in self._seen if ended >= since), default=0.0)

    def is_crowded(self) -> bool:
        """Whether far too many want to run on this machine."""
        return os.getloadavg()[0] >= CROWDED * (os.cpu_count() or 1)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._over.wait(TICK):
            now = time.monotonic()
            if now - before - TICK >= WORTH_NOTING:
                self._seen.append((now, now - before - TICK))
            before = now
