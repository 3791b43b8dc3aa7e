"""Other ttls on ZooKeeper, etcd and Consul: an extension may shorten in the store, the longest is kept."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import consul_desk
import etcd_desk
import pytest
import zookeeper_desk
from crew import wait_until
from redis_desk import AsyncDesk, Desk, desk_for
from tools.servers import start

from fencelock import ConfigurationError
from fencelock.backends.base import LONGEST_TTL
from fencelock.backends.ordered.renewals import SPARE

LONG, SHORT = 50.0, 10.0
ROUNDS = 40
STOCK = {"tickTime": "2000", "maxSessionTimeout": "40000"}
"""ZooKeeper as it comes: sessions of two to twenty ticks."""


class Store:
    """A server, and what it says of a lease's record."""

    def __init__(self, kind: str, group: Any) -> None:
        self.kind, self.url, self.server = kind, group.url, group.members[0]

    def records(self) -> list[str]:
        """Return every record of a request."""
        if self.kind == "zookeeper":
            return zookeeper_desk.znodes(self.server)
        if self.kind == "etcd":
            return etcd_desk.keys(self.server)
        return [one["Key"] for one in consul_desk.requests(self.server)]

    def seconds(self, desk: Desk, lease: Any) -> float:
        """Return how long the session is that the record of a lease lives in."""
        (record,) = [one for one in self.records() if lease.owner in one]
        if self.kind == "zookeeper":
            ident = zookeeper_desk.session_of(self.server, record)
            return float(desk.locks._session.backend._ensemble.sessions[ident].agreed)
        if self.kind == "etcd":
            asked = {"ID": etcd_desk.lease_of(self.server, record)}
            return float(self.server.ask("lease/timetolive", asked)["grantedTTL"])
        session = consul_desk.session_of(self.server, lease.owner)
        (found,) = [one for one in consul_desk.sessions(self.server) if one["ID"] == session]
        return float(found["TTL"].removesuffix("s"))

    def sessions(self) -> int:
        """Return how many sessions there are."""
        modules = {"zookeeper": zookeeper_desk.sessions, "etcd": etcd_desk.leases}
        return len(modules.get(self.kind, consul_desk.sessions)(self.server))


