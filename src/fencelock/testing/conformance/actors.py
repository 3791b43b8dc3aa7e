"""Actors: independent threads, or independent tasks, that make calls for a check.

A check is one coroutine on an event loop, whatever the flavour. What it wants done it gives
to an actor: `await actor(lock.acquire, timeout=1)`. In the blocking flavour the call is made
on the actor's own thread, in the asyncio flavour it is awaited in the actor's own task. The
result, or the error, comes back.

A longer piece of work is an `async def` with `await io(lock.acquire())` for each call and
`async with inside(lock)` for each block. On a thread nothing in it ever suspends, so it runs
from start to end by one `send`; in a task it is an ordinary coroutine.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from fencelock.runtime.blocking import run

__all__ = ["Actor", "TaskActor", "ThreadActor", "inside", "io", "nap"]

Job = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...], dict[str, Any]]


async def io(value: Any) -> Any:
    """Return what a call gave: awaited if it gave an awaitable, as it is if it blocked."""
    return await value if inspect.isawaitable(value) else value


async def nap(seconds: float) -> None:
    """Sleep, on a thread of an actor or on a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        time.sleep(seconds)
    else:
        await asyncio.sleep(seconds)


@contextlib.asynccontextmanager
async def inside(lock: Any) -> AsyncIterator[Any]:
    """`with lock` or `async with lock`, as the lock has it."""
    if hasattr(lock, "__aenter__"):
        async with lock as lease:
            yield lease
    else:
        with lock as lease:
            yield lease


class Actor(Protocol):
    """A thread or a task that makes calls, one after the other."""

    def start(self, function: Callable[..., Any], *args: Any, **options: Any) -> asyncio.Future[Any]:
        """Begin a call; the future has `done()` and can be awaited."""

    async def __call__(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Make a call and return its result."""

    def stop(self) -> None:
        """Let the thread or task end after what it is doing."""


class ActorBase:
    """What both kinds of actor share: jobs, and what is being done."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.doing = ""

    def put(self, job: Job | None) -> None:
        raise NotImplementedError

    def start(self, function: Callable[..., Any], *args: Any, **options: Any) -> asyncio.Future[Any]:
        """Begin a call; the future has `done()` and can be awaited."""
        future: asyncio.Future[Any] = self.loop.create_future()
        # Whoever does not await it is not interested in its error either.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.put((future, function, args, options))
        return future

    async def __call__(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Make a call and return its result."""
        return await self.start(function, *args, **options)

    def stop(self) -> None:
        """Let the thread or task end after what it is doing."""
        self.put(None)


class ThreadActor(ActorBase):
    """A thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        super().__init__(loop)
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._main, name=name, daemon=True)
        self.thread.start()

    def put(self, job: Job | None) -> None:
        self.jobs.put(job)

    def _main(self) -> None:
        while (job := self.jobs.get()) is not None:
            self._work(*job)
            del job  # a lease that nobody has any more must not live on here

    def _work(
        self,
        future: asyncio.Future[Any],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        self.doing = told(function, args, options)
        try:
            result = function(*args, **options)
            if inspect.iscoroutine(result):
                result = run(result)
        except BaseException as error:
            self._answer(future, None, error)
        else:
            self._answer(future, result, None)
        finally:
            self.doing = ""

    def _answer(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the check has ended
            self.loop.call_soon_threadsafe(settle, future, result, error)


class TaskActor(ActorBase):
    """A task of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        super().__init__(loop)
        self.jobs: asyncio.Queue[Job | None] = asyncio.Queue()
        self.task = loop.create_task(self._main(), name=name)

    def put(self, job: Job | None) -> None:
        self.jobs.put_nowait(job)

    async def _main(self) -> None:
        while (job := await self.jobs.get()) is not None:
            await self._work(*job)
            del job

    async def _work(
        self,
        future: asyncio.Future[Any],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        self.doing = told(function, args, options)
        try:
            settle(future, await io(function(*args, **options)), None)
        except asyncio.CancelledError as error:
            settle(future, None, RuntimeError(f"cancelled: {error}"))
            if self.task.cancelling():
                raise
        except BaseException as error:
            settle(future, None, error)
        finally:
            self.doing = ""


def settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """Give a future its result, unless nobody waits any more."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration | KeyboardInterrupt | SystemExit):
        future.set_exception(RuntimeError(f"the call raised {error!r}"))
    else:
        future.set_exception(error)


def told(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> str:
    """Describe a call, for the message of a check that took too long."""
    name = getattr(function, "__qualname__", repr(function))
    values = [*map(repr, args), *(f"{key}={value!r}" for key, value in options.items())]
    return f"{name}({', '.join(values)})"[:200]
