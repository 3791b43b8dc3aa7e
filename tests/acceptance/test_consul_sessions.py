"""Sessions of Consul: none is leaked, few are renewed, and whatever ends one, its leases end with it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from consul_desk import (
    FLAVOURS,
    ask,
    counted,
    desk_for,
    destroy,
    keys,
    nothing_left,
    proxied,
    requests,
    session_of,
    sessions,
    settled_session,
)
from crew import Crew, wait_until
from tools.servers import start

from fencelock import AcquireTimeout, AsyncClient, BackendUnavailable, ConfigurationError, LeaseLost
from fencelock.backends.consul.connection import Consul
from fencelock.backends.consul.protocol import Question
from fencelock.runtime.blocking import run
from fencelock.testing import view
from fencelock.testing.conformance.expect import took

TTL = 10.0
NAMES = int(os.environ.get("FENCELOCK_NAMES", "2000"))
MANY = int(os.environ.get("FENCELOCK_LEASES", "2000"))
TASKS = 32
RARE = 97
GIVES_UP = AcquireTimeout, BackendUnavailable
"""What a wait of a few milliseconds ends with: there may have been no answer at all by then."""
WAITER = """
import sys
import fencelock

url, name = sys.argv[1:]
with fencelock.Client(url) as locks, locks.lock(name, ttl=60):
    pass
"""


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("consul") as group:
        yield group


@pytest.fixture
def server(group: Any) -> Iterator[Any]:
    yield group.members[0]
    nothing_left(group.members[0])


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# A session ends ---------------------------------------------------------------------------------------


def test_a_session_that_ends_takes_its_leases_along(group: Any, server: Any, flavour: str) -> None:
    with desk_for(flavour, group.url) as desk, desk_for("blocking", group.url) as other:
        lost: list[Any] = []

        async def note(lease: Any) -> None:
            lost.append(lease)

        told = note if flavour == "asyncio" else lost.append
        leases = [desk.acquire(f"job-{n}", ttl=TTL, on_lost=told) for n in range(3)]
        kept = desk.acquire("kept", ttl=60)
        destroy(server, session_of(server, leases[0].owner))
        successor = other.acquire("job-0", ttl=60, timeout=1)
        assert successor.token > leases[0].token
        wait_until(lambda: len(lost) == 3, "all three are known to be lost", TTL)
        for lease in leases:
            assert not lease.is_held()
            assert not desk(lease.verify)
            with pytest.raises(LeaseLost):
                lease.check()
        assert kept.is_held()
        assert desk(kept.verify)
        assert desk(kept.release)
        again = desk.acquire("job-1", ttl=TTL)
        assert again.token > successor.token
        assert desk(again.release)
        assert other(successor.verify)
        assert other(successor.release)
        time.sleep(0.1)
        assert len(lost) == 3


def test_verify_knows_at_once(group: Any, server: Any, flavour: str) -> None:
    with desk_for(flavour, group.url) as desk:
        lease = desk.acquire("job", ttl=60)
        destroy(server, session_of(server, lease.owner))
        assert not desk(lease.verify)
        assert not lease.is_held()


def test_a_waiter_is_never_admitted_on_a_dead_session(group: Any, server: Any, flavour: str) -> None:
    with desk_for(flavour, group.url) as desk, desk_for("blocking", group.url) as other:
        held = other.acquire("job", ttl=60)
        waits = desk.waiting("job", ttl=60)
        wait_until(lambda: len(other.inspect("job").waiters) == 1, "it waits")
        before = other.inspect("job").waiters[0]
        destroy(server, settled_session(server, before.owner))
        wait_until(lambda: other.inspect("job").waiters, "it stands in line again")
        after = other.inspect("job").waiters[0]
        assert after.owner == before.owner
        assert after.token > before.token
        assert not waits.done()
        assert other(held.release)
        lease = waits.result(60)
        assert lease.token == after.token > held.token
        assert desk(lease.verify)
        assert desk(lease.release)


def test_its_turn_comes_while_its_session_dies(group: Any, server: Any, flavour: str) -> None:
    """The holder leaves and the waiter's session ends in the same moment: it stands in line anew."""
    with desk_for(flavour, group.url) as desk, desk_for("blocking", group.url) as other:
        for _ in range(5):
            held = other.acquire("job", ttl=60)
            waits = desk.waiting("job", ttl=60)
            wait_until(lambda: len(other.inspect("job").waiters) == 1, "it waits")
            (waiter,) = other.inspect("job").waiters
            session = settled_session(server, waiter.owner)
            ending = other.begin(other.locks.force_release, "job")
            destroy(server, session)
            assert [entry.owner for entry in ending.result(10)] == [held.owner]
            lease = waits.result(10)
            (holder,) = other.inspect("job").holders
            assert (holder.owner, holder.token) == (lease.owner, lease.token)
            assert lease.token > held.token
            assert desk(lease.release)
            assert not other(held.verify)


