"""Leases of etcd's: what ends with them, what keeps them, and that none is left over."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from crew import wait_until
from etcd_desk import delete, keys, lease_of, leases, revoke
from redis_desk import FLAVOURS, Desk, desk_for
from tools.servers import start

from fencelock import AcquireTimeout, AsyncClient, BackendUnavailable, LeaseLost
from fencelock.backends.base import Renewal
from fencelock.backends.etcd.connection import Etcd
from fencelock.testing.conformance.expect import took

NAMES = int(os.environ.get("FENCELOCK_NAMES", "2000"))
TASKS = 100
MANY = int(os.environ.get("FENCELOCK_LEASES", "2000"))
SLACK = 10.0
"""Seconds that a busy machine may add."""


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("etcd", settings={"unsafe-no-fsync": "true"}) as group:
        yield group


@pytest.fixture
def server(group: Any) -> Iterator[Any]:
    """The server, on which every test leaves nothing."""
    yield group.members[0]
    wait_until(lambda: not keys(group.members[0]), "no key is left")
    wait_until(lambda: not leases(group.members[0]), "no lease is left")


@pytest.fixture(params=FLAVOURS)
def desk(group: Any, server: Any, request: pytest.FixtureRequest) -> Iterator[Desk]:
    with desk_for(request.param, group.url) as desk:
        yield desk


def key_of(server: Any, owner: str) -> str:
    (key,) = [key for key in keys(server) if key.endswith(owner)]
    return key


def test_a_lease_that_is_revoked_is_lost_to_whoever_holds_in_it(desk: Desk, server: Any) -> None:
    lease = desk.acquire("job", ttl=2)
    revoke(server, lease_of(server, key_of(server, lease.owner)))
    wait_until(lambda: not lease.is_held(), "the loss is known", 2 + SLACK)
    with pytest.raises(LeaseLost):
        lease.check()
    again = desk.acquire("job", ttl=2)
    assert again.token > lease.token
    assert desk(again.release)


def test_a_key_that_is_deleted_is_lost_at_the_next_renewal(desk: Desk, server: Any) -> None:
    lease, other = desk.acquire("job", ttl=2), desk.acquire("other", ttl=2)
    delete(server, key_of(server, lease.owner))
    wait_until(lambda: not lease.is_held(), "the loss is known", 2 + SLACK)
    assert desk(other.verify)
    assert desk(other.release)


def waiter_of(desk: Desk, server: Any, held: Any) -> tuple[Any, str]:
    """The one who waits, and the lease that its key lives in.

    It enters on the lease that it would hold on, which it may share with the holder, and moves once it waits.
    """
    holding = lease_of(server, key_of(server, held.owner))

    def moved() -> tuple[Any, str] | None:
        for waiter in desk.inspect("job").waiters:
            lease = lease_of(server, key_of(server, waiter.owner))
            if lease != holding:
                return waiter, lease
        return None

    return wait_until(moved, "one waits, on a lease of those that wait")


def test_a_waiter_whose_lease_is_revoked_waits_on(desk: Desk, server: Any) -> None:
    held = desk.acquire("job", ttl=30)
    wait = desk.waiting("job", ttl=30)
    waiter, lease_id = waiter_of(desk, server, held)
    revoke(server, lease_id)
    wait_until(lambda: [w.token > waiter.token for w in desk.inspect("job").waiters] == [True], "it is back")
    assert not wait.done()
    assert desk(held.release)
    lease = wait.result(10)
    assert desk(lease.verify)
    assert lease.token > held.token
    assert desk(lease.release)


def test_a_waiter_whose_lease_dies_as_its_turn_comes_is_not_admitted_on_it(desk: Desk, server: Any) -> None:
    held = desk.acquire("job", ttl=30)
    wait = desk.waiting("job", ttl=30)
    waiter, lease_id = waiter_of(desk, server, held)
    revoke(server, lease_id)
    delete(server, key_of(server, held.owner))
    lease = wait.result(30)
    assert lease_of(server, key_of(server, lease.owner)) != lease_id
    assert lease.token > waiter.token
    assert desk(lease.verify)
    assert desk(lease.release)
    assert not desk(held.verify)


def test_failed_and_cancelled_attempts_leave_no_lease(group: Any, server: Any) -> None:
    async def main() -> list[int]:
        async with AsyncClient(group.url) as locks, locks.lock("job", ttl=30):
            counts = []
            for _ in range(2):
                for _ in range(500):
                    assert await locks.lock("job", ttl=20).try_acquire() is None
                waits = [asyncio.ensure_future(locks.lock("job", ttl=20).acquire()) for _ in range(500)]
                await asyncio.sleep(0.3)
                for wait in waits:
                    wait.cancel()
                for result in await asyncio.gather(*waits, return_exceptions=True):
                    assert isinstance(result, asyncio.CancelledError)
                await asyncio.to_thread(wait_until, lambda: len(keys(server)) == 1, "only one is left")
                counts.append(len(leases(server)))
            return counts

    first, second = asyncio.run(main())
    assert max(first, second) <= 3  # the holder's, the attempts', the waiters'


def test_failed_attempts_of_a_thread_leave_no_lease(group: Any, server: Any) -> None:
    with desk_for("blocking", group.url) as desk:
        held = desk.acquire("job", ttl=30)
        for _ in range(1000):
            assert desk.locks.lock("job", ttl=20).try_acquire() is None
        for _ in range(20):
            with pytest.raises((AcquireTimeout, BackendUnavailable)):  # a busy one may not answer by then
                desk.acquire("job", ttl=20, timeout=0.02)
        assert len(leases(server)) <= 3
        assert len(keys(server)) == 1
        assert desk(held.release)


def test_many_leases_cost_one_heartbeat(
    group: Any, server: Any, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    calls = count_calls(monkeypatch)

    async def main() -> tuple[list[str], int]:
        async with AsyncClient(group.url) as locks:
            leases: list[Any] = []
            for part in range(0, MANY, 500):
                taken = [locks.lock(f"job-{part + number}", ttl=20).acquire() for number in range(500)]
                leases += await asyncio.gather(*taken)
            backend = locks._session.backend
            calls.clear()
            renewed = await backend.renew(
                [renewal(lease) for lease in leases], deadline=backend.runtime.now() + 20
            )
            during = list(calls)
            assert {outcome.value for outcome in renewed} == {"renewed"}
            held = sum(lease.is_held() for lease in leases)
            for part in range(0, MANY, 500):
                await asyncio.gather(*(lease.release() for lease in leases[part : part + 500]))
            return during, held

    during, held = asyncio.run(main())
    record_property("calls", during)
    assert held == MANY
    assert sorted(during) == ["LeaseKeepAlive", "LeaseTimeToLive"]


def renewal(lease: Any) -> Renewal:
    hold = lease._hold
    return Renewal(hold.request, hold.token, hold.ttl, True)


def test_distinct_names_leave_nothing(group: Any, server: Any, record_property: Any) -> None:
    async def main() -> float:
        numbers = iter(range(NAMES))

        async def work(locks: AsyncClient) -> None:
            for number in numbers:
                lease = await locks.lock(f"{uuid.UUID(int=number)}#send_email").acquire()
                await lease.release()

        async with AsyncClient(group.url) as locks:
            began = time.monotonic()
            async with asyncio.TaskGroup() as tasks:
                for _ in range(TASKS):
                    tasks.create_task(work(locks))
            assert keys(server) == []
            assert len(leases(server)) == 1
            return time.monotonic() - began

    told = f"{NAMES} names in {asyncio.run(main()):.1f}s"
    record_property("residue", told)
    print(told)


@pytest.mark.timing
def test_a_timeout_ends_in_time_whatever_wakes_in_between(desk: Desk, server: Any) -> None:
    """The places before it come and go all the time, and none of that restarts its clock."""
    held = desk.acquire("job", ttl=30)
    noise = [desk.waiting("job", timeout=0.1 * number, ttl=30) for number in range(1, 9)]
    wait_until(lambda: len(desk.inspect("job").waiters) > 3, "they wait")
    began = time.monotonic()
    with pytest.raises(AcquireTimeout):
        desk.acquire("job", timeout=1, ttl=30)
    waited = time.monotonic() - began
    for wait in noise:
        assert isinstance(wait.exception(30), AcquireTimeout)
    assert desk(held.release)
    took(1.0, waited, 1.5, "the wait")


def test_a_compacted_history_does_not_stop_a_wait(desk: Desk, server: Any) -> None:
    """The revision that a watch would begin at may be gone: then the queue is read again."""
    held = desk.acquire("job", ttl=30)
    wait = desk.waiting("job", ttl=30)
    wait_until(lambda: desk.inspect("job").waiters, "one waits")
    for _ in range(20):
        desk(desk.acquire("other").release)
    revision = server.ask("kv/range", {"key": "AA=="})["header"]["revision"]
    server.ask("kv/compaction", {"revision": revision, "physical": True})
    assert desk(held.release)
    lease = wait.result(10)
    assert desk(lease.verify)
    assert desk(lease.release)


def test_leaders_are_observed_by_watch(
    desk: Desk, group: Any, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is asked while nothing changes."""
    election = desk.locks.election("leader")
    seen: list[str | None] = []

    def observe() -> None:
        for entry in election.observe():
            seen.append(entry and entry.owner)
            if len(seen) == 3:
                return

    async def observe_tasks() -> None:
        async for entry in election.observe():
            seen.append(entry and entry.owner)
            if len(seen) == 3:
                return

    watching = desk.begin(observe_tasks if isinstance(desk.locks, AsyncClient) else observe)
    wait_until(lambda: seen == [None], "nobody leads")
    calls = count_calls(monkeypatch)
    time.sleep(1.0)
    assert calls == []
    monkeypatch.undo()
    with desk_for("blocking", group.url) as other:
        lease = other.locks.election("leader").lead().acquire(timeout=10)
        wait_until(lambda: len(seen) == 2, "somebody leads", 2 + SLACK)
        assert lease.release()
        watching.result(2 + SLACK)
    assert seen == [None, lease.owner, None]


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of every call from now on."""
    calls: list[str] = []
    counted = Etcd.call_counted

    async def call_counted(self: Etcd, method: Any, request: Any, deadline: float, tag: str = "") -> Any:
        calls.append(method.path.rpartition("/")[2])
        return await counted(self, method, request, deadline, tag)

    monkeypatch.setattr(Etcd, "call_counted", call_counted)
    return calls
