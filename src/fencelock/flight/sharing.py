"""One flight for all callers of a key in this process: one leads, the others follow.

Whoever begins a flight leads it: stands in the lock's queue, looks again, computes. Those who come meanwhile
wait for its end, and get what it got. So a process has one waiter in the queue, however many callers it has.

    ended with a record     everybody has it
    ended with an error     everybody gets it, wrapped in `Raised` if it was the computation's
    ended without either    (its leader gave up, or was interrupted) followers begin another

Among threads the leader flies on its own thread. Among tasks the flight is a task of its own: it goes on
while anybody waits for it, whoever has begun it, and is cancelled when nobody does.
"""

from __future__ import annotations

import asyncio
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from fencelock.errors import AcquireTimeout, ConfigurationError
from fencelock.flight.records import Kept, lock_name
from fencelock.runtime import locks

__all__ = ["Flights", "Raised", "Shared", "SharedByTasks", "SharedByThreads"]

Work = Coroutine[Any, Any, Kept]


class Raised(Exception):
    """A computation raised `error`: none of ours."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Shared(ABC):
    """A flight that others may join."""

    def __init__(self, key: str, flights: Flights) -> None:
        self.key = key
        self._flights = flights

    @abstractmethod
    async def lead(self, work: Work) -> Kept | None:
        """Fly, and return where it ended; `None` if another is under way, or it was called off."""

    @abstractmethod
    async def follow(self, seconds: float) -> Kept | None:
        """Wait for its end; `None` if it ended without one. Raises `AcquireTimeout`."""

    def _for_itself(self) -> ConfigurationError:
        return ConfigurationError(f"what computes {self.key!r} asks for it itself: it would wait for ever")

    def _too_long(self, seconds: float) -> AcquireTimeout:
        return AcquireTimeout(name=lock_name(self.key), waited=max(0.0, seconds))


class Flights:
    """The flights of one process, by key."""

    def __init__(self, kind: type[Shared]) -> None:
        self._kind = kind
        self._lock = locks.lock()
        self._under_way: dict[str, Shared] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self.is_off = False
        """They are being cancelled by whoever closes."""

    def find(self, key: str) -> Shared | None:
        """Return the flight that is under way."""
        return self._under_way.get(key)

    def make(self, key: str) -> Shared:
        """Return a new flight, to be led."""
        return self._kind(key, self)

    def add(self, flight: Shared) -> bool:
        """Let others join a flight, unless one is under way; say whether they may."""
        with self._lock:
            return self._under_way.setdefault(flight.key, flight) is flight

    def over(self, flight: Shared) -> None:
        """Nobody joins this flight any more."""
        with self._lock:
            if self._under_way.get(flight.key) is flight:
                del self._under_way[flight.key]

    def detach(self, key: str) -> None:
        """Whoever comes from now on begins another: what this one computes may be too old for them."""
        with self._lock:
            self._under_way.pop(key, None)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Keep a task until it ends: the loop has only a weak reference to it."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class SharedByThreads(Shared):
    """Threads wait for an event."""

    def __init__(self, key: str, flights: Flights) -> None:
        super().__init__(key, flights)
        self._ended = threading.Event()
        self._leader = threading.current_thread()
        self._kept: Kept | None = None
        self._error: Exception | None = None

    async def lead(self, work: Work) -> Kept | None:
        try:  # from here on an interrupt leaves nobody waiting for a flight without a leader
            if not self._flights.add(self):
                work.close()
                return None
            self._kept = await work
            return self._kept
        except AcquireTimeout:
            raise  # its own patience is at an end, not that of the others
        except Exception as error:
            self._error = error
            raise
        finally:
            self._flights.over(self)
            self._ended.set()

    async def follow(self, seconds: float) -> Kept | None:
        if self._leader is threading.current_thread():
            raise self._for_itself()
        if not self._ended.wait(min(max(0.0, seconds), threading.TIMEOUT_MAX)):
            raise self._too_long(seconds)
        if self._error is not None:
            raise self._error
        return self._kept


class SharedByTasks(Shared):
    """Tasks wait for a task."""

    def __init__(self, key: str, flights: Flights) -> None:
        super().__init__(key, flights)
        self._task: asyncio.Task[Kept] | None = None
        self._callers = 0

    async def lead(self, work: Work) -> Kept | None:
        if not self._flights.add(self):
            work.close()
            return None
        self._task = asyncio.get_running_loop().create_task(work, name=f"fencelock-flight {self.key}")
        self._task.add_done_callback(self._done)
        self._flights.keep(self._task)
        await self._wait(math.inf)
        if self._task.cancelled():
            if self._flights.is_off:
                return None
            raise asyncio.CancelledError  # the computation raised it
        return self._task.result()

    async def follow(self, seconds: float) -> Kept | None:
        assert self._task is not None
        if self._task is asyncio.current_task():
            raise self._for_itself()
        await self._wait(seconds)
        if not self._task.done():
            raise self._too_long(seconds)
        if self._task.cancelled() or isinstance(self._task.exception(), AcquireTimeout):
            return None
        return self._task.result()

    async def _wait(self, seconds: float) -> None:
        assert self._task is not None
        self._callers += 1
        try:
            await asyncio.wait({self._task}, timeout=None if math.isinf(seconds) else max(0.0, seconds))
        finally:
            self._callers -= 1
            if not self._callers and not self._task.done():
                self._flights.over(self)
                self._task.cancel()

    def _done(self, task: asyncio.Task[Kept]) -> None:
        self._flights.over(self)
        if not task.cancelled():
            task.exception()  # seen: perhaps nobody waits for it any more
