"""How the lanes of a client run: on threads, or as tasks."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from fencelock.runtime.blocking import run

__all__ = ["Asyncio", "Blocking", "Way"]

Lane = Callable[[int], Coroutine[Any, Any, None]]
End = Callable[[], Coroutine[Any, Any, None]]


class Way:
    """What a lane needs of its surroundings."""

    sockets = 0
    """How many it has for itself."""

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call one of the subject's functions."""
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        raise NotImplementedError

    def cancel_one(self) -> bool:
        """Cancel some lane, wherever it stands, if that can be done; called from another thread."""
        return False

    def run(self, lane: Lane, count: int, end: End) -> None:
        """Run so many lanes until they end, and then `end`."""
        raise NotImplementedError


class Blocking(Way):
    """A thread for each lane."""

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def run(self, lane: Lane, count: int, end: End) -> None:
        threads = [threading.Thread(target=lambda n=n: run(lane(n))) for n in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run(end())


class Asyncio(Way):
    """A task for each lane."""

    sockets = 2

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return await function(*args)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def cancel_one(self) -> bool:
        if not self._tasks or self._loop is None:
            return False
        self._loop.call_soon_threadsafe(random.choice(self._tasks).cancel)
        return True

    def run(self, lane: Lane, count: int, end: End) -> None:
        asyncio.run(self._all(lane, count, end))

    async def _all(self, lane: Lane, count: int, end: End) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = [asyncio.create_task(lane(number)) for number in range(count)]
        await asyncio.wait(self._tasks)
        for task in self._tasks:
            if not task.cancelled() and task.exception() is not None:
                await task
        self._tasks = []
        await end()
