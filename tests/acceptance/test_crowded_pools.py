"""More requests of one client than it has connections: the lock is busy, the server is not down.

A request that times out while the client's other requests have every connection raises `AcquireTimeout`. If
the server answers none of them, it raises `BackendUnavailable`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from tools.servers import start

from fencelock import AcquireTimeout, AsyncClient, BackendUnavailable, Client
from fencelock.testing.conformance.expect import took

CROWD = 24
ROUNDS = 3
KINDS = {
    "postgresql": ("postgres", "pool_size=1"),
    "postgresql+advisory": ("postgres", "pool_size=3"),
    "mysql": ("mariadb", "pool_size=1"),
    "mysql+getlock": ("mariadb", "connections=1"),
}


@pytest.fixture(scope="module", params=[*KINDS])
def store(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    """A URL of few connections, and the server."""
    kind, few = KINDS[request.param]
    with start(kind) as group:
        _, _, rest = group.url.partition("://")
        yield f"{request.param}://{rest}?{few}", group.members[0]


def blocking(url: str, timeout: float, rounds: int, before: Callable[[], object]) -> list[Any]:
    """Let a crowd of threads give up again and again; return the error of each, and how long it took."""
    with Client(url) as locks:
        locks.lock("first").acquire().release()
        before()
        errors: list[Any] = []

        def give_up() -> None:
            for _ in range(rounds):
                began = time.monotonic()
                errors.append((outcome(lambda: locks.lock("busy").acquire(timeout=timeout)), spent(began)))

        crowd = [threading.Thread(target=give_up) for _ in range(CROWD)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join()
    return errors


def outcome(call: Callable[[], object]) -> type[Exception] | None:
    """Return what a call raises."""
    try:
        call()
    except Exception as error:
        return type(error)
    return None


def spent(began: float) -> float:
    """The seconds since then."""
    return time.monotonic() - began


async def tasks(url: str, timeout: float, rounds: int, before: Callable[[], object]) -> list[Any]:
    """The same with tasks."""
    async with AsyncClient(url) as locks:
        await (await locks.lock("first").acquire()).release()
        before()
        errors: list[Any] = []

        async def give_up() -> None:
            for _ in range(rounds):
                began = time.monotonic()
                error = None
                try:
                    await locks.lock("busy").acquire(timeout=timeout)
                except Exception as raised:
                    error = type(raised)
                errors.append((error, spent(began)))

        await asyncio.gather(*(give_up() for _ in range(CROWD)))
    return errors


def crowd(
    flavour: str, url: str, timeout: float, rounds: int = ROUNDS, before: Callable[[], object] = list
) -> tuple[set[Any], float]:
    """Let a crowd give up; return the kinds of errors, and the longest time that one took."""
    if flavour == "asyncio":
        found = asyncio.run(tasks(url, timeout, rounds, before))
    else:
        found = blocking(url, timeout, rounds, before)
    assert len(found) == CROWD * rounds
    return {error for error, _ in found}, max(seconds for _, seconds in found)


@pytest.mark.parametrize("flavour", ["blocking", "asyncio"])
def test_a_crowd_that_gives_up_has_timed_out(store: tuple[str, Any], flavour: str) -> None:
    url, _ = store
    with Client(url) as other, other.lock("busy", ttl=60):
        kinds, _ = crowd(flavour, url, 4.0, rounds=2)  # a busy server answers a step within that
    assert kinds == {AcquireTimeout}


@pytest.mark.timing
@pytest.mark.parametrize("flavour", ["blocking", "asyncio"])
def test_giving_up_does_not_wait_for_the_server_to_end_a_wait(store: tuple[str, Any], flavour: str) -> None:
    """A wait in the server's queue ends by itself a second after its deadline; its client ends it at once."""
    url, _ = store
    with Client(url) as other, other.lock("busy", ttl=60):
        kinds, longest = crowd(flavour, url, 0.3, rounds=10)
    assert AcquireTimeout in kinds
    took(0.3, longest, 1.0, "the longest acquire with a timeout of 0.3 s")


@pytest.mark.parametrize("flavour", ["blocking", "asyncio"])
def test_a_server_that_answers_nobody_is_down(store: tuple[str, Any], flavour: str) -> None:
    url, server = store
    paused = threading.Event()

    def pause() -> None:
        server.pause()
        paused.set()
        threading.Timer(8.0, server.resume).start()  # closing the client asks it, too

    try:
        kinds, _ = crowd(flavour, url, 1.0, rounds=1, before=pause)
    finally:
        with suppress(OSError):
            server.resume()
    assert paused.is_set()
    assert kinds == {BackendUnavailable}
