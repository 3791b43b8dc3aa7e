"""Deadlines on Redis and Redlock: an extension may shorten, a renewal may not, and the longest ttl is kept.

After a shorter extension the key expires sooner too. Otherwise a crash would leave it for the old ttl.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from crew import wait_until
from redis_desk import FLAVOURS, desk_for, residue
from redlock_nodes import is_everywhere, keys, url
from tools.servers import start

import fencelock
from fencelock.backends.base import LONGEST_TTL, Grant, Origin, Outcome, Renewal, Request
from fencelock.runtime.blocking import run

LONG = 600.0


@pytest.fixture(scope="module", params=["redis", "valkey"])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    with start(request.param) as group:
        yield group.members[0]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Sequence[Any]]:
    with start("redlock") as group:
        yield group.members


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def place(server: Any) -> str:
    return f"redis://{server.address}"


def expiry(server: Any) -> float:
    """In how many seconds the only lock's key expires."""
    (key,) = residue(server)
    return float(server.ask("PTTL", key)) / 1000


def test_a_shorter_extension_shortens_the_key(server: Any, flavour: str) -> None:
    with desk_for(flavour, place(server)) as desk:
        lease = desk.acquire("job", ttl=LONG, renew=False)
        assert LONG - 60 < expiry(server) <= LONG
        desk(lease.extend, 20)
        assert 10 < expiry(server) <= 20
        (holder,) = desk.inspect("job").holders
        assert 10 < holder.expires_in <= 20
        desk(lease.extend, 40)
        assert 20 < expiry(server) <= 40
        assert desk(lease.verify)
        assert desk(lease.release)
    assert residue(server) == []


def test_a_shorter_extension_leaves_the_others_their_time(server: Any, flavour: str) -> None:
    with desk_for(flavour, place(server)) as desk:
        lock = desk.locks.rwlock("job", ttl=LONG, renew=False).read()
        first, second = desk(lock.acquire), desk(lock.acquire)
        desk(first.extend, 20)
        assert LONG - 60 < expiry(server) <= LONG, "the second still has its ttl"
        desk(second.extend, 100)
        assert 80 < expiry(server) <= 100
        left = [holder.expires_in for holder in desk.inspect("job").holders]
        assert 10 < left[0] <= 20
        assert 80 < left[1] <= 100
        assert desk(second.release)
        assert desk(first.verify)
        assert desk(first.release)
    assert residue(server) == []


def test_a_waiter_has_the_lock_when_the_shorter_ttl_is_over(server: Any, flavour: str) -> None:
    with desk_for(flavour, place(server)) as desk, desk_for(flavour, place(server)) as other:
        lease = desk.acquire("job", ttl=LONG, renew=False)
        call = other.waiting("job", ttl=30)
        wait_until(lambda: desk.inspect("job").waiters, "it waits")
        desk(lease.extend, 0.2)
        successor = call.result(30)
        assert successor.token > lease.token
        assert not lease.is_held()
        assert other(successor.release)
    assert residue(server) == []


def request_for(owner: str, name: str) -> Request:
    return Request(owner, name, "exclusive", 1, LONG, Origin("by hand", "host", 1), None)


def take(backend: Any, name: str) -> tuple[Request, int]:
    request = request_for(backend.runtime.new_id(), name)
    grant = run(backend.acquire(request, wait=False, deadline=backend.runtime.now() + 10))
    assert isinstance(grant, Grant)
    return request, grant.token


def check_a_batch(locks: fencelock.Client) -> None:
    """Renew exactly, plainly and not at all, in one call."""
    backend = locks._session.backend
    names = [f"job-{number}" for number in range(6)]
    held = [take(backend, name) for name in names]
    held[3] = request_for("f" * 32, names[3]), held[3][1]
    asked = [(20, True), (20, False), (2 * LONG, False), (20, True), (2 * LONG, True), (20, True)]
    renewals = [
        Renewal(request, token, float(ttl), extend=True, exact=exact)
        for (request, token), (ttl, exact) in zip(held, asked, strict=True)
    ]
    renewals[5] = renewals[5]._replace(extend=False)
    outcomes = run(backend.renew(renewals, deadline=backend.runtime.now() + 10))
    renewed, lost, looked_at = Outcome.RENEWED, Outcome.LOST, Outcome.HELD
    assert outcomes == [renewed, renewed, renewed, lost, renewed, looked_at]
    left = [locks.inspect(name).holders[0].expires_in for name in names]
    for seconds, expected in zip(left, [20, LONG, 2 * LONG, LONG, 2 * LONG, LONG], strict=True):
        assert expected * 0.9 < seconds < expected * 1.02  # Redlock adds a hundredth
    for name in names:
        locks.force_release(name)


