"""Taking turns inside a client, for a step that all its requests need but one should take.

Under asyncio that is a lock. For threads it is the first place in a line, which is one's own for as long as
one refers to it: Python may interrupt a thread right after it took a lock and before it knows, or when it is
about to give it back, and nobody ever would. Whoever is interrupted there is out of the way with its frame.

Not promised: that a turn is never shared. A signal's handler that comes in the middle of one has its own.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol

from fencelock.backends.line import Line, Turn
from fencelock.runtime import clock

__all__ = ["Mutex", "mutex"]


class Mutex(Protocol):
    """One at a time, thread or task; waiting for it ends in time."""

    def until(self, deadline: float) -> AbstractAsyncContextManager[None]:
        """Have one's turn for the block; `TimeoutError` if it does not come in time."""


class ThreadTurn(Turn):
    """A thread's turn, from when it wants one."""

    __slots__ = ("_deadline", "_line")

    def __init__(self, line: Line, deadline: float) -> None:
        super().__init__()
        self._line = line
        self._deadline = deadline

    async def __aenter__(self) -> None:
        try:
            if not self._line.stand(self, lambda: True, self._deadline):
                raise TimeoutError
        except BaseException:
            self._line.leave(self)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.leave(self)


class ThreadMutex:
    """For threads."""

    def __init__(self) -> None:
        self._line = Line()

    def until(self, deadline: float) -> ThreadTurn:
        return ThreadTurn(self._line, deadline)


class TaskMutex:
    """For the tasks of one loop."""

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
