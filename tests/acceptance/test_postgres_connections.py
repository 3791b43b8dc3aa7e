"""Connections: how many, who gives them back, what happens when the server ends them, and that no two
processes ever share one. The server is asked (pg_stat_activity), since a client may have lost count.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from crew import Crew, wait_until
from postgres_desk import (
    FLAVOURS,
    Desk,
    activity,
    ask,
    desk_for,
    listeners,
    nothing_left,
    proxied,
    residue,
)
from tools.servers import start

from fencelock import AcquireTimeout, AsyncClient, BackendUnavailable, Client
from fencelock.backends.postgres.pools import MANY_LATE, TaskPool, ThreadPool
from fencelock.backends.postgres.turns import QUIET
from fencelock.runtime import clock
from fencelock.runtime.blocking import run

LONG = 60.0
POOL = 3


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("postgres") as group:
        yield group


@pytest.fixture
def server(group: Any) -> Iterator[Any]:
    server = group.members[0]
    yield server
    wait_until(lambda: not activity(server), "nobody is connected")
    nothing_left(server)


@pytest.fixture
def desk(server: Any, flavour: str) -> Iterator[Desk]:
    with desk_for(flavour, server.url) as desk:
        yield desk


@pytest.fixture
def other(server: Any, flavour: str) -> Iterator[Desk]:
    with desk_for(flavour, server.url) as desk:
        yield desk


def terminate(server: Any, *pids: int) -> None:
    for pid in pids:
        ask(server, "SELECT pg_terminate_backend(%s, 10000)", pid)


def first_done(waits: list[Any]) -> Any:
    """Take out of the list who has it, as soon as somebody has."""
    done = wait_until(lambda: next((wait for wait in waits if wait.done()), None), "the next has it")
    waits.remove(done)
    return done


def is_free(desk: Desk, name: str) -> bool:
    return bool(desk.inspect(name).is_free)


# What the server is told ------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "idle"), [("", b"5"), ("keepalives_idle=40", b"40")])
def test_the_server_notices_a_client_that_is_gone_as_soon_as_it_would_notice_the_server(
    server: Any, flavour: str, given: str, idle: bytes
) -> None:
    """By itself it takes two hours, and connections that are reset on one side only would fill it."""
    url = f"{server.url}{'&' if '?' in server.url else '?'}{given}"
    with desk_for(flavour, url) as desk:
        assert desk(desk.acquire("job").release)
        told = desk(desk.locks._session.backend._wire.run, "SHOW tcp_keepalives_idle", clock.now() + 30)
        result = run(told) if flavour == "blocking" else told
        assert result.get_value(0, 0) == idle


# How many ---------------------------------------------------------------------------------------------


def test_many_waiters_use_few_connections(
    server: Any, flavour: str, other: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"job-{number}" for number in range(10)]
    late = counted(monkeypatch)
    with desk_for(flavour, f"{server.url}?pool_size={POOL}&application_name=counted") as desk:
        held = [other.acquire(name, ttl=LONG) for name in names]
        waits = [desk.waiting(name, ttl=LONG) for name in names for _ in range(3)]
        most = 0

        def count() -> int:
            nonlocal most
            most = max(most, len(activity(server, "counted")))
            return most

        wait_until(lambda: count() and all(len(other.inspect(n).waiters) == 3 for n in names), "all wait")
        wait_until(lambda: count() and len(listeners_of(server, "counted")) == 1, "it listens")
        for lease in held:
            assert other(lease.release)
        while waits:
            done = first_done(waits)
            count()
            assert desk(done.result().release)
        # One to listen; and those whose answers were late, on a busy machine.
        assert 1 <= most <= POOL + 1 + min(len(late), MANY_LATE)
    wait_until(lambda: not activity(server, "counted"), "closing leaves none")


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets every connection whose answer was late."""
    late: list[Any] = []
    for pool in (ThreadPool, TaskPool):

        def note(self: Any, link: Any, part: Any = pool.late) -> None:
            late.append(link)
            part(self, link)

        monkeypatch.setattr(pool, "late", note)
    return late


