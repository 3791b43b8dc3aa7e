"""Connections: who has how many, who gives them back, and that no two processes ever share one.

The server is asked (CLIENT LIST), since a client that has lost count of its sockets cannot be.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from crew import Crew, wait_until
from redis_desk import FLAVOURS, connections, desk_for, proxied, residue
from tools.servers import start

from fencelock import AsyncClient, Client
from fencelock.backends.redis.commands import ACQUIRE

LONG = 60.0


@pytest.fixture
def group() -> Iterator[Any]:
    with start("redis") as group:
        yield group


def count(server: Any, kind: str = "") -> int:
    return len(connections(server, kind))


def expect(server: Any, number: int, kind: str = "") -> None:
    """Fail unless there are so many, soon: one that stood still is replaced, and closed a little later."""
    wait_until(lambda: count(server, kind) == number, f"there are {number} connections {kind}")


def test_each_thread_has_one_and_gives_it_back_when_it_ends(group: Any, server: Any) -> None:
    with Client(group.url) as locks:
        here, leave = threading.Barrier(9), threading.Barrier(9)

        def work(number: int) -> None:
            for turn in range(5):
                locks.lock(f"job-{number}-{turn}").acquire().release()
            here.wait(30)
            leave.wait(30)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        here.wait(30)
        expect(server, 8, "normal")
        leave.wait(30)
        for thread in threads:
            thread.join(30)
        wait_until(lambda: count(server) == 0, "the threads have given back theirs")
        locks.lock("job").acquire().release()
        expect(server, 1)
    wait_until(lambda: count(server) == 0, "closing leaves none")


def test_a_thread_that_saw_an_outage_gives_it_back_when_it_ends(group: Any, server: Any) -> None:
    """Errors refer to the frames they came through; none of these may keep the thread's connection."""
    with Client(group.url) as locks:

        def work() -> None:
            locks.lock("job").acquire().release()
            server.kill()
            back = threading.Timer(0.5, server.restart)
            back.start()
            locks.lock("job").acquire(timeout=30).release()  # it rides out the outage, and keeps its cause
            back.join()

        gc.disable()
        try:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join(60)
            wait_until(lambda: count(server) == 0, "the thread has given back its own")
        finally:
            gc.enable()


def test_all_tasks_have_one_and_all_waiters_another(group: Any, server: Any) -> None:
    async def main() -> None:
        async with AsyncClient(group.url) as locks:
            held = await locks.lock("job", ttl=LONG).acquire()
            await asyncio.to_thread(expect, server, 1)

            async def work(number: int) -> None:
                for turn in range(5):
                    async with locks.lock(f"job-{number}-{turn}"):
                        pass
                async with locks.lock("job", ttl=LONG):
                    pass

            tasks = [asyncio.create_task(work(number)) for number in range(100)]
            while len((await locks.inspect("job")).waiters) < 100:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(expect, server, 1, "normal")
            await asyncio.to_thread(expect, server, 1, "pubsub")
            await held.release()
            await asyncio.gather(*tasks)
            await asyncio.to_thread(expect, server, 2)

    asyncio.run(main())
    wait_until(lambda: count(server) == 0, "closing leaves none")
    assert residue(server) == []


def test_a_crowd_that_connects_at_once_makes_one_connection(group: Any, server: Any) -> None:
    async def main() -> None:
        async with AsyncClient(group.url) as locks:
            leases = await asyncio.gather(*(locks.lock(f"job-{n}").acquire() for n in range(100)))
            await asyncio.to_thread(expect, server, 1)
            await asyncio.gather(*(lease.release() for lease in leases))

    asyncio.run(main())
    wait_until(lambda: count(server) == 0, "closing leaves none")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_closing_while_others_wait_and_hold_leaves_neither_keys_nor_connections(
    group: Any, server: Any, flavour: str
) -> None:
    with desk_for(flavour, group.url) as other:
        held = other.acquire("busy", ttl=LONG)
        desk = desk_for(flavour, group.url)
        mine = desk.acquire("job", ttl=LONG)
        waits = [desk.waiting("busy", ttl=LONG) for _ in range(4)]
        wait_until(lambda: len(other.inspect("busy").waiters) == 4, "they wait")
        before = count(server)
        desk.close()
        for wait in waits:
            assert wait.exception(30) is not None
        assert not mine.is_held()
        assert other.inspect("busy").waiters == ()
        assert other.inspect("job").is_free
        wait_until(lambda: count(server) < before - 1, "its connections are closed")
        assert other(held.release)
    wait_until(lambda: count(server) == 0, "nobody is connected")
    assert residue(server) == []


def test_a_client_that_is_garbage_leaves_neither_keys_nor_connections(group: Any, server: Any) -> None:
    locks = Client(group.url)
    lease = locks.lock("job", ttl=LONG).acquire().__enter__()
    assert lease.is_held()
    del locks, lease
    gc.collect()
    wait_until(lambda: count(server) == 0 and not residue(server), "nothing is left")