@pytest.fixture(scope="module", params=["zookeeper", "etcd", "consul"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with start(request.param) as group:
        yield Store(request.param, group)


@pytest.fixture
def desk(store: Store, flavour: str) -> Iterator[Desk]:
    with desk_for(flavour, store.url) as desk:
        yield desk
    wait_until(lambda: not store.records(), "no record is left")
    wait_until(lambda: not store.sessions(), "no session is left")


# A shorter ttl ----------------------------------------------------------------------------------


def test_an_extension_moves_the_record_to_a_session_of_its_ttl(desk: Desk, store: Store) -> None:
    lease = desk.acquire("job", ttl=LONG)
    other = desk.acquire("other", ttl=LONG)
    token = lease.token
    assert LONG <= store.seconds(desk, lease) <= LONG + 2
    for ttl in (SHORT, LONG, SHORT):
        desk(lease.extend, ttl)
        assert ttl <= store.seconds(desk, lease) <= ttl + 2
        assert ttl - 5 < lease.remaining() <= ttl
        assert (lease.token, desk(lease.verify)) == (token, True)
        assert LONG <= store.seconds(desk, other) <= LONG + 2, "it stays where it is"
    assert desk(other.verify)
    assert desk(other.release)
    assert desk(lease.release)


def test_a_lease_is_renewed_where_it_was_moved_to(desk: Desk, store: Store) -> None:
    lease = desk.acquire("job", ttl=LONG)
    desk(lease.extend, SHORT)
    end = time.monotonic() + lease.remaining()
    wait_until(lambda: time.monotonic() + lease.remaining() > end + 1, "it was renewed", SHORT)
    assert SHORT <= store.seconds(desk, lease) <= SHORT + 2, "a renewal does not move it back"
    assert lease.remaining() <= SHORT
    assert desk(lease.release)


def test_people_see_the_new_ttl_and_since_when_it_is_held(desk: Desk) -> None:
    lease = desk.acquire("job", ttl=LONG)
    (before,) = desk.inspect("job").holders
    time.sleep(0.1)
    desk(lease.extend, SHORT)
    (holder,) = desk.inspect("job").holders
    assert 0 < holder.expires_in <= SHORT + 2
    assert holder.since == before.since
    assert desk(lease.release)


def test_whoever_waits_waits_on(desk: Desk, store: Store) -> None:
    """The record that a waiter watches moves away and back under its eyes."""
    lease = desk.acquire("job", ttl=LONG)
    with desk_for("blocking", store.url) as other:
        waits = [other.waiting("job", ttl=LONG), desk.waiting("job", ttl=LONG)]
        wait_until(lambda: len(desk.inspect("job").waiters) == 2, "both wait")
        for ttl in (SHORT, LONG, SHORT):
            desk(lease.extend, ttl)
        time.sleep(0.3)
        assert not any(wait.done() for wait in waits)
        assert desk(lease.release)
        while waits:
            wait_until(lambda: any(wait.done() for wait in waits), "the next one has it")
            done = next(wait for wait in waits if wait.done())
            waits.remove(done)
            following = done.result()
            assert following.token > lease.token
            assert (other if following._lock.session is other.locks._session else desk)(following.release)


def test_extensions_among_renewals_lose_nothing(desk: Desk, store: Store) -> None:
    """Renewals are under way all the time, and in the end the record is where its last ttl put it."""
    chance = random.Random(5)
    lease = desk.acquire("job", ttl=LONG)
    others = [desk.acquire(f"other-{number}", ttl=LONG) for number in range(3)]
    session = desk.locks._session

    def due() -> None:
        for hold in session.holds.all():
            hold.due = 0.0
        session.renewer.notify()

    def renewal() -> None:
        desk.loop.call_soon_threadsafe(due) if isinstance(desk, AsyncDesk) else due()

    for _ in range(ROUNDS):
        ttl = chance.choice([SHORT, 20.0, LONG, chance.uniform(SHORT, LONG)])
        renewal()
        extending = desk.begin(lease.extend, ttl)
        renewal()
        extending.result(30)
        assert lease.remaining() <= ttl
        assert desk(lease.verify)
    desk(lease.extend, SHORT)
    assert SHORT <= store.seconds(desk, lease) <= SHORT + 2
    assert len(store.records()) == 4
    assert store.sessions() <= SPARE + 4, "those of both ttls, of those who wait, and one that ends"
    for one in [lease, *others]:
        assert desk(one.verify)
        assert desk(one.release)


# The longest ttl --------------------------------------------------------------------------------


def test_the_longest_ttl_is_kept_by_a_holder_and_by_whoever_waits(desk: Desk, store: Store) -> None:
    desk.inspect("job")
    longest = desk.locks.guarantees.max_ttl
    assert longest == {"zookeeper": 60.0, "etcd": LONGEST_TTL, "consul": 86_400.0}[store.kind]
    lease = desk.acquire("job", ttl=longest)
    assert longest <= store.seconds(desk, lease) <= longest + 2
    wait = desk.waiting("job", ttl=longest)
    wait_until(lambda: desk.inspect("job").waiters, "one waits")
    assert longest - 5 < desk.inspect("job").holders[0].expires_in <= longest + 2
    desk(lease.extend, SHORT)
    desk(lease.extend, longest)
    assert desk(lease.verify)
    assert desk(lease.release)
    after = wait.result(10)
    wait_until(lambda: longest - 5 < after.remaining() <= longest, "it has a whole ttl")
    assert desk(after.verify)
    assert desk(after.release)


@pytest.fixture(scope="module")
def stock() -> Iterator[Store]:
    with start("zookeeper", settings=STOCK) as group:
        yield Store("zookeeper", group)


def test_zookeeper_refuses_what_was_not_negotiated_before_anything_is_queued(
    stock: Store, flavour: str
) -> None:
    with desk_for("blocking", stock.url) as other, desk_for(flavour, stock.url) as desk:
        held = other.acquire("job", ttl=40)
        assert other.locks.guarantees.max_ttl == 40.0
        unaware = desk.locks.lock("job", ttl=45)  # nothing is known of the ensemble yet
        assert desk.locks.guarantees.max_ttl == 2_000_000.0
        with pytest.raises(ConfigurationError, match="at most 40s"):
            desk(unaware.acquire, timeout=10)
        assert desk.locks.guarantees.max_ttl == 40.0
        with pytest.raises(ConfigurationError, match="ttl=45 is too long: zookeeper keeps at most 40s"):
            desk.locks.lock("job", ttl=45)
        with pytest.raises(ConfigurationError, match="at most 40s"):
            desk(unaware.acquire, timeout=10)
        assert other.inspect("job").waiters == ()
        with pytest.raises(ConfigurationError, match="at most 40s"):
            other(held.extend, 40.5)
        assert other(held.verify)
        assert other(held.release)


def test_zookeeper_refuses_it_of_one_that_would_begin_as_a_waiter(stock: Store, flavour: str) -> None:
    """For a name that was busy the last time it asks for the short session of those who wait first."""
    with desk_for("blocking", stock.url) as other, desk_for(flavour, stock.url) as desk:
        unaware = desk.locks.lock("job", ttl=45)
        held = other.acquire("job", ttl=20)
        wait = desk.waiting("job", ttl=20)
        wait_until(lambda: desk.inspect("job").waiters, "one waits")
        with pytest.raises(ConfigurationError, match="at most 40s"):
            desk(unaware.acquire, timeout=10)
        assert len(other.inspect("job").waiters) == 1
        assert other(held.release)
        assert desk(wait.result(10).release)
    wait_until(lambda: not stock.records(), "no record is left")
