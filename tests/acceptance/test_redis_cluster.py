"""A Cluster of six real nodes: slots that move and primaries that die, in the middle of the work.

While slots move nothing may happen that a lock must not do. When a primary dies its replica may not know of
the latest grants: that is declared in `guarantees`, and may happen to locks in its slots only. Tokens stay
unique and rise even there (the clocks agree, they are one), and a guarded resource loses nothing.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from crew import PATIENCE, wait_until
from redis_crowd import Crowd
from redis_desk import FLAVOURS, desk_for
from tests.conformance.rows import certificate
from tools.servers import NotReady, ports, start

import fencelock
from fencelock.backends.redis.cluster import SLOTS
from fencelock.backends.redis.keys import Places

UNDECLARED = ("unique-token", "token-order", "guard", "loss")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with start("cluster") as group:
        yield group


@pytest.fixture
def failing() -> Iterator[Any]:
    """A Cluster to break; the nodes that are left go on without the slots of the one that died."""
    with start("cluster", settings={"cluster-require-full-coverage": "no"}) as group:
        yield group


def bucket_of(name: str) -> int:
    return Places("").find(name).bucket


def slot_of(name: str) -> int:
    return SLOTS[bucket_of(name)]


def names_in(bucket: int, count: int) -> list[str]:
    """Names that share a bucket, and so a slot."""
    return list(itertools.islice((f"n{n}" for n in itertools.count() if bucket_of(f"n{n}") == bucket), count))


def owner_of(group: Any, slot: int) -> Any:
    """The node that has a slot, as the nodes that live see it."""
    witness = next(node for node in group.nodes if node.is_alive())
    for first, last, (_, port, *_), *_ in witness.ask("CLUSTER", "SLOTS"):
        if int(first) <= slot <= int(last):
            return next(node for node in group.nodes if node.port == int(port))
    raise AssertionError(f"nobody has slot {slot}")


class Move:
    """A slot on its way from one node to another, step by step."""

    def __init__(self, group: Any, slot: int) -> None:
        self.group, self.slot = group, slot
        self.source = owner_of(group, slot)
        self.target = next(node for node in group.nodes[:3] if node is not self.source)

    def open(self) -> None:
        self.target.ask("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self.source.ask("CLUSTER", "MYID"))
        self.source.ask("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self.target.ask("CLUSTER", "MYID"))

    def left_behind(self) -> list[str]:
        return list(self.source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, 100))

    def carry(self, keys: list[str]) -> None:
        self.source.ask("MIGRATE", self.target.host, self.target.port, "", 0, 5000, "KEYS", *keys)

    def close(self) -> None:
        while keys := self.left_behind():
            self.carry(keys)
        identity = self.target.ask("CLUSTER", "MYID")
        for node in (self.target, self.source, *self.group.nodes):
            try:
                node.ask("CLUSTER", "SETSLOT", self.slot, "NODE", identity)
            except (NotReady, OSError):
                continue  # a replica: it hears of it


# The usual --------------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_usual_on_all_nodes(cluster: Any, flavour: str) -> None:
    names = [f"smoke-{n}" for n in range(30)]
    assert len({owner_of(cluster, slot_of(name)) for name in names}) == 3
    with desk_for(flavour, cluster.url) as desk, desk_for(flavour, cluster.url) as other:
        together = desk(desk.locks.multi(names).acquire)
        assert [state.name for state in other(other.locks.list, "smoke")] == sorted(names)
        assert [other(other.locks.lock(name).try_acquire) for name in names] == [None] * len(names)
        assert desk(together.release)
        leases = [desk.acquire(name) for name in names]
        assert all(desk(lease.verify) for lease in leases)
        waiting = other.waiting(names[0])
        wait_until(lambda: desk.inspect(names[0]).waiters, "a waiter")
        assert all(desk(lease.release) for lease in leases)
        assert waiting.result(PATIENCE).token > leases[0].token
        assert len(desk(desk.locks.force_release, names[0])) == 1
        shared = [each(each.locks.rwlock("rw").read().acquire) for each in (desk, other)]
        permit = desk(desk.locks.semaphore("s", 2).acquire)
        assert [state.name for state in other(other.locks.list)] == ["rw", "s"]
        assert all([desk(shared[0].release), other(shared[1].release), desk(permit.release)])
        assert desk(desk.locks.list) == []


def test_a_push_comes_from_every_node(cluster: Any) -> None:
    """One node is listened to; grants on the others arrive there, over the Cluster's own bus."""
    with fencelock.Client(cluster.url) as locks, fencelock.Client(cluster.url) as others:
        for name in names_in(0, 1) + [f"push-{n}" for n in range(6)]:
            lease = locks.lock(name, ttl=60).acquire()
            told: list[int] = []
            backend = others._session.backend
            plain = backend.wait

            async def wait(request: Any, deadline: float, plain: Any = plain, told: Any = told) -> Any:
                grant = await plain(request, deadline)
                if grant is not None:
                    told.append(grant.token)
                return grant

            backend.wait = wait  # type: ignore[method-assign]
            waiter = threading.Thread(target=lambda name=name: others.lock(name, ttl=60).acquire().release())
            waiter.start()
            wait_until(lambda name=name: locks.inspect(name).waiters and listeners(cluster), "it waits")
            lease.release()
            waiter.join()
            backend.wait = plain  # type: ignore[method-assign]
            assert len(told) == 1, f"{name} was polled for"


