"""Taking turns for something of which there is not enough: first come, first served.

Giving something back calls the first in line. A thread that wants it again stands behind the others: with a
condition variable it would take it again before the one that was called has woken, every time.

A place in line lasts as long as its thread or task refers to it, so an interrupt leaves nothing in the way. A
call may be lost with the thread that was to make it; so the first in line looks by itself now and then.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from fencelock.runtime import clock
from fencelock.runtime.base import Runtime

__all__ = ["Turns"]

T = TypeVar("T")
FIRST, OTHERS = 0.05, 0.5
"""Seconds after which the first in line, and the others, look without having been called."""


class Turn:
    """A place in line."""

    __slots__ = ("__weakref__", "signal", "whose")

    def __init__(self, runtime: Runtime) -> None:
        self.whose = runtime.current()
        self.signal = runtime.signal()


class Turns:
    """A line of threads, or of tasks."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.line: deque[weakref.ref[Turn]] = deque()

    async def wait(self, find: Callable[[], T | None], deadline: float) -> T:
        """Return what `find` finds once it is the caller's turn, or raise `TimeoutError`."""
        turn = Turn(self._runtime)
        place = weakref.ref(turn)
        self.line.append(place)
        try:
            while True:
                is_first = self._is_first(turn)
                if is_first and (found := find()) is not None:
                    return found
                left = deadline - clock.now()
                if left <= 0:
                    raise TimeoutError("no connection is free in time")
                await turn.signal.wait(min(left, FIRST if is_first else OTHERS))
        finally:
            with suppress(ValueError):
                self.line.remove(place)
            self.call()

    def call(self) -> None:
        """Let the first in line look: something may be there for it."""
        if self.line and (first := self._first()) is not None:
            first.signal.notify()

    def _is_first(self, turn: Turn) -> bool:
        first = self._first()
        # Of one thread two may stand there: a signal's handler may want something, too.
        return first is None or first is turn or first.whose is turn.whose

    def _first(self) -> Turn | None:
        while self.line:
            with suppress(IndexError):
                place = self.line[0]
                turn = place()
                if turn is not None:
                    return turn
                with suppress(ValueError):
                    self.line.remove(place)
        return None