def test_a_key_that_is_deleted_is_a_lease_that_is_lost(group: Any, server: Any, flavour: str) -> None:
    with desk_for(flavour, group.url) as desk:
        lease = desk.acquire("job", ttl=TTL)
        (record,) = requests(server)
        ask(server, "DELETE", f"kv/{record['Key']}")
        wait_until(lease.lost.is_set, "it is known to be lost", TTL)
        again = desk.acquire("job", ttl=TTL)
        assert again.token > lease.token
        assert desk(again.release)


@pytest.mark.timing
def test_a_dead_waiter_costs_a_few_seconds_and_not_a_session(group: Any, server: Any, crew: Crew) -> None:
    """Two of them, in a row; what they leave is removed by the one behind them."""
    with desk_for("blocking", group.url) as desk, desk_for("asyncio", group.url) as other:
        held = desk.acquire("job", ttl=60)
        dead = []
        for number in (1, 2):
            dead.append(crew.python(WAITER, group.url, "job"))
            wait_until(lambda n=number: len(desk.inspect("job").waiters) == n, "it waits")
        behind = other.waiting("job", ttl=60)
        wait_until(lambda: len(desk.inspect("job").waiters) == 3, "all wait")
        time.sleep(1.5)
        for one in dead:
            one.signal(signal.SIGKILL)
        assert desk(held.release)
        began = time.monotonic()
        lease = behind.result(15)
        took(0.0, time.monotonic() - began, 6.0, "the wait behind two dead ones")
        assert len(requests(server)) == 1
        assert other(lease.release)
    for left in sessions(server):  # theirs, which end by themselves in twenty seconds
        destroy(server, left["ID"])


# How many there are -------------------------------------------------------------------------------------


def test_failed_tries_leak_no_session(group: Any, server: Any, flavour: str) -> None:
    with desk_for("blocking", group.url) as other, desk_for(flavour, group.url) as desk:
        held = other.acquire("job", ttl=60)
        assert desk(desk.locks.lock("job").try_acquire) is None
        before = len(sessions(server))
        lock = desk.locks.lock("job")
        waits = [desk.begin(_tries, flavour, lock, 100) for _ in range(10)]
        assert [wait.result(60) for wait in waits] == [None] * 10
        assert len(sessions(server)) == before == 2
        assert len(requests(server)) == 1
        assert other(held.release)


def _tries(flavour: str, lock: Any, count: int) -> Any:
    async def later() -> None:
        for _ in range(count):
            assert await lock.try_acquire() is None

    if flavour == "asyncio":
        return later()
    for _ in range(count):
        assert lock.try_acquire() is None
    return None


def test_cancelled_waits_leak_no_session(group: Any, server: Any) -> None:
    """Cancelled at any moment: in the first steps, in the middle, and long after."""

    async def main() -> None:
        async with AsyncClient(group.url) as other, AsyncClient(group.url) as locks:
            held = await other.lock("job", ttl=60).acquire()

            async def cancelled(number: int) -> None:
                task = asyncio.create_task(locks.lock("job").acquire(timeout=60))
                await asyncio.sleep((number % 40) / 1000)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

            for start_ in range(0, 1000, 20):
                await asyncio.gather(*[cancelled(start_ + n) for n in range(20)])
            found = await asyncio.to_thread(sessions, server)
            assert len(found) <= 3, found
            assert len(await asyncio.to_thread(requests, server)) == 1
            assert not (await other.inspect("job")).waiters
            assert await held.release()

    asyncio.run(main())
    for left in sessions(server):  # begun by a request whose answer nobody waited for; it ends by itself
        destroy(server, left["ID"])


def test_waits_that_time_out_leak_no_session(group: Any, server: Any) -> None:
    with desk_for("blocking", group.url) as desk, desk_for("blocking", group.url) as other:
        held = other.acquire("job", ttl=60)

        def give_up(number: int) -> bool:
            try:
                desk.locks.lock("job").acquire(timeout=(number % 40 + 1) / 1000)
            except GIVES_UP:
                return True
            return False

        with ThreadPoolExecutor(20) as pool:
            assert all(pool.map(give_up, range(1000)))
        wait_until(lambda: not view.pending_cleanups(desk.locks), "no cleanup is pending")
        assert len(sessions(server)) <= 3
        wait_until(lambda: len(requests(server)) == 1, "nobody stands in line")
        assert other(held.release)


