"""A client is closed while it waits in `acquire`: on ZooKeeper, etcd and Consul."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from consul_desk import keys as consul_keys
from consul_desk import sessions as consul_sessions
from crew import Crew, wait_until
from etcd_desk import keys as etcd_keys
from etcd_desk import leases as etcd_leases
from redis_desk import desk_for
from tools.servers import start
from zookeeper_desk import sessions as zookeeper_sessions
from zookeeper_desk import znodes

from fencelock import AcquireCancelled
from fencelock.backends.base import Busy, Origin, Request
from fencelock.runtime.blocking import run

ROUNDS = 9
AT_ONCE = 15.0
"""Seconds that a busy machine may take for it; by itself a wait goes on for longer."""
FAR = 60.0
WAITERS = 12
SETTINGS = {
    "zookeeper": {"forceSync": "no"},
    "etcd": {"unsafe-no-fsync": "true"},
    "consul": {"limits": '{"http_max_conns_per_client": 2000}'},
}
RECORDS = {"zookeeper": znodes, "etcd": etcd_keys, "consul": consul_keys}
SESSIONS = {"zookeeper": zookeeper_sessions, "etcd": etcd_leases, "consul": consul_sessions}


@pytest.fixture(scope="module", params=SETTINGS)
def group(request: pytest.FixtureRequest) -> Iterator[Any]:
    with start(request.param, settings=SETTINGS[request.param]) as group:
        yield group


@pytest.fixture
def kind(group: Any) -> str:
    return str(group.url.partition(":")[0])


def nothing_is_left(group: Any, kind: str) -> None:
    server = group.members[0]
    wait_until(lambda: not RECORDS[kind](server), "no record is left", 15.0)
    wait_until(lambda: not SESSIONS[kind](server), "no session is left", 45.0)


def test_a_signal_handler_closes_the_client_that_its_own_thread_waits_in(
    group: Any, kind: str, crew: Crew
) -> None:
    """The handler comes back, then the wait ends: wherever in it the signal came."""
    worker = crew.start("ordered_closer", group.url, ROUNDS, 7)
    for _ in range(ROUNDS):
        told = worker.hear()
        assert told["order"] == ["handler", "closed", "cancelled, its client was closed"], told
        assert told["took"] < AT_ONCE, told
        assert told["left"] == [], told
    assert worker.end() == 0, worker.errors
    nothing_is_left(group, kind)


def test_a_wait_that_would_go_on_for_a_minute_ends_at_once(group: Any, kind: str, flavour: str) -> None:
    """`wake` ends it, from another thread; and one that begins when the client is being closed."""
    with desk_for(flavour, group.url) as desk, desk_for("blocking", group.url) as other:
        held = other.acquire("job", ttl=20)
        backend = desk.locks._session.backend
        request = Request("f" * 32, "job", "exclusive", 1, 20.0, Origin("test", "here", 1), None)

        def begin(step: Any, *args: Any, **terms: Any) -> Any:
            if flavour == "asyncio":
                return desk.begin(step, *args, **terms)
            return desk.begin(lambda: run(step(*args, **terms)))

        assert desk.inspect("job").holders
        deadline = backend.runtime.now() + FAR
        answer = begin(backend.acquire, request, wait=True, deadline=deadline).result(10)
        assert isinstance(answer, Busy)
        waits = begin(backend.wait, request, deadline)
        with pytest.raises(TimeoutError):
            waits.result(0.6)
        backend.closing = True
        backend.wake()
        assert waits.result(AT_ONCE) is None
        assert begin(backend.wait, request, deadline).result(AT_ONCE) is None
        begin(backend.abandon, request, deadline=deadline).result(10)
        assert other(held.release)
    nothing_is_left(group, kind)


def test_all_who_wait_in_it_are_told_and_leave_the_line(group: Any, kind: str, flavour: str) -> None:
    threads = threading.active_count()
    with desk_for("blocking", group.url) as other:
        held = other.acquire("job", ttl=20)
        with desk_for(flavour, group.url) as desk:
            waits = [desk.waiting("job", ttl=20) for _ in range(WAITERS)]
            wait_until(lambda: len(other.inspect("job").waiters) == WAITERS, "all of them wait")
            desk.begin(desk.locks.close).result(10)
            for wait in waits:
                with pytest.raises(AcquireCancelled, match="its client was closed"):
                    wait.result(AT_ONCE)
            assert other.inspect("job").waiters == ()
        assert other(held.verify)
        assert other(held.release)
    nothing_is_left(group, kind)
    wait_until(lambda: threading.active_count() <= threads, "no thread is left")