def test_a_client_that_nobody_closed_is_made_up_for_at_the_end_of_the_program(
    group: Any, server: Any, crew: Crew
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
        member = crew.python(code, group.url, flavour)
        assert member.end() == 0, member.errors
        assert residue(server) == [], flavour
        wait_until(lambda: count(server) == 0, "nobody is connected")


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_fork(crew: Crew, flavour: str, scheme: str) -> None:
    """Parent and child both go on; the child holds nothing of the parent's, and shares no socket with it."""
    with start(scheme) as group, desk_for("blocking", group.url) as desk:
        theirs = desk.acquire("theirs", ttl=LONG)
        worker = crew.start("redis_fork", group.url, flavour)
        assert worker.hear()["ready"]
        wait_until(lambda: desk.inspect("theirs").waiters, "the parent waits")
        (waiter,) = desk.inspect("theirs").waiters
        (mine,) = desk.inspect("mine").holders
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
        assert [entry.owner for entry in desk.inspect("mine").holders] == [mine.owner]
        assert [entry.owner for entry in desk.inspect("theirs").waiters] == [waiter.owner]
        assert desk(theirs.release)
        granted = worker.hear()
        assert granted["token"] == waiter.token
        assert granted["released"] == [True, True]
        assert worker.end() == 0, worker.errors
        assert residue(group.members[0]) == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_interrupted_while_it_waits_it_leaves_nothing(
    group: Any, server: Any, crew: Crew, flavour: str
) -> None:
    with desk_for("blocking", group.url) as desk:
        held = desk.acquire("job", ttl=LONG)
        for _ in range(3):
            worker = crew.start("redis_waiter", group.url, flavour, "job", LONG)
            wait_until(lambda: desk.inspect("job").waiters, "it waits")
            worker.signal(signal.SIGINT)
            assert worker.end() != 0
            assert "KeyboardInterrupt" in worker.errors
            assert desk.inspect("job").waiters == ()
        assert desk(held.release)
    wait_until(lambda: count(server) == 0, "nobody is connected")
    assert residue(server) == []


def test_to_connect_leaves_nothing_for_the_collector(group: Any) -> None:
    """A destructor that the collector runs swallows the Ctrl-C that comes meanwhile."""
    with Client(group.url) as locks:
        server = locks._session.backend._wire.topology.home()
        server.dial(5).close()
        gc.collect()
        gc.disable()
        try:
            server.dial(5).close()
            assert gc.collect() == 0
        finally:
            gc.enable()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_interrupted_while_its_reply_is_on_the_way_it_leaves_nothing(
    group: Any, server: Any, crew: Crew, flavour: str
) -> None:
    with desk_for("blocking", group.url) as desk, proxied(group.url) as (proxy, url):
        desk(desk.acquire("warm up").release)
        with proxy.hold("replies", match=lambda data: ACQUIRE.sha.encode() in data) as hold:
            worker = crew.start("redis_waiter", url, flavour, "job", LONG)
            wait_until(lambda: desk.inspect("job").holders, "it holds, and does not know")
            assert hold.wait(30)
            worker.signal(signal.SIGINT)
            assert worker.end() != 0
            assert "KeyboardInterrupt" in worker.errors
        wait_until(lambda: desk.inspect("job").is_free, "nothing is left", LONG / 2)
    assert residue(server) == []


def test_a_signal_handler_may_take_a_lock_itself(group: Any, server: Any, crew: Crew) -> None:
    with desk_for("blocking", group.url) as desk:
        held = desk.acquire("job", ttl=LONG)
        worker = crew.start("redis_signals", group.url, "handler")
        assert worker.hear()["ready"]
        wait_until(lambda: desk.inspect("job").waiters, "it waits")
        for _ in range(5):
            os.kill(worker.pid, signal.SIGUSR1)
            said = worker.hear()
            assert said["verified"]
            assert said["released"]
        blocker = desk.acquire("handler", ttl=LONG)  # the handler has to wait as well
        os.kill(worker.pid, signal.SIGUSR1)
        wait_until(lambda: desk.inspect("handler").waiters, "the handler waits")
        assert desk(blocker.release)
        assert worker.hear()["verified"]
        assert desk(held.release)
        assert worker.hear()["verified"]
        worker.tell()
        assert worker.end() == 0, worker.errors
    assert residue(server) == []


def test_signals_do_not_prolong_a_timeout(group: Any, server: Any, crew: Crew) -> None:
    """A program with a timer gets signals all the time, and each interrupts a read."""
    with desk_for("blocking", group.url) as desk:
        held = desk.acquire("job", ttl=LONG)
        worker = crew.start("redis_signals", group.url, "timer")
        assert worker.hear()["ready"]
        for timeout in (0.5, 1.5):
            said = worker.hear(20)
            assert said["error"] == "AcquireTimeout"
            assert timeout <= said["waited"] <= timeout + 10.0
        worker.tell()
        assert worker.end() == 0, worker.errors
        assert desk(held.release)
    assert residue(server) == []


def test_signals_do_not_prolong_a_timeout_when_the_server_falls_silent(group: Any, crew: Crew) -> None:
    with proxied(group.url) as (proxy, url):
        worker = crew.start("redis_signals", url, "silent")
        assert worker.hear()["ready"]
        with proxy.hold("replies"):
            worker.tell()
            assert worker.hear()["ready"]
            for timeout in (0.5, 1.5):
                said = worker.hear(20)
                assert said["error"] == "BackendUnavailable"
                assert said["waited"] <= timeout + 10.0
        worker.tell()
        assert worker.end() == 0, worker.errors


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_connections_that_the_server_closes_when_idle_are_not_missed(flavour: str) -> None:
    with start("redis", settings={"timeout": "1"}) as group, desk_for(flavour, group.url) as desk:
        for _ in range(2):
            lease = desk.acquire("job", ttl=LONG)
            wait_until(lambda: count(group.members[0]) == 0, "the server has hung up")
            assert desk(lease.release)
            wait_until(lambda: count(group.members[0]) == 0, "the server has hung up")