def test_a_session_whose_answer_was_lost_is_ended(group: Any, server: Any, flavour: str) -> None:
    with proxied(group.url) as (proxy, url), desk_for(flavour, url) as desk:
        fault = proxy.swallow(1, match=lambda data: b"session/create" in data)
        lease = desk.acquire("job", ttl=60)
        assert fault.struck
        assert [one["ID"] for one in sessions(server)] == [session_of(server, lease.owner)]
        assert desk(lease.release)


def test_a_step_that_is_taken_after_its_withdrawal_leaves_no_ghost(
    group: Any, server: Any, flavour: str
) -> None:
    """Its record would stand in line for as long as the client renews the session."""
    lost: list[bytes] = []

    def is_step(data: bytes) -> bool:
        if b'"lock"' not in data:
            return False
        lost.append(data)
        return True

    with proxied(group.url) as (proxy, url), desk_for(flavour, url) as desk:
        kept = desk.acquire("kept", ttl=TTL)
        with proxy.fail(1000, match=is_step), pytest.raises(BackendUnavailable):
            desk.acquire("job", ttl=TTL, timeout=0.5)
        wait_until(lambda: not view.pending_cleanups(desk.locks), "it was withdrawn, and once more")
        with socket.create_connection((server.host, server.port), 10) as late:
            late.sendall(lost[0])
            assert late.recv(1000).startswith(b"HTTP/1.1 200")
        assert len(requests(server)) == 2
        wait_until(lambda: len(requests(server)) == 1, "the ghost is gone", 2 * TTL)
        assert desk(kept.verify)
        assert desk(kept.release)