def listeners(group: Any) -> list[str]:
    """Channels of ours that somebody listens to, on the nodes that live."""
    found: list[str] = []
    for node in group.nodes:
        if node.is_alive():
            found += node.ask("PUBSUB", "CHANNELS", "fencelock:*")
    return found


def test_a_server_that_is_no_cluster_says_so() -> None:
    with start("redis") as group:
        url = f"redis+cluster://{group.members[0].address}"
        with fencelock.Client(url) as locks, pytest.raises(fencelock.BackendUnavailable) as caught:
            locks.lock("x").acquire(timeout=5)
    assert "it is not in cluster mode" in str(caught.value)
    assert not caught.value.transient
    assert "\n" not in str(caught.value)


@contextmanager
def lone_node(**settings: str) -> Iterator[Any]:
    """Start a server that is a Cluster of its own, and was never told its address."""
    bus = ports.take()
    chosen = {"cluster-enabled": "yes", "cluster-port": str(bus)}
    chosen |= {key.replace("_", "-"): value for key, value in settings.items()}
    try:
        with start("redis", settings=chosen) as group:
            (node,) = group.members
            node.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            wait_until(lambda: node.info("CLUSTER", "INFO")["cluster_state"] == "ok", "it takes requests")
            assert node.ask("CLUSTER", "SLOTS")[0][2][0] in {"", None}
            yield node
    finally:
        ports.give_back(bus)


def test_a_node_that_does_not_know_its_address_is_where_it_was_asked() -> None:
    with (
        lone_node() as node,
        fencelock.Client(f"redis+cluster://{node.address}") as locks,
        locks.multi(["a", "b", "c"]),
    ):
        assert len(locks.list()) == 3


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_tls(tmp_path: Path, flavour: str) -> None:
    port = ports.take()
    settings = certificate(tmp_path)
    trusted = settings["tls-cert-file"]
    url = f"redis+cluster://127.0.0.1:{port}?tls=yes&ssl_ca_certs={quote(trusted)}"
    try:
        with (
            lone_node(**settings, tls_port=str(port), tls_cluster="yes", tls_ca_cert_file=trusted),
            desk_for(flavour, url) as desk,
        ):
            assert desk(desk.acquire("x").release)
    finally:
        ports.give_back(port)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_seed_that_is_down_is_passed_over(cluster: Any, flavour: str) -> None:
    url = f"redis+cluster://127.0.0.1:1,{cluster.nodes[5].address}"  # and the other is a replica
    with desk_for(flavour, url) as desk:
        assert desk(desk.acquire("x").release)


# Slots that move --------------------------------------------------------------------------


