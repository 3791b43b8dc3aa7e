"""What the tests on Redis share: a client of either flavour behind one face, and questions to the server.

A `Desk` has one client. `desk(function, …)` calls one of its functions and returns the result, `desk.begin`
does so beside the test and returns a future. Blocking calls run on the test's own thread and on a thread for
each beginning; asyncio's run on a loop with a thread of its own. So a test is written once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from crew import PATIENCE

from fencelock import AsyncClient, Client
from fencelock.testing import TCPProxy

FLAVOURS = ["blocking", "asyncio"]


class Desk:
    """One client of the blocking flavour."""

    def __init__(self, url: str, **options: Any) -> None:
        self.locks: Any = Client(url, **options)

    def __call__(self, function: Callable[..., Any], *args: Any, **terms: Any) -> Any:
        """Call and return the result."""
        return function(*args, **terms)

    def begin(self, function: Callable[..., Any], *args: Any, **terms: Any) -> Future[Any]:
        """Call beside the test."""
        future: Future[Any] = Future()

        def call() -> None:
            try:
                future.set_result(function(*args, **terms))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=call, daemon=True).start()
        return future

    def block(self, lock: Any, body: Callable[[Any], Any]) -> Any:
        """Run `body(lease)` in a `with` block of the lock."""
        with lock as lease:
            return body(lease)

    def acquire(self, name: str, *, timeout: float = 30, **terms: Any) -> Any:
        return self(self.locks.lock(name, **terms).acquire, timeout=timeout)

    def waiting(self, name: str, *, timeout: float | None = 60, **terms: Any) -> Future[Any]:
        return self.begin(self.locks.lock(name, **terms).acquire, timeout=timeout)

    def inspect(self, name: str) -> Any:
        return self(self.locks.inspect, name)

    def close(self) -> None:
        self.locks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncDesk(Desk):
    """One client of the asyncio flavour, on a loop of its own."""

    def __init__(self, url: str, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.locks = AsyncClient(url, **options)

    def __call__(self, function: Callable[..., Any], *args: Any, **terms: Any) -> Any:
        return self.begin(function, *args, **terms).result(PATIENCE)

    def begin(self, function: Callable[..., Any], *args: Any, **terms: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(function(*args, **terms), self.loop)

    def block(self, lock: Any, body: Callable[[Any], Any]) -> Any:
        async def inside() -> Any:
            async with lock as lease:
                return await asyncio.to_thread(body, lease)

        return self(inside)

    def close(self) -> None:
        try:
            self(self.locks.close)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(PATIENCE)
            self.loop.close()


def desk_for(flavour: str, url: str, **options: Any) -> Desk:
    """Return a desk of this flavour."""
    return (AsyncDesk if flavour == "asyncio" else Desk)(url, **options)


def through(proxy: TCPProxy, url: str) -> str:
    """Return the same URL by way of a proxy."""
    parts = urlsplit(url)
    user, mark, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}{mark}{proxy.host}:{proxy.port}"))


@contextlib.contextmanager
def proxied(url: str) -> Iterator[tuple[TCPProxy, str]]:
    """Put a proxy in front of a server; yield it, and the URL that leads through it."""
    parts = urlsplit(url)
    with TCPProxy(parts.hostname or "", parts.port or 0) as proxy:
        yield proxy, through(proxy, url)


# Questions to the server itself: `server` is a member of a group of tools/servers -----------------


def connections(server: Any, kind: str = "") -> list[dict[str, str]]:
    """Return the clients that the server knows, but the one that asks; `kind` may be normal or pubsub."""
    words = ["CLIENT", "LIST", *(["TYPE", kind] if kind else [])]
    lines = str(server.ask(*words)).splitlines()
    clients = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
    return [client for client in clients if client["cmd"] != "client|list"]


def calls(server: Any, command: str = "evalsha") -> int:
    """Return how often the server has run a command since CONFIG RESETSTAT."""
    told = server.info("INFO", "commandstats").get(f"cmdstat_{command}", "calls=0")
    return int(dict(part.split("=") for part in told.split(","))["calls"])


def residue(server: Any) -> list[str]:
    """Return every key but the counters."""
    keys = server.ask("KEYS", "*")
    return sorted(key for key in keys if not is_counter(key))


def counters(server: Any) -> list[str]:
    """Return the keys of the counters."""
    return sorted(key for key in server.ask("KEYS", "*") if is_counter(key))


def is_counter(key: str) -> bool:
    return key.startswith("fencelock:{") and key.endswith("}") and key[len("fencelock:{") : -1].isdigit()
