"""The blocking runtime: everything happens on the caller's thread, and nothing suspends.

`run(coroutine)` sends once and has the result: a coroutine that awaits only this runtime's
methods never yields. That costs under a microsecond, where handing the call to a
background event loop costs forty and more.
"""

from __future__ import annotations

import logging
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.runtime import clock

__all__ = ["BlockingRuntime", "run"]

T = TypeVar("T")
LONGEST_SLEEP = 5.0
"""Timers stand still while the machine sleeps, the lease clock does not: look at it often."""

log = logging.getLogger("holdfast")


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
    """`SimpleQueue.put` is reentrant: a destructor may call it in the middle of anything."""

    __slots__ = ("_taps",)

    def __init__(self) -> None:
        self._taps: queue.SimpleQueue[None] = queue.SimpleQueue()

    def notify(self) -> None:
        self._taps.put(None)

    async def wait(self, seconds: float) -> None:
        try:
            self._taps.get(timeout=min(max(seconds, 0.0), LONGEST_SLEEP))
            while True:
                self._taps.get_nowait()
        except queue.Empty:
            return


class BlockingService:
    """A daemon thread that runs one coroutine."""

    __slots__ = ("_thread",)

    def __init__(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        self._thread = threading.Thread(target=self._main, args=(coroutine,), name=name, daemon=True)
        self._thread.start()

    @staticmethod
    def _main(coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            run(coroutine)
        except Exception:
            log.exception("a background service of holdfast failed")

    async def join(self, seconds: float) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join(max(seconds, 0.0))


class BlockingRuntime:
    """The runtime of `Client`."""

    flavour = "blocking"

    now = staticmethod(clock.now)
    event = staticmethod(threading.Event)
    signal = staticmethod(BlockingSignal)
    current = staticmethod(threading.current_thread)
    jitter = staticmethod(random.random)

    def check(self) -> None:
        """Nothing to check: any thread will do."""

    def new_id(self) -> str:
        return os.urandom(16).hex()

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
        threading.Thread(
            target=_guarded, args=(function, argument), name="holdfast-on-lost", daemon=True
        ).start()


def _guarded(function: Callable[[Any], Any], argument: Any) -> None:
    try:
        function(argument)
    except Exception:
        log.exception("on_lost failed")
