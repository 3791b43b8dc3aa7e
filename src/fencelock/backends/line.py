"""A line of threads for something of which there is not enough: first come, first served.

Whoever gives something back calls the first in line, and if it wants it again it stands behind the others.
With a condition variable it would have it again before the one that was called has woken, every time: some
threads do all the work, and others none until their time is over.

A place in line lasts as long as its thread refers to it, so an interrupt at any point leaves nobody in the
way. Nobody relies on being called: each looks for itself now and then.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from fencelock.runtime import clock

__all__ = ["Line", "Turn"]

T = TypeVar("T")
LOOK_AGAIN = 0.05
"""Seconds. What was left by an interrupt is announced by nobody."""


class Turn:
    """A thread's place in line."""

    __slots__ = ("__weakref__", "signal", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.signal = threading.Lock()
        self.signal.acquire()

    def call(self) -> None:
        with suppress(RuntimeError):  # it was called already
            self.signal.release()


class Line:
    """Threads that wait."""

    def __init__(self) -> None:
        self._turns: deque[weakref.ref[Turn]] = deque()

    def __len__(self) -> int:
        return len(self._turns)

    def wait(self, find: Callable[[], T], deadline: float) -> T | None:
        """Return what `find` finds once it is this thread's turn; `None` if it finds nothing in time."""
        turn = Turn()
        try:
            return self.stand(turn, find, deadline)
        finally:
            self.leave(turn)

    def stand(self, turn: Turn, find: Callable[[], T], deadline: float) -> T | None:
        """As `wait`, and keep the first place until `leave`: nobody behind it finds anything meanwhile."""
        self._turns.append(weakref.ref(turn))
        while True:
            first = self._first()
            # Of one thread two may stand there: a signal's handler may want something, too.
            if first is turn or first is None or first.thread == turn.thread:
                found = find()
                if found is not None:
                    return found
            left = deadline - clock.now()
            if left <= 0:
                return None
            turn.signal.acquire(timeout=min(left, LOOK_AGAIN))

    def leave(self, turn: Turn) -> None:
        """Give up a place, if it has one, and let the next one look."""
        with suppress(ValueError):
            self._turns.remove(weakref.ref(turn))
        self.call()

    def step_aside(self) -> None:
        """In a signal handler: what it has interrupted in this thread must not hold up those behind it."""
        me = threading.get_ident()
        for turn in [one() for one in list(self._turns)]:
            if turn is not None and turn.thread == me:
                self.leave(turn)

    def call(self) -> None:
        """Let the first look: something may be there for it."""
        if self._turns and (first := self._first()) is not None:
            first.call()

    def _first(self) -> Turn | None:
        while self._turns:
            with suppress(IndexError):
                first = self._turns[0]
                turn = first()
                if turn is not None:
                    return turn
                with suppress(ValueError):
                    self._turns.remove(first)
        return None