def listeners_of(server: Any, name: str) -> list[Any]:
    return [one for one in activity(server, name) if one["query"].startswith("LISTEN")]


def test_a_client_that_waits_no_more_stops_listening(server: Any, desk: Desk, other: Desk) -> None:
    """The server wakes every session that listens, whatever channel a notification is for."""
    held = other.acquire("job", ttl=LONG)
    waits = desk.waiting("job", ttl=LONG)
    wait_until(lambda: listeners(server), "it listens")
    assert other(held.release)
    assert desk(waits.result(30).release)
    time.sleep(QUIET)
    assert desk(desk.acquire("job").release)
    assert listeners(server) == []


def test_whoever_finds_no_connection_waits_for_one_and_no_longer_than_its_deadline(
    server: Any, flavour: str
) -> None:
    url = f"{server.url}?pool_size=1"
    with proxied(url) as (proxy, through), desk_for(flavour, through) as desk:
        desk(desk.acquire("warm up").release)
        with proxy.hold("replies"):
            slow = desk.waiting("one", timeout=30)
            time.sleep(0.1)
            quick = desk.waiting("two", timeout=0.3)
            assert isinstance(quick.exception(30), BackendUnavailable | AcquireTimeout)
        assert desk(slow.result(30).release)
        assert desk(desk.acquire("two").release)


def test_threads_share_a_pool_under_load(server: Any) -> None:
    with Client(f"{server.url}?pool_size={POOL}&application_name=load") as locks:
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for turn in range(30):
                    locks.lock(f"job-{number}-{turn}").acquire(timeout=30).release()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures
        assert len(activity(server, "load")) <= POOL


# The server ends them ---------------------------------------------------------------------------------


def test_the_lease_survives_the_end_of_its_connections(server: Any, desk: Desk, other: Desk) -> None:
    lost: list[Any] = []
    lease = desk.acquire("job", ttl=3.0, on_lost=lost.append)
    waits = other.waiting("job", ttl=LONG)
    for _ in range(3):
        terminate(server, *(one["pid"] for one in activity(server)))
        assert desk(lease.verify)
        time.sleep(1.2)  # it is renewed in between
        assert lease.is_held()
    assert not lost
    assert desk(lease.release)
    assert other(waits.result(30).release)


def test_a_statement_whose_connection_is_ended_is_done_all_the_same(server: Any, desk: Desk) -> None:
    """Idle connections are ended in bulk; each of these calls finds nothing but dead ones."""
    for number in range(5):
        terminate(server, *(one["pid"] for one in activity(server)))
        lease = desk.acquire(f"job-{number}", ttl=LONG)
        terminate(server, *(one["pid"] for one in activity(server)))
        assert desk(lease.extend, LONG) is None
        terminate(server, *(one["pid"] for one in activity(server)))
        assert desk(lease.release)


def test_waiters_are_served_though_the_listening_connection_was_ended(
    server: Any, desk: Desk, other: Desk
) -> None:
    """Of several waiters of a client all but one listen."""
    held = other.acquire("job", ttl=LONG)
    for _ in range(3):
        waits = [desk.waiting("job", ttl=LONG) for _ in range(3)]
        wait_until(lambda: len(other.inspect("job").waiters) == 3, "they wait")
        terminate(server, *wait_until(lambda: listeners(server), "it listens"))
        assert other(held.release)
        while waits:
            done = first_done(waits)
            assert desk(done.result().verify)
            terminate(server, *listeners(server))
            assert desk(done.result().release)
        held = other.acquire("job", ttl=LONG)
    assert other(held.release)


