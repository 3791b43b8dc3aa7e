"""Three servers: the leader dies, all restart, one is cut off, the majority is gone.

Tokens rise through all of it, holds do not overlap, and nothing is left. A client on the wrong side of a cut
gets nothing, and gives up what it has by its own clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from consul_desk import (
    FLAVOURS,
    Desk,
    ask,
    desk_for,
    destroy,
    keys,
    leader,
    nothing_left,
    proxied,
    requests,
    session_of,
)
from crew import wait_until
from tools.servers import ports, start

from fencelock import BackendUnavailable, LeaseLost
from fencelock.testing import view
from fencelock.testing.conformance.expect import took

TTL = 10.0
LONGER = 12.0
"""Longer than a server may be silent before autopilot removes it."""
SLACK = 10.0


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("consul3") as group:
        yield group


@pytest.fixture
def cluster(group: Any) -> Iterator[Any]:
    group.wait()
    yield group
    group.wait()
    nothing_left(group.members[0])


def both(url: str) -> list[tuple[str, Desk]]:
    return [(flavour, desk_for(flavour, url)) for flavour in FLAVOURS]


def insist(desk: Desk, name: str, **terms: Any) -> Any:
    """Acquire; an election may take longer than a waiter rides out."""
    for _ in range(10):
        try:
            return desk.acquire(name, **terms)
        except BackendUnavailable:
            continue
    return desk.acquire(name, **terms)


def test_the_leader_is_killed(cluster: Any) -> None:
    """Leases and places survive it, in both flavours, and are served in order."""
    desks = both(cluster.url)
    held = {flavour: desk.acquire(flavour, ttl=20) for flavour, desk in desks}
    waits = {flavour: desk.waiting(flavour, ttl=20) for flavour, desk in desks}
    for flavour, desk in desks:
        wait_until(lambda d=desk, f=flavour: len(d.inspect(f).waiters) == 1, "it waits")
    old = leader(cluster)
    old.kill()
    for flavour, desk in desks:
        fresh = insist(desk, f"{flavour}-new", ttl=20)
        assert fresh.token > held[flavour].token
        assert desk(fresh.release)
        assert held[flavour].is_held()
        assert desk(held[flavour].verify)
        assert not waits[flavour].done()
        assert desk(held[flavour].release)
        lease = waits[flavour].result(20)
        assert lease.token > held[flavour].token
        assert desk(lease.release)
    old.restart()
    for _, desk in desks:
        desk.close()


def test_all_servers_restart(cluster: Any) -> None:
    """Sessions are in the log: leases go on where they were, and tokens rise."""
    desks = both(cluster.url)
    held = {flavour: desk.acquire(flavour, ttl=30) for flavour, desk in desks}
    for member in cluster.nodes:
        member.kill()
    for member in cluster.nodes:
        member.restart(wait=False)
    cluster.wait()
    for flavour, desk in desks:
        assert desk(held[flavour].verify)
        assert desk(desk.locks.lock(flavour, ttl=30).try_acquire) is None
        fresh = insist(desk, f"{flavour}-new", ttl=30)
        assert fresh.token > held[flavour].token
        assert desk(fresh.release)
        assert desk(held[flavour].release)
        desk.close()


@pytest.mark.timing
def test_without_a_majority_nothing_is_granted_and_all_ends_in_time(cluster: Any) -> None:
    desks = both(cluster.url)
    held = {flavour: desk.acquire(flavour, ttl=60) for flavour, desk in desks}
    last, *others = cluster.nodes
    for member in others:
        member.kill()
    for timeout in (0.5, 2.2):
        began = time.monotonic()
        waits = [desk.waiting("another", ttl=60, timeout=timeout) for _, desk in desks]
        for wait in waits:
            error = wait.exception(30)
            assert isinstance(error, BackendUnavailable)
            assert len(str(error).splitlines()) == 1
        took(0.0, time.monotonic() - began, timeout + 0.5, "the wait")
    began = time.monotonic()
    for wait in [desk.begin(desk.locks.lock("another", ttl=60).try_acquire) for _, desk in desks]:
        assert isinstance(wait.exception(30), BackendUnavailable)
    took(0.0, time.monotonic() - began, 2.5, "the try")
    assert last.is_alive()
    for member in others:
        member.restart(wait=False)
    cluster.wait()
    for flavour, desk in desks:
        assert desk(held[flavour].verify)
        assert desk(held[flavour].release)
        wait_until(lambda d=desk: not view.pending_cleanups(d.locks), "no cleanup is pending")
        desk.close()
    wait_until(lambda: not requests(last), "nothing of what was tried is left")


@pytest.mark.timing
def test_an_agent_that_does_not_answer_is_left_for_the_next(cluster: Any) -> None:
    first, second, _ = cluster.nodes
    for flavour in FLAVOURS:
        with (
            proxied(f"consul://{first.address}") as (proxy, url),
            desk_for(flavour, f"{url},{second.address}") as desk,
        ):
            lease = desk.acquire("job", ttl=20)
            proxy.blackhole()
            began = time.monotonic()
            assert desk(lease.verify)
            took(0.0, time.monotonic() - began, 4.0, "verify()")
            proxy.heal()
            proxy.refuse()
            again = desk.acquire("other", ttl=20)
            assert again.token > lease.token
            assert desk(again.release)
            assert desk(lease.release)


def test_another_datacentre_is_reached_through_an_agent_of_this_one() -> None:
    with (
        start("consul") as here,
        start("consul", settings={"datacenter": "mars"}) as there,
        ExitStack() as stack,
    ):
        for member in (here.members[0], there.members[0]):
            wan = stack.enter_context(free_port())
            mine = {"http": member.port, "server": member.server_port, "serf_lan": member.serf_port}
            member.settings = {**member.settings, "ports": json.dumps({**mine, "serf_wan": wan, "dns": -1})}
            member.restart(keep=False)
        here.wait()
        there.wait()
        assert ask(here.members[0], "PUT", f"agent/join/127.0.0.1:{wan}?wan=1")[0] == 200
        wait_until(
            lambda: len(ask(here.members[0], "GET", "catalog/datacenters")[1]) == 2, "they know each other"
        )
        for flavour in FLAVOURS:
            with desk_for(flavour, f"{here.url}?dc=mars") as desk, desk_for("blocking", there.url) as other:
                held = desk.acquire("job", ttl=20)
                waits = other.waiting("job", ttl=20)
                wait_until(lambda d=desk: d.inspect("job").waiters, "it waits")
                assert desk(held.release)
                lease = waits.result(10)
                assert lease.token > held.token
                behind = desk.waiting("job", ttl=20)
                wait_until(lambda d=desk: d.inspect("job").waiters, "it waits")
                assert other(lease.release)
                assert desk(behind.result(10).release)
        assert keys(here.members[0]) == []
        nothing_left(there.members[0])


@contextmanager
def free_port() -> Iterator[int]:
    port = ports.take()
    try:
        yield port
    finally:
        ports.give_back(port)


def test_a_member_that_is_cut_off_grants_nothing() -> None:
    """Its clients lose what they have by their own clocks, before anybody else gets it.

    Although autopilot removes the member, and with its node whatever sessions that has, before that.
    """
    with start("consul3", netns=True) as group:
        led = leader(group)
        minority = next(member for member in group.nodes if member is not led)
        rest = ",".join(member.address for member in group.nodes if member is not minority)
        inside = both(f"consul://{minority.address}")
        outside = desk_for("blocking", f"consul://{rest}")
        held = {flavour: desk.acquire(flavour, ttl=LONGER) for flavour, desk in inside}
        group.partition(minority)
        cut = time.monotonic()
        waits = {flavour: outside.waiting(flavour, ttl=60) for flavour in held}
        for _, desk in inside:
            with pytest.raises(BackendUnavailable):
                desk.acquire("another", ttl=LONGER, timeout=1)
            with pytest.raises(BackendUnavailable):
                desk(desk.locks.lock("another", ttl=LONGER).try_acquire)
        for flavour, lease in held.items():
            wait_until(lease.lost.is_set, "it is lost", LONGER + SLACK)
            assert time.monotonic() - cut <= LONGER + SLACK
            assert not lease.is_held()
            with pytest.raises(LeaseLost):
                lease.check()
            assert not waits[flavour].done(), "the next has it before the last has lost it"
        assert minority.name not in {one["Node"] for one in ask(led, "GET", "catalog/nodes")[1]}
        for flavour, lease in held.items():
            destroy(led, session_of(led, lease.owner))  # which Consul itself would do ten seconds later
            successor = waits[flavour].result(TTL)
            assert successor.token > lease.token
            assert outside(successor.release)
        for _, desk in inside:
            with pytest.raises(BackendUnavailable):
                desk(desk.locks.lock("another", ttl=LONGER).try_acquire)
        group.heal()
        minority.restart(wait=False)  # it would find its way back by itself, but takes its time
        group.wait()
        for flavour, desk in inside:
            again = insist(desk, flavour, ttl=LONGER)
            assert again.token > held[flavour].token
            assert desk(again.release)
            wait_until(lambda d=desk: not view.pending_cleanups(d.locks), "no cleanup is pending")
            desk.close()
        outside.close()
        nothing_left(led)
