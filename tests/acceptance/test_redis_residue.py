"""No residue: a million names, each locked once, leave nothing but the counters, however they were used.

`make test` takes a part of that; FENCELOCK_NAMES=1000000 asks for all.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from crew import wait_until
from redis_desk import FLAVOURS, connections, counters, desk_for, residue
from tools.servers import start

from fencelock import AcquireTimeout, AsyncClient, BackendUnavailable
from fencelock.backends.redis.keys import BUCKETS
from fencelock.testing import view

NAMES = int(os.environ.get("FENCELOCK_NAMES", "20000"))
TASKS = 200
RARE = 97
GIVES_UP = AcquireTimeout, BackendUnavailable
"""What a wait of a few milliseconds ends with: there may have been no answer at all by then."""
ROOM = 2 << 20
"""Bytes that the server's own book-keeping may differ by: buffers of clients, the scripts, the counters."""


@pytest.fixture(params=["redis", "valkey"])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    with start(request.param) as group:
        yield group.members[0]


def memory(server: Any) -> int:
    server.ask("MEMORY", "PURGE")
    return int(server.info("INFO", "memory")["used_memory"])


async def use(locks: AsyncClient, name: str, number: int) -> None:
    """Lock a name and release it; now and then in an unusual way."""
    if number % RARE:
        lease = await locks.lock(name).acquire()
        await lease.release()
        return
    async with locks.lock(name, metadata={"n": number}):
        assert await locks.lock(name).try_acquire() is None
        with pytest.raises(GIVES_UP):
            await locks.lock(name).acquire(timeout=0.01)
        async with locks.semaphore(f"{name}/permit", 3), locks.rwlock(f"{name}/read").read():
            await locks.force_release(f"{name}/other")
        waiter = asyncio.create_task(locks.lock(name).acquire())
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter


async def use_all(locks: AsyncClient, count: int) -> None:
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await use(locks, f"{uuid.UUID(int=number)}#send_email", number)

    async with asyncio.TaskGroup() as group:
        for _ in range(TASKS):
            group.create_task(work())


def test_distinct_names_leave_nothing_but_the_counters(server: Any, record_property: Any) -> None:
    async def main() -> tuple[int, int, float]:
        async with AsyncClient(f"redis://{server.address}") as locks:
            await use_all(locks, 2000)  # every bucket, every script
            before = memory(server)
            started = time.monotonic()
            await use_all(locks, NAMES)
            seconds = time.monotonic() - started
            return before, memory(server), seconds

    before, after, seconds = asyncio.run(main())
    told = f"{NAMES} names in {seconds:.1f}s: used_memory {before} before, {after} after"
    record_property("residue", told)
    print(told)
    assert residue(server) == []
    assert server.ask("DBSIZE") == len(counters(server)) <= BUCKETS
    assert after - before < ROOM
    wait_until(lambda: not connections(server), "nobody is connected")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_lock_that_nobody_releases_leaves_nothing_when_its_time_is_over(server: Any, flavour: str) -> None:
    """Key expiry stands behind everything: a crash leaves nothing, though nobody ever looks."""
    with desk_for(flavour, f"redis://{server.address}") as desk:
        leases = [desk.acquire(f"job-{number}", ttl=0.5, renew=False) for number in range(50)]
        assert len(residue(server)) == 50
        wait_until(lambda: not residue(server), "all have expired")
        assert not any(lease.is_held() for lease in leases)
        assert len(counters(server)) <= 50


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_waiters_that_time_out_leave_nothing(server: Any, flavour: str) -> None:
    with desk_for(flavour, f"redis://{server.address}") as desk:
        held = desk.acquire("job", ttl=60)
        waits = [desk.waiting("job", timeout=0.3) for _ in range(30)]
        for wait in waits:
            assert isinstance(wait.exception(30), AcquireTimeout)
        (key,) = residue(server)
        assert sorted(server.ask("HKEYS", key)) == sorted(["queue", "holders", held.owner])
        assert desk(held.release)
        assert residue(server) == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_key_that_is_no_counter_has_an_expiry(server: Any, flavour: str) -> None:
    with desk_for(flavour, f"redis://{server.address}") as desk:
        leases = [desk.acquire("job", ttl=20)]
        leases.append(desk(desk.locks.rwlock("read", ttl=20).read().acquire))
        leases.append(desk(desk.locks.semaphore("permit", 2, ttl=20).acquire))
        desk(leases[0].extend, 40)
        waits = [desk.waiting("job", ttl=20, timeout=60) for _ in range(3)]
        wait_until(lambda: len(desk.inspect("job").waiters) == 3, "they wait")
        for key in residue(server):
            assert 0 < server.ask("PTTL", key) <= 40_000
        for lease in leases:
            assert desk(lease.release)
        while waits:
            done = wait_until(lambda: next((w for w in waits if w.done()), None), "the next has it")
            waits.remove(done)
            for key in residue(server):
                assert 0 < server.ask("PTTL", key) <= 40_000
            assert desk(done.result().release)
        assert residue(server) == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_client_keeps_nothing_of_names_it_has_released(server: Any, flavour: str) -> None:
    with desk_for(flavour, f"redis://{server.address}") as desk:
        for number in range(300):
            lease = desk.acquire(f"job-{number}")
            if number % 10 == 0:
                with pytest.raises(GIVES_UP):
                    desk.acquire(f"job-{number}", timeout=0.01)
            desk(lease.release)
        wait_until(lambda: not view.pending_cleanups(desk.locks), "no cleanup is pending")
        assert view.kept(desk.locks) == []
        backend = desk.locks._session.backend
        assert not backend._waiting
        assert not backend._listener._slots