def test_waiters_are_served_though_all_their_connections_were_ended(
    server: Any, desk: Desk, other: Desk
) -> None:
    for count in (1, 3):
        held = other.acquire("job", ttl=LONG)
        waits = [desk.waiting("job", ttl=LONG) for _ in range(count)]
        wait_until(lambda count=count: len(other.inspect("job").waiters) == count, "they wait")
        time.sleep(0.1)
        terminate(server, *(one["pid"] for one in activity(server)))
        assert other(held.release)
        while waits:
            done = first_done(waits)
            terminate(server, *(one["pid"] for one in activity(server)))
            assert desk(done.result().release)


def test_connections_that_the_server_ends_when_idle_are_not_missed(server: Any, flavour: str) -> None:
    ask(server, "ALTER ROLE fencelock SET idle_session_timeout = '300ms'")
    try:
        with desk_for(flavour, server.url) as desk, desk_for(flavour, server.url) as other:
            for _ in range(2):
                lease = desk.acquire("job", ttl=LONG)
                waits = other.waiting("job", ttl=LONG)
                wait_until(lambda: desk.inspect("job").waiters, "it waits")
                wait_until(lambda: not activity(server), "the server has hung up on all of them")
                assert desk(lease.release)
                assert other(waits.result(30).release)
    finally:
        ask(server, "ALTER ROLE fencelock RESET idle_session_timeout")


# Giving back ------------------------------------------------------------------------------------------


def test_closing_while_others_wait_and_hold_leaves_neither_rows_nor_connections(
    server: Any, flavour: str, other: Desk
) -> None:
    held = other.acquire("busy", ttl=LONG)
    desk = desk_for(flavour, f"{server.url}?application_name=closing")
    mine = desk.acquire("job", ttl=LONG)
    waits = [desk.waiting("busy", ttl=LONG) for _ in range(4)]
    wait_until(lambda: len(other.inspect("busy").waiters) == 4, "they wait")
    desk.close()
    for wait in waits:
        assert wait.exception(30) is not None
    assert not mine.is_held()
    assert other.inspect("busy").waiters == ()
    assert is_free(other, "job")
    wait_until(lambda: not activity(server, "closing"), "its connections are closed")
    assert other(held.release)


def test_a_client_that_is_garbage_leaves_neither_rows_nor_connections(server: Any) -> None:
    locks = Client(server.url)
    lease = locks.lock("job", ttl=LONG).acquire().__enter__()
    assert lease.is_held()
    del locks, lease
    gc.collect()
    wait_until(lambda: not activity(server) and not residue(server), "nothing is left")


def test_a_client_that_nobody_closed_is_made_up_for_at_the_end_of_the_program(
    server: Any, crew: Crew
) -> None:
    code = """if True:
        import asyncio, sys
        from fencelock import AsyncClient, Client

        async def main():
            locks = AsyncClient(sys.argv[1])
            return locks, await locks.lock('job', ttl=60).acquire()

        if sys.argv[2] == 'asyncio':
            kept = asyncio.run(main())
        else:
            locks = Client(sys.argv[1])
            kept = locks, locks.lock('job', ttl=60).acquire()
        """
    for flavour in FLAVOURS:
        member = crew.python(code, server.url, flavour)
        assert member.end() == 0, member.errors
        assert not member.errors, member.errors
        assert residue(server) == [], flavour
        wait_until(lambda: not activity(server), "nobody is connected")


# Interrupts and forks ---------------------------------------------------------------------------------


def test_interrupted_while_it_waits_it_leaves_nothing(server: Any, crew: Crew, flavour: str) -> None:
    with desk_for("blocking", server.url) as desk:
        held = desk.acquire("job", ttl=LONG)
        for _ in range(3):
            worker = crew.start("redis_waiter", server.url, flavour, "job", LONG)
            wait_until(lambda: desk.inspect("job").waiters, "it waits")
            worker.signal(signal.SIGINT)
            assert worker.end() != 0
            assert "KeyboardInterrupt" in worker.errors
            assert desk.inspect("job").waiters == ()
        assert desk(held.release)