def test_many_leases_cost_one_heartbeat(group: Any, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted where requests are written: so many would take a proxy a minute."""
    asked: list[str] = []
    question = Consul.question

    def counting(consul: Consul, method: str, path: str, body: bytes = b"") -> Question:
        asked.append(f"{method} {path}")
        return question(consul, method, path, body)

    def count(words: str) -> int:
        return sum(words in one for one in asked)

    monkeypatch.setattr(Consul, "question", counting)

    async def main() -> None:
        async with AsyncClient(group.url) as locks:
            numbers = iter(range(MANY))

            async def take() -> list[Any]:
                return [await locks.lock(f"job-{number}", ttl=15).acquire() for number in numbers]

            taken = await asyncio.gather(*[take() for _ in range(TASKS)])
            leases = [lease for some in taken for lease in some]
            assert len({lease.token for lease in leases}) == MANY
            assert count("session/create") <= 2, "and one more if the node was not there yet"
            before = {lease.owner: lease.remaining() for lease in leases}
            asked.clear()
            await asyncio.sleep(5.5)
            assert all(lease.is_held() for lease in leases)
            assert all(lease.remaining() > before[lease.owner] - 5.0 for lease in leases), "each was renewed"
            beats = count("session/renew")
            assert 1 <= beats <= 12, beats
            assert len(asked) <= beats * 5, "and their keys are looked at in one go"
        # Closing ends the session, and with it every key.

    asyncio.run(main())


def test_each_flavour_renews_once_for_all(group: Any, server: Any, flavour: str) -> None:
    with counted(group.url) as (counter, url), desk_for(flavour, url) as desk:
        leases = [desk.acquire(f"job-{number}", ttl=TTL) for number in range(100)]
        counter.reset()
        time.sleep(TTL / 3 + 0.5)
        assert 1 <= counter.of("session/renew") <= 3
        assert all(lease.is_held() for lease in leases)


# What is left ---------------------------------------------------------------------------------------------


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


def test_distinct_names_leave_nothing(group: Any, server: Any) -> None:
    async def main() -> None:
        async with AsyncClient(group.url) as locks:
            numbers = iter(range(NAMES))

            async def work() -> None:
                for number in numbers:
                    await use(locks, f"{uuid.UUID(int=number)}#send_email", number)

            await asyncio.gather(*[work() for _ in range(TASKS)])
            store = locks._session.backend._store  # type: ignore[attr-defined]
            assert not store._mine
            assert not store._watcher._near
            assert not store._watcher._watches
            assert len(store._roll._members) <= 1
            left = await asyncio.to_thread(keys, server)
            assert [key for key in left if "/~/~/" not in key] == []

    asyncio.run(main())


# Time -----------------------------------------------------------------------------------------------------


@pytest.mark.timing
def test_a_timeout_holds_whatever_wakes_it(group: Any, server: Any, flavour: str) -> None:
    """Others come and go before it all the time, and nothing of that prolongs its wait."""
    with desk_for("blocking", group.url) as other, desk_for(flavour, group.url) as desk:
        held = other(other.locks.semaphore("job", 1, ttl=60).acquire)
        for _ in range(2):
            crowd = [other.begin(other.locks.semaphore("job", 1).acquire, timeout=0.2) for _ in range(4)]
            began = time.monotonic()
            waits = desk.begin(desk.locks.semaphore("job", 1).acquire, timeout=1)
            while not waits.done():
                crowd.append(other.begin(other.locks.semaphore("job", 1).acquire, timeout=0.1))
                time.sleep(0.1)
            assert isinstance(waits.exception(), AcquireTimeout)
            took(1.0, time.monotonic() - began, 1.3, "the wait")
            for one in crowd:
                assert isinstance(one.exception(30), GIVES_UP)
        assert other(held.release)


@pytest.mark.parametrize("ttl", [0.5, 9.9])
def test_a_ttl_that_is_too_short(group: Any, server: Any, flavour: str, ttl: float) -> None:
    with desk_for(flavour, group.url) as desk:
        with pytest.raises(ConfigurationError, match=r"consul needs at least 10s"):
            desk.acquire("job", ttl=ttl)
        lease = desk.acquire("job", ttl=10)
        with pytest.raises(ConfigurationError, match=r"consul needs at least 10s"):
            desk(lease.extend, ttl)
        assert desk(lease.release)


def test_a_ttl_that_is_too_long(group: Any, server: Any, flavour: str) -> None:
    with desk_for(flavour, group.url) as desk:
        with pytest.raises(
            ConfigurationError, match=r"ttl=86400\.5 is too long: consul keeps at most 86400s"
        ):
            desk.acquire("job", ttl=86_400.5)
        lease = desk.acquire("job", ttl=86_400)
        assert lease.remaining() > 86_390
        assert desk(lease.verify)
        assert desk(lease.release)


# What a lease is good for ---------------------------------------------------------------------------------


def test_a_guard_ties_a_transaction_to_a_lease(group: Any, server: Any, flavour: str) -> None:
    def write(lease: Any, text: str) -> int:
        transaction: list[Any] = [{"KV": {"Verb": "set", "Key": "stock/7", "Value": text}}]
        lease.guard(transaction)
        return ask(server, "PUT", "txn", transaction)[0]

    with desk_for(flavour, group.url) as desk:
        first = desk.acquire("job", ttl=60)
        assert write(first, "Zmlyc3Q=") == 200
        desk(first.extend, 120)
        assert write(first, "Zmlyc3Q=") == 200
        transaction: list[Any] = [{"KV": {"Verb": "set", "Key": "stock/7", "Value": "bGF0ZQ=="}}]
        first.guard(transaction)
        desk(desk.locks.force_release, "job")
        second = desk.acquire("job", ttl=60)
        assert ask(server, "PUT", "txn", transaction)[0] == 409
        assert write(second, "c2Vjb25k") == 200
        assert read_back(server) == "c2Vjb25k"
        with pytest.raises(ConfigurationError, match="the list that /v1/txn takes"):
            second.guard({"KV": {}})
        assert desk(second.release)
        with pytest.raises(LeaseLost):
            first.guard([])
    ask(server, "DELETE", "kv/stock/7")


def read_back(server: Any) -> str:
    return str(ask(server, "GET", "kv/stock/7")[1][0]["Value"])


def test_a_leader_is_observed_by_a_query(group: Any, server: Any, flavour: str) -> None:
    """One query, answered within a moment of the change, and no poll in between."""
    with (
        counted(group.url) as (counter, url),
        desk_for(flavour, url) as desk,
        desk_for("blocking", group.url) as other,
    ):
        first = other.acquire("job", ttl=60)
        backend = desk.locks._session.backend

        def change(seen: Any) -> Any:
            deadline = backend.runtime.now() + 20
            if flavour == "asyncio":
                return desk.begin(backend.observe, "job", seen, deadline=deadline)
            return desk.begin(lambda: run(backend.observe("job", seen, deadline=deadline)))

        seen = change(None).result(10)
        assert [entry.owner for entry in seen.holders] == [first.owner]
        counter.reset()
        later = change(seen)
        wait_until(lambda: counter.of("?keys&index="), "it asks")
        counter.reset()
        time.sleep(0.5)
        assert counter.of("GET") == 0
        assert other(first.release)
        assert later.result(10).holders == (), "long before the twenty seconds that the query may take"
        assert len(backend._store._watcher._watches) == 0