def test_slots_move_under_load_there_and_back(cluster: Any) -> None:
    names = ["one", "two", "three"]
    with Crowd(cluster.url, names) as crowd:
        crowd.everybody_gets_on()
        for name in [*names, *reversed(names)]:
            move = Move(cluster, slot_of(name))
            move.open()
            move.close()
            crowd.everybody_gets_on()
    assert crowd.violations() == []
    assert not [error for error in crowd.errors if "moving the slot" not in error]
    with fencelock.Client(cluster.url) as locks:
        assert locks.list() == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_leases_outlive_a_slot_that_is_half_moved(cluster: Any, flavour: str) -> None:
    """Some keys are here and some there for longer than the ttl: nothing is lost, nothing granted twice."""
    ttl = 1.5
    names = names_in(bucket_of("half"), 8)
    move = Move(cluster, slot_of("half"))
    with desk_for(flavour, cluster.url) as desk, fencelock.Client(cluster.url) as looker:
        leases = [desk.acquire(name, ttl=ttl) for name in names]
        move.open()
        try:
            locks = [key for key in move.left_behind() if key.count(":") == 3]
            assert len(locks) == len(names)
            move.carry(locks[::2])
            wait_until(lambda: youngest(looker, names) > 2 * ttl, "every lease is older than its ttl")
            assert all(lease.is_held() for lease in leases)
            assert [looker.inspect(name).holders[0].token for name in names] == [
                lease.token for lease in leases
            ]
            stayed = [name for name in names if any(key.endswith(f":{name}") for key in move.left_behind())]
            assert [looker.lock(name).try_acquire() for name in stayed] == [None] * 4
            assert desk(leases[0].release)
            assert desk(leases[1].release)
        finally:
            move.close()
        assert all(desk(lease.release) for lease in leases[2:])


def youngest(locks: fencelock.Client, names: list[str]) -> float:
    """How long the lease that was granted last has been held; 0 if one is lost."""
    states = [locks.inspect(name) for name in names]
    return min(state.holders[0].age if state.holders else 0.0 for state in states)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_free_lock_waits_for_its_slot_without_a_storm(cluster: Any, flavour: str) -> None:
    name = "brand-new"
    move = Move(cluster, slot_of(name))
    before, started = refusals(cluster), time.monotonic()
    with desk_for(flavour, cluster.url) as desk:
        move.open()
        try:
            waiting = desk.waiting(name)
            wait_until(lambda: refusals(cluster) >= before + 20, "it is told to try again")
            told, waited = refusals(cluster) - before, time.monotonic() - started
            assert not waiting.done()
        finally:
            move.close()
        assert desk(waiting.result(PATIENCE).release)
    assert told <= 60 * waited + 20, "it asks again and again without a pause"


def refusals(group: Any) -> int:
    """How often a node said TRYAGAIN."""
    told = [node.info("INFO", "errorstats").get("errorstat_TRYAGAIN", "count=0") for node in group.nodes]
    return sum(int(text.rpartition("=")[2]) for text in told)


# Nodes that die ---------------------------------------------------------------------------


def test_a_primary_dies_under_load(failing: Any) -> None:
    names = [name_on(failing, node) for node in failing.nodes[:3]]
    victim = failing.nodes[0]
    with fencelock.Client(failing.url) as keeper, Crowd(failing.url, names) as crowd:
        kept = [keeper.lock(f"kept-{n}", ttl=30).acquire() for n in range(12)]
        crowd.everybody_gets_on()
        wait_until(lambda: replicated(failing), "the replicas are in step")
        victim.kill()
        wait_until(lambda: owner_of(failing, 0) is not victim, "its replica is promoted")
        crowd.everybody_gets_on()
        assert all(lease.verify() for lease in kept), "leases that were replicated survive"
        victim.restart()
        failing.wait()
        crowd.everybody_gets_on()
    assert crowd.violations(*UNDECLARED) == []
    assert [one for one in crowd.violations() if one.name != names[0]] == []
    with fencelock.Client(failing.url) as locks:
        wait_until(lambda: locks.list() == [], "nothing is left")


def name_on(group: Any, node: Any) -> str:
    names = (f"load-{n}" for n in itertools.count())
    return next(name for name in names if owner_of(group, slot_of(name)) is node)


def replicated(group: Any) -> bool:
    return all(node.info("INFO", "replication").get("connected_slaves") == "1" for node in group.nodes[:3])


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_node_that_is_listened_to_dies(failing: Any, flavour: str) -> None:
    """Waiters for locks on other nodes get them all the same, and are pushed to again afterwards."""
    listened = owner_of(failing, SLOTS[0])
    names = [f"x{n}" for n in range(200) if owner_of(failing, slot_of(f"x{n}")) is not listened][:2]
    with fencelock.Client(failing.url) as locks, desk_for(flavour, failing.url) as desk:
        leases = [locks.lock(name, ttl=60).acquire() for name in names]
        first = desk.waiting(names[0], ttl=60)
        wait_until(lambda: listeners(failing), "somebody listens")
        listened.kill()
        leases[0].release()
        assert desk(first.result(PATIENCE).release), "the lock is handed over without a push"
        second = desk.waiting(names[1], ttl=60)
        wait_until(lambda: listeners(failing), "it listens to another node")
        leases[1].release()
        assert desk(second.result(PATIENCE).release)
