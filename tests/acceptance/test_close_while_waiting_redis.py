"""A client that is closed while it waits, on Redis and Redlock: the wait ends, and nothing is left.

Another thread or task closes it, or a signal handler that interrupts the very thread that waits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from crew import PATIENCE, Crew, wait_until
from redis_desk import FLAVOURS, desk_for

import fencelock
from conformance.rows import ROWS
from fencelock import events

SOON = 15.0
"""Seconds that a busy machine may take for it; a waiter that is not woken ends after twenty here."""
ROUNDS = 6
KINDS = ("redis", "rediss", "valkey", "redis+sentinel", "redis+cluster", "redlock")


@pytest.fixture(scope="module", params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ROWS[request.param](tmp_path_factory.mktemp("row")) as url:
        yield url


def sockets() -> int:
    """How many sockets this process has."""
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
        except FileNotFoundError:  # the one that lists them
            continue
    return count


@pytest.fixture
def long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencelock.core.acquire.patience", lambda ttl: 60.0)


@pytest.mark.usefixtures("long_waits")
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_closing_ends_all_waits(url: str, flavour: str) -> None:
    with fencelock.Client(url) as locks:
        lease = locks.lock("job", ttl=30).acquire(timeout=30)
        for _ in range(ROUNDS):
            before = sockets()
            desk = desk_for(flavour, url)
            told: list[object] = []
            with events.subscribe(told.append, events.Waiting):
                calls = [desk.waiting("job") for _ in range(3)]
                wait_until(lambda told=told: len(told) == 3, "all three wait")  # type: ignore[misc]
            time.sleep(0.05)  # and listen
            began = time.monotonic()
            desk.close()
            for call in calls:
                with pytest.raises(fencelock.AcquireCancelled, match="its client was closed"):
                    call.result(PATIENCE)
            assert time.monotonic() - began < SOON
            assert locks.inspect("job").waiters == ()
            wait_until(lambda before=before: sockets() == before, "its sockets are closed")  # type: ignore[misc]
        assert lease.verify()
        assert lease.release()


def test_a_handler_closes_the_client_that_its_thread_waits_with(url: str) -> None:
    with fencelock.Client(url) as locks, Crew() as crew:
        lease = locks.lock("job", ttl=30).acquire(timeout=30)
        closer = crew.start("redis_closer", url, "waiting", str(ROUNDS))
        for _ in range(ROUNDS):
            said = closer.hear()
            assert said["order"] == ["closing", "closed", "refused"]
            assert said["error"].startswith("AcquireCancelled: ")
            assert locks.inspect("job").waiters == (), "it has left the queue"
            assert said["took"] < SOON
            closer.tell()
        said = closer.hear()
        assert said["after"] == said["before"]
        assert lease.verify()
        assert lease.release()


def test_a_handler_closes_the_client_that_its_thread_takes_a_lock_with(url: str) -> None:
    """Whatever it interrupts, the lock is free afterwards."""
    rounds = 40
    with fencelock.Client(url) as locks, Crew() as crew:
        closer = crew.start("redis_closer", url, "acquiring", str(rounds))
        outcomes = set()
        for _ in range(rounds):
            said = closer.hear()
            assert said["took"] < SOON
            outcomes.add(said["error"].partition(":")[0])
            state = locks.inspect("free")
            assert (state.holders, state.waiters) == ((), ()), said
            closer.tell()
        said = closer.hear()
        assert said["after"] == said["before"]
        # Closed before it asked, closed meanwhile, and closed when it had the lock.
        assert outcomes <= {"ConfigurationError", "AcquireCancelled", ""}
