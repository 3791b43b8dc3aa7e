"""The blocking runtime: everything happens on the caller's thread, and nothing suspends.

`run(coroutine)` sends once and has the result: a coroutine that awaits only this runtime's
methods never yields. That costs under a microsecond, where handing the call to a
background event loop costs forty and more.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fencelock.runtime import clock, ids
from fencelock.runtime.readiness import ThreadReadiness
from fencelock.runtime.threads import join, launch

__all__ = ["BlockingRuntime", "run"]

T = TypeVar("T")
LONGEST_SLEEP = 5.0
"""Timers stand still while the machine sleeps, the lease clock does not: look at it often."""

log = logging.getLogger("fencelock")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("a blocking operation suspended: it awaited something foreign")


class BlockingSignal:
    """A lock that is always taken, and released as the signal.

    Releasing it is one atomic step that needs nothing else, so a destructor may do it in the
    middle of anything. `SimpleQueue` promises the same, but its `get` with a timeout may wait for
    ever: when the time is over between two of its steps it goes on with a negative rest, which
    means "no limit" (CPython 3.11 to 3.13).
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def notify(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            return  # it was notified already

    async def wait(self, seconds: float) -> None:
        self._lock.acquire(timeout=min(max(seconds, 0.0), LONGEST_SLEEP))


class BlockingService:
    """A daemon thread that runs one coroutine."""

    __slots__ = ("_thread",)

    def __init__(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        self._thread = threading.Thread(target=self._main, args=(coroutine,), name=name, daemon=True)
        launch(self._thread)

    @staticmethod
    def _main(coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            run(coroutine)
        except Exception:
            log.exception("a background service of fencelock failed")

    async def join(self, seconds: float) -> None:
        if self._thread is not threading.current_thread():
            join(self._thread, seconds)


class BlockingRuntime:
    """The runtime of `Client`."""

    flavour = "blocking"

    now = staticmethod(clock.now)
    event = staticmethod(threading.Event)
    signal = staticmethod(BlockingSignal)
    readiness = staticmethod(ThreadReadiness)
    current = staticmethod(threading.current_thread)
    jitter = staticmethod(random.random)
    new_id = staticmethod(ids.new_id)

    def check(self) -> None:
        """Nothing to check: any thread will do."""

    def goes_on(self) -> bool:
        return True

    def soon(self, function: Callable[[], object]) -> None:
        function()

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        return function(*args)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> BlockingService:
        return BlockingService(coroutine, name)

    async def finish(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await coroutine

    def interrupt(self, task: object, still_wanted: Callable[[], bool]) -> None:
        """Nothing to do: a thread cannot be cancelled. Its `with` block raises on exit."""

    def callback(self, function: Callable[[Any], Any], argument: Any) -> None:
        launch(
            threading.Thread(
                target=_guarded, args=(function, argument), name="fencelock-on-lost", daemon=True
            )
        )


def _guarded(function: Callable[[Any], Any], argument: Any) -> None:
    try:
        function(argument)
    except Exception:
        log.exception("on_lost failed")
