"""Taking turns inside a client, for a step that all its requests need but one should take.

Under asyncio that is a lock. For threads it is one that cannot be lost: Python may interrupt a thread between
two instructions, also right after it took a lock and before it knows, and nobody would ever give that back.
So whoever has the turn has it until its own deadline, by which its step must be over. Who finds it taken by
somebody whose deadline is past, and unchanged for a second, ends it.

Not promised: that a turn is never shared. Whoever oversleeps its deadline may meet another.
"""

from __future__ import annotations

import asyncio
import threading
from math import inf
from types import TracebackType
from typing import Protocol

from holdfast.runtime import clock

__all__ = ["Mutex", "mutex"]

GRACE = 1.0
"""Seconds for which nothing may change before a turn counts as lost: who takes it says so a moment later."""
LOOK = 0.25


class Mutex(Protocol):
    """One at a time, thread or task; waiting for it ends in time."""

    def until(self, deadline: float) -> Mutex: ...
    async def __aenter__(self) -> None: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Turn:
    """Somebody's turn, and by when it is over."""

    __slots__ = ("deadline",)

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline


class Own(threading.local):
    """The turn that a thread has, or wants."""

    turn = Turn(-inf)


class ThreadMutex:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn = Turn(-inf)
        self._own = Own()

    def until(self, deadline: float) -> ThreadMutex:
        self._own.turn = Turn(deadline)
        return self

    async def __aenter__(self) -> None:
        own = self._own.turn
        seen, since = self._turn, clock.now()
        while not self._lock.acquire(timeout=max(0.0, min(LOOK, own.deadline - clock.now()))):
            now = clock.now()
            if self._turn is not seen:
                seen, since = self._turn, now
            elif now > max(seen.deadline, since + GRACE):
                self._end(seen)
            if now >= own.deadline:
                raise TimeoutError
        self._turn = own

    async def __aexit__(self, *_: object) -> None:
        self._end(self._own.turn)

    def _end(self, turn: Turn) -> None:
        """Let the next one in, if this is the turn that is taken; it may have been ended for its holder."""
        if self._turn is turn:
            self._turn = Turn(-inf)  # nobody's, and another than the last one that was
            try:
                self._lock.release()
            except RuntimeError:
                return  # somebody else did, in this moment


class TaskMutex:
    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._at = 0.0

    def until(self, deadline: float) -> TaskMutex:
        self._at = deadline  # read before anybody else runs
        return self

    async def __aenter__(self) -> None:
        async with asyncio.timeout(max(0.0, self._at - clock.now())):
            await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


def mutex(flavour: str) -> Mutex:
    """Return a mutex for threads, or for the tasks of one loop."""
    return ThreadMutex() if flavour == "blocking" else TaskMutex()
