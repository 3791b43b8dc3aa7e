"""The effects: `SimulatedRuntime` is to a simulated process what the others are to a real one.

Every plain function burns the fuse of its process (see `world.py`), so that a stall may come
between any two effects. Every function raises `Gone` in a process that has crashed.

`flavour` is that of the world. In the blocking flavour `finish` shields from nothing and
`interrupt` does nothing, as with threads; in the asyncio flavour they do what
`runtime/asyncio.py` does.
"""

from __future__ import annotations

import inspect
from asyncio.exceptions import CancelledError
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fencelock.runtime.base import HasFileno, Readiness
from fencelock.runtime.simulated.task import Gone, Task, suspend
from fencelock.runtime.simulated.world import Process, World

__all__ = ["SimulatedEvent", "SimulatedRuntime", "SimulatedService", "SimulatedSignal"]

T = TypeVar("T")
LONGEST_SLEEP = 5.0


class SimulatedEvent:
    """Set once. Here `wait` is a coroutine in both flavours."""

    __slots__ = ("_runtime", "_set", "_waiters")

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self._runtime = runtime
        self._set = False
        self._waiters: list[tuple[Task, int]] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiters, self._waiters = self._waiters, []
        for task, number in waiters:
            self._runtime.world.wake(task, number)
        self._runtime.burn()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most `timeout` seconds; say whether it is."""
        if not self._set:
            task, number = self._runtime.arm(timeout)
            self._waiters.append((task, number))
            await suspend()
        return self._set


class SimulatedSignal:
    """A tap on the shoulder of one service."""

    __slots__ = ("_runtime", "_set", "_waiter")

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self._runtime = runtime
        self._set = False
        self._waiter: tuple[Task, int] | None = None

    def notify(self) -> None:
        # Called by destructors too: no fuse, no Gone.
        self._set = True
        if self._waiter is not None:
            task, number = self._waiter
            self._runtime.world.wake(task, number)

    async def wait(self, seconds: float) -> None:
        try:
            if not self._set:
                self._waiter = self._runtime.arm(min(max(seconds, 0.0), LONGEST_SLEEP))
                await suspend()
        finally:
            self._waiter = None
            self._set = False


class SimulatedService:
    """A background task."""

    __slots__ = ("_runtime", "task")

    def __init__(self, runtime: SimulatedRuntime, task: Task) -> None:
        self._runtime = runtime
        self.task = task

    async def join(self, seconds: float) -> None:
        if not self.task.done and self.task is not self._runtime.world.current:
            self.task.joiners.append(self._runtime.arm(max(seconds, 0.0)))
            await suspend()


class SimulatedRuntime:
    """The runtime of one simulated process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.world: World = process.world
        self.flavour: str = process.world.flavour
        self._random = process.world.stream(f"{process.name}/ids")

    def burn(self) -> None:
        """An effect happens here: perhaps the process is stalled first."""
        process = self.process
        process.fuse -= 1
        if process.fuse <= 0:
            process.stall()
        if process.dead:
            raise Gone

    def arm(self, seconds: float | None = None) -> tuple[Task, int]:
        """Begin to suspend the running task, for so long at most."""
        task = self.world.current
        if task is None or task.process.dead:
            raise Gone
        number = task.arm()
        if seconds is not None:
            self.world.at(self.world.now + seconds, self.world.fire, task, number)
        return task, number

    def now(self) -> float:
        process = self.process
        process.fuse -= 1
        if process.fuse <= 0 or process.dead:
            self.burn()
        return self.world.now

    def wall(self) -> float:
        """The process's wall clock, which may jump. Nothing correct reads it."""
        return self.world.now + self.process.wall

    def check(self) -> None:
        """Nothing to check: a simulated process has one runtime."""

    def goes_on(self) -> bool:
        return True

    def soon(self, function: Callable[[], object]) -> None:
        function()

    def new_id(self) -> str:
        self.burn()
        return f"{self._random.getrandbits(128):032x}"

    def jitter(self) -> float:
        return self._random.random()

    def current(self) -> object:
        # No fuse: Ctrl-C in the first instructions of `__exit__` is beyond what Python can mend.
        if self.process.dead:
            raise Gone
        return self.world.current

    def event(self) -> SimulatedEvent:
        self.burn()
        return SimulatedEvent(self)

    def signal(self) -> SimulatedSignal:
        self.burn()
        return SimulatedSignal(self)

    def readiness(self, source: HasFileno) -> Readiness:
        raise RuntimeError("a simulated process has no sockets")

    async def sleep(self, seconds: float) -> None:
        self.burn()
        self.arm(max(seconds, 0.0))
        await suspend()

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        await self.sleep(0.0)
        return function(*args)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> SimulatedService:
        try:
            self.burn()
        except BaseException:
            coroutine.close()
            raise
        task = self.process.spawn(coroutine, name)
        task.service = True
        return SimulatedService(self, task)

    async def finish(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self.flavour == "blocking":
            return await coroutine
        task = self.process.spawn(coroutine, "finish")
        cancelled: CancelledError | None = None
        while not task.done:
            try:
                task.joiners.append(self.arm())
                await suspend()
            except CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        if task.error is not None:
            raise task.error
        result: T = task.result
        return result

    def interrupt(self, task: object, still_wanted: Callable[[], bool]) -> None:
        if self.flavour == "asyncio":
            assert isinstance(task, Task)
            self.process.call_soon(lambda: task.cancel("lease lost") if still_wanted() else None)

    def callback(self, function: Callable[[Any], Any], argument: Any) -> None:
        if not self.process.dead:
            self.process.spawn(_call(function, argument), "on-lost")


async def _call(function: Callable[[Any], Any], argument: Any) -> None:
    result = function(argument)
    if inspect.isawaitable(result):
        await result
