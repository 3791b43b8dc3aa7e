"""A flight of either flavour, used in the same way: calls of asyncio's run on a loop on a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from fencelock import AsyncClient, Client
from fencelock.flight import AsyncFlight, Flight

FLAVOURS = ["blocking", "asyncio"]
PATIENCE = 60.0


class Desk:
    """Calls are made as tasks or on threads; `begin` does not wait for their end."""

    def __init__(self, flavour: str, url: str, **options: Any) -> None:
        self.is_async = flavour == "asyncio"
        self.flight: Any = None
        self.locks: Any = None
        if self.is_async:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever)
            self._thread.start()
            try:
                self._wait(self._open(url, options))
            except BaseException:
                self._stop()
                raise
        else:
            self.locks = Client(url)
            self.flight = Flight(self.locks, **options)

    async def _open(self, url: str, options: dict[str, Any]) -> None:
        self.locks = AsyncClient(url)
        try:
            self.flight = AsyncFlight(self.locks, **options)
        except BaseException:
            await self.locks.close()
            raise

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def computing(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Return a computation of this flavour that does what a blocking function does."""

        async def as_task() -> Any:
            return await asyncio.to_thread(function)

        return as_task if self.is_async else function

    def begin(self, name: str, *args: Any, **options: Any) -> Future[Any]:
        """Call a method; `get` takes a blocking function whatever the flavour."""
        if name == "get":
            args = (args[0], self.computing(args[1]), *args[2:])
        method = getattr(self.flight, name)
        if self.is_async:
            return asyncio.run_coroutine_threadsafe(method(*args, **options), self._loop)
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(method(*args, **options))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work).start()
        return future

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **options: self.begin(name, *args, **options).result(PATIENCE)

    def ask(self, name: str, *args: Any) -> Any:
        """Call a method of the locks."""
        found = getattr(self.locks, name)(*args)
        return self._wait(found) if self.is_async else found

    def end(self) -> None:
        if self.is_async:
            try:
                self._wait(self.flight.close())
                self._wait(self.locks.close())
            finally:
                self._stop()
        else:
            self.flight.close()
            self.locks.close()


@contextmanager
def desk_for(flavour: str, url: str, **options: Any) -> Iterator[Desk]:
    desk = Desk(flavour, url, **options)
    try:
        yield desk
    finally:
        desk.end()


class Gate:
    """A computation that says when it has begun, and waits until it may end."""

    def __init__(self, result: Any = "value") -> None:
        self.calls = 0
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self._result = result
        self._lock = threading.Lock()

    def __call__(self) -> Any:
        with self._lock:
            self.calls += 1
        self.begun.set()
        assert self.may_end.wait(PATIENCE)
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.002)


def counted(result: Any = None) -> Callable[[], Any]:
    """Return a computation that returns 1, 2, 3 … unless it is told otherwise."""
    calls: list[None] = []

    def compute() -> Any:
        calls.append(None)
        if isinstance(result, Exception):
            raise result
        return len(calls) if result is None else result

    compute.calls = calls  # type: ignore[attr-defined]
    return compute


def followers(desk: Desk, key: str) -> int:
    """Return how many callers wait for the flight that is under way."""
    flight = desk.flight._flights.find(key)
    if flight is None:
        return 0
    if desk.is_async:
        return int(flight._callers) - 1
    return len(flight._ended._cond._waiters)