def test_interrupted_while_its_reply_is_on_the_way_it_leaves_nothing(
    server: Any, crew: Crew, flavour: str
) -> None:
    with desk_for("blocking", server.url) as desk, proxied(server.url) as (proxy, url):
        desk(desk.acquire("warm up").release)
        with proxy.hold("replies", match=lambda data: b"fencelock_acquire" in data) as hold:
            worker = crew.start("redis_waiter", url, flavour, "job", LONG)
            assert hold.wait(30)
            worker.signal(signal.SIGINT)
            assert worker.end() != 0
            assert "KeyboardInterrupt" in worker.errors
        wait_until(lambda: is_free(desk, "job"), "nothing is left", LONG / 2)


def test_signals_do_not_prolong_a_timeout(server: Any, crew: Crew) -> None:
    """A program with a timer gets signals all the time, and each interrupts a read."""
    with desk_for("blocking", server.url) as desk:
        held = desk.acquire("job", ttl=LONG)
        worker = crew.start("redis_signals", server.url, "timer")
        assert worker.hear()["ready"]
        for timeout in (0.5, 1.5):
            said = worker.hear(20)
            assert said["error"] == "AcquireTimeout"
            assert timeout <= said["waited"] <= timeout + 10.0
        worker.tell()
        assert worker.end() == 0, worker.errors
        assert desk(held.release)


def test_a_signal_handler_may_take_a_lock_itself(server: Any, crew: Crew) -> None:
    with desk_for("blocking", server.url) as desk:
        held = desk.acquire("job", ttl=LONG)
        worker = crew.start("redis_signals", server.url, "handler")
        assert worker.hear()["ready"]
        wait_until(lambda: desk.inspect("job").waiters, "it waits")
        for _ in range(5):
            os.kill(worker.pid, signal.SIGUSR1)
            said = worker.hear()
            assert said["verified"]
            assert said["released"]
        assert desk(held.release)
        assert worker.hear()["verified"]
        worker.tell()
        assert worker.end() == 0, worker.errors


def test_fork(server: Any, crew: Crew, flavour: str) -> None:
    """Parent and child both go on; the child holds nothing of the parent's, and shares no socket with it."""
    with desk_for("blocking", server.url) as desk:
        theirs = desk.acquire("theirs", ttl=LONG)
        worker = crew.start("postgres_fork", server.url, flavour)
        assert worker.hear()["ready"]
        wait_until(lambda: desk.inspect("theirs").waiters, "the parent waits")
        (waiter,) = desk.inspect("theirs").waiters
        (mine,) = desk.inspect("mine").holders
        before = {one["pid"] for one in activity(server)}
        worker.tell()
        child = worker.hear()
        assert child["who"] == "child"
        assert "error" not in child, child["error"]
        assert child["held"] is False
        assert child["released"] is False
        assert child["tried"] is None, "the child was let in though the parent holds it"
        assert child["verified"] is True
        assert child["waited"] is True
        if flavour == "blocking":
            assert child["kept"] == child["shared"] == 0
        else:
            assert len(child["sockets"]) <= 2  # those that the parent's event loop wakes itself with
        parent = worker.hear()
        assert parent["held"]
        assert parent["verified"]
        assert before <= {one["pid"] for one in activity(server)}, (
            "the child ended a connection of the parent's"
        )
        assert [entry.owner for entry in desk.inspect("mine").holders] == [mine.owner]
        assert [entry.owner for entry in desk.inspect("theirs").waiters] == [waiter.owner]
        assert desk(theirs.release)
        granted = worker.hear()
        assert granted["token"] == waiter.token
        assert granted["released"] == [True, True]
        assert worker.end() == 0, worker.errors
        assert not worker.errors, worker.errors


def test_two_loops_are_told_apart(server: Any) -> None:
    """A client of asyncio belongs to one loop; its connections end with it."""

    async def use() -> None:
        async with AsyncClient(server.url) as locks, locks.lock("job"):
            assert await locks.lock("job").try_acquire() is None

    for _ in range(3):
        asyncio.run(use())
    wait_until(lambda: not activity(server), "nobody is connected")