def test_a_batch_has_exact_and_plain_renewals(server: Any) -> None:
    with fencelock.Client(place(server)) as locks:
        check_a_batch(locks)


def test_a_batch_has_exact_and_plain_renewals_on_redlock(nodes: Sequence[Any]) -> None:
    with fencelock.Client(url(nodes, max_ttl=3 * LONG)) as locks:
        check_a_batch(locks)


def has_all(holders: Sequence[fencelock.Entry]) -> bool:
    """Whether all have the longest ttl: one that was pushed its grant has it from its first renewal on."""
    return bool(holders) and all(one.expires_in > LONGEST_TTL - 60 for one in holders)


def test_the_longest_ttl_is_kept_in_every_mode(server: Any, flavour: str) -> None:
    with desk_for(flavour, place(server)) as desk:
        assert desk.locks.guarantees.max_ttl == LONGEST_TTL
        locks = [
            desk.locks.lock("job", ttl=LONGEST_TTL),
            desk.locks.rwlock("job", ttl=LONGEST_TTL).read(),
            desk.locks.semaphore("job", 2, ttl=LONGEST_TTL),
        ]
        for lock in locks:
            first = desk(lock.acquire)
            call = desk.begin(lock.acquire, timeout=60)
            if lock is locks[0]:
                wait_until(lambda: desk.inspect("job").waiters, "it waits")
                desk(first.release)
            second = call.result(30)
            wait_until(lambda: has_all(desk.inspect("job").holders), "it has its whole ttl")
            assert LONGEST_TTL - 60 < expiry(server) <= LONGEST_TTL
            desk(second.extend, LONGEST_TTL)
            assert LONGEST_TTL - 60 < expiry(server) <= LONGEST_TTL
            assert desk(second.verify)
            assert desk(desk.locks.lock("job").try_acquire) is None
            assert desk(second.release)
            desk(first.release)
            assert residue(server) == []


def test_the_longest_ttl_is_kept_by_redlock(nodes: Sequence[Any], flavour: str) -> None:
    with desk_for(flavour, url(nodes, max_ttl=LONGEST_TTL)) as desk:
        assert desk.locks.guarantees.max_ttl == LONGEST_TTL
        lease = desk.acquire("job", ttl=LONGEST_TTL)
        # A node that did not know the script says so too late for the vote: the next step reads that.
        wait_until(lambda: desk(lease.verify) and is_everywhere(nodes, lease), "all nodes have it")
        for _ in range(2):
            for node in nodes:
                (key,) = keys(node)
                assert 0.99 < float(node.ask("PTTL", key)) / 1000 / LONGEST_TTL < 1.011
            desk(lease.extend, LONGEST_TTL)
        assert desk(lease.verify)
        assert desk(desk.locks.lock("job").try_acquire) is None
        assert desk(lease.release)


def test_a_shorter_extension_shortens_the_keys_of_redlock(nodes: Sequence[Any], flavour: str) -> None:
    with desk_for(flavour, url(nodes)) as desk:
        lease = desk.acquire("job", ttl=200, renew=False)
        wait_until(lambda: desk(lease.verify) and is_everywhere(nodes, lease), "all nodes have it")
        desk(lease.extend, 20)

        def left() -> list[float]:
            return [float(node.ask("PTTL", key)) / 1000 for node in nodes for key in keys(node)]

        wait_until(lambda: desk(lease.verify) and max(left()) < 21, "all nodes keep it for 20 s")
        assert len(left()) == len(nodes)
        assert desk(lease.release)
