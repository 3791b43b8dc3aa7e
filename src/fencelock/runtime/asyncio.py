"""The asyncio runtime: services are tasks, drivers without an async form run on one thread.

It belongs to the loop it was first used on. A forked child starts anew.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fencelock.errors import ConfigurationError
from fencelock.runtime import clock, ids
from fencelock.runtime.base import HasFileno
from fencelock.runtime.readiness import TaskReadiness

__all__ = ["AsyncEvent", "AsyncioRuntime", "running_loop"]

T = TypeVar("T")
LONGEST_SLEEP = 5.0
NO_LOOP = (
    "AsyncClient works on asyncio's event loop, and none is running here: under trio use Client in a thread "
    "(trio.to_thread.run_sync), or run anyio on its asyncio backend"
)

log = logging.getLogger("fencelock")


class AsyncEvent:
    """An event that any thread may set and tasks of one loop wait for."""

    __slots__ = ("_event", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._event = asyncio.Event()
        self._loop = loop

    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        if _running_loop() is self._loop:
            self._event.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most `timeout` seconds; say whether it is."""
        if timeout is None:
            return await self._event.wait()
        try:
            async with asyncio.timeout(timeout):
                return await self._event.wait()
        except TimeoutError:
            return False


class AsyncSignal:
    __slots__ = ("_is_given", "_loop", "_waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_given = False
        self._waiters: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        # call_soon_threadsafe is safe in destructors and foreign threads alike.
        if _running_loop() is self._loop:
            self._give()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._give)

    def _give(self) -> None:
        self._is_given = True
        for waiter in self._waiters:
            _wake(waiter)

    async def wait(self, seconds: float) -> None:
        if not self._is_given:
            waiter = self._loop.create_future()
            timer = self._loop.call_later(min(max(seconds, 0.0), LONGEST_SLEEP), _wake, waiter)
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiters.remove(waiter)
        self._is_given = False


class AsyncService:
    __slots__ = ("_task",)

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    async def join(self, seconds: float) -> None:
        if self._task is not asyncio.current_task() and not self._task.done():
            await asyncio.wait({self._task}, timeout=max(seconds, 0.0))


class AsyncioRuntime:
    """The runtime of `AsyncClient`."""

    flavour = "asyncio"

    now = staticmethod(clock.now)
    jitter = staticmethod(random.random)
    new_id = staticmethod(ids.new_id)

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop this runtime belongs to; raises on any other."""
        running = running_loop()
        if self._loop is None:
            self._loop = running
        elif self._loop is not running:
            raise ConfigurationError(
                "this AsyncClient belongs to another event loop: make one AsyncClient for each loop"
            )
        return running

    def check(self) -> None:
        _ = self.loop

    def goes_on(self) -> bool:
        return self._loop is not None and self._loop.is_running()

    def soon(self, function: Callable[[], object]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(function)

    def is_elsewhere(self) -> bool:
        """Whether this is another loop than the one it belongs to."""
        return self._loop is not None and self._loop is not _running_loop()

    def current(self) -> object:
        try:
            return asyncio.current_task()
        except RuntimeError:
            running_loop()  # says what to do instead
            raise

    def event(self) -> AsyncEvent:
        return AsyncEvent(self._loop or self.loop)

    def signal(self) -> AsyncSignal:
        return AsyncSignal(self._loop or self.loop)

    def readiness(self, source: HasFileno) -> TaskReadiness:
        return TaskReadiness(self.loop, source)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0.0))

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        # One thread, first in first out: a clean-up runs after what it cleans up.
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="fencelock-driver")
        return await self.loop.run_in_executor(self._thread, function, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> AsyncService:
        task = self._keep(self.loop.create_task(coroutine, name=name))
        task.add_done_callback(_log_failure)
        return AsyncService(task)

    async def finish(self, coroutine: Coroutine[Any, Any, T]) -> T:
        task = self._keep(self.loop.create_task(coroutine))
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            if not task.cancelled():
                task.exception()  # seen: the caller's cancellation is what counts now
            raise cancelled
        return task.result()

    def interrupt(self, task: object, still_wanted: Callable[[], bool]) -> None:
        # By way of the loop, never directly: a task that cancels itself while it runs would
        # carry the cancellation out of its `async with` block, to whatever it awaits next.
        assert isinstance(task, asyncio.Task)
        loop = task.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(lambda: task.cancel("lease lost") if still_wanted() else None)

    def callback(self, function: Callable[[Any], Any], argument: Any) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(lambda: self._keep(loop.create_task(_guarded(function, argument))))

    def close(self) -> None:
        """Let the driver's thread go."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    def forked(self) -> None:
        """Forget the parent's loop, thread and tasks."""
        self._loop = self._thread = None
        self._tasks = set()

    def _keep(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        # The loop keeps only weak references to tasks.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the loop that this runs on; raise if there is none, as under trio."""
    loop = _running_loop()
    if loop is None:
        raise ConfigurationError(NO_LOOP)
    return loop


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a background service of fencelock failed", exc_info=task.exception())


async def _guarded(function: Callable[[Any], Any], argument: Any) -> None:
    try:
        result = function(argument)
        if inspect.isawaitable(result):
            await result
    except Exception:
        log.exception("on_lost failed")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    return asyncio._get_running_loop()
