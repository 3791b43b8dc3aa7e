"""Three members: one is killed, stopped or cut off, and what always holds goes on holding.

A client on the side of the minority gets nothing, and gives up what it has by its own clock; one that knows
all members goes on by the others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from crew import wait_until
from etcd_desk import keys, leases
from redis_crowd import Crowd
from redis_desk import FLAVOURS, Desk, desk_for
from tools.servers import start

from fencelock import BackendUnavailable
from fencelock.testing import boottime

SLACK = 10.0
"""Seconds that a busy machine may add."""


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("etcd3", netns=True) as group:
        yield group


@pytest.fixture
def whole(group: Any) -> Iterator[Any]:
    """The cluster, which is healed after each test, and on which nothing is left."""
    yield group
    group.heal()
    for member in group.members:
        if not member.is_alive():
            member.restart(wait=False)
    group.wait()
    wait_until(lambda: not keys(group.members[0]), "no key is left")
    wait_until(lambda: not leases(group.members[0]), "no lease is left")


def leader(group: Any) -> Any:
    """Return the member that leads."""
    for member in group.members:
        status = member.ask("maintenance/status", {})
        if status.get("leader") == status["header"]["member_id"]:
            return member
    raise AssertionError("nobody leads")


def other_than(group: Any, member: Any) -> Any:
    return next(one for one in group.members if one is not member)


def test_the_leader_is_killed_under_load(whole: Any) -> None:
    with Crowd(whole.url, ["a", "b"], ttl=8.0) as crowd:
        crowd.everybody_gets_on()
        killed = leader(whole)
        killed.kill()
        crowd.everybody_gets_on()
        killed.restart()
        whole.wait()
        crowd.everybody_gets_on()
    assert crowd.violations() == []


def test_all_members_are_killed_and_come_back(whole: Any) -> None:
    """Nothing that was granted is forgotten: what etcd says, it has written down."""
    with Crowd(whole.url, ["a", "b"], ttl=20.0, each=1) as crowd:
        crowd.everybody_gets_on()
        for member in whole.members:
            member.kill()
        for member in whole.members:
            member.restart(wait=False)
        whole.wait()
        crowd.everybody_gets_on()
    assert crowd.violations() == []


def test_the_leader_stands_still_for_a_while(whole: Any) -> None:
    with Crowd(whole.url, ["a"], ttl=8.0) as crowd:
        crowd.everybody_gets_on()
        stopped = leader(whole)
        stopped.pause()
        try:
            crowd.everybody_gets_on()
        finally:
            stopped.resume()
        crowd.everybody_gets_on()
    assert crowd.violations() == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_client_of_a_member_that_is_cut_off(whole: Any, flavour: str) -> None:
    """It holds one lock, waits for another and wants a third: it keeps none past its ttl and gets none."""
    ttl = 4.0
    alone = leader(whole)
    with desk_for(flavour, f"etcd://{alone.address}") as cut, desk_for(flavour, whole.url) as free:
        held = cut.acquire("held", ttl=ttl)
        blocker = free.acquire("wanted", ttl=30)
        wait = cut.waiting("wanted", ttl=ttl, timeout=60)
        wait_until(lambda: free.inspect("wanted").waiters, "one waits")
        whole.partition(alone)
        began = boottime()
        assert not granted_by(cut, "other", ttl)
        wait_until(lambda: not held.is_held(), "it lets go by its own clock", ttl + SLACK)
        successor = free.acquire("held", ttl=ttl, timeout=30)
        assert successor.token > held.token
        assert boottime() - began >= ttl / 3  # it held until then, or was cut off in the middle of its time
        assert free(blocker.release)
        assert isinstance(wait.exception(30), BackendUnavailable)
        assert not granted_by(cut, "other", ttl)
        whole.heal()
        wait_until(lambda: granted_by(cut, "other", ttl), "it is served again")


def granted_by(desk: Desk, name: str, ttl: float) -> bool:
    """Whether it gets a lock; if not, then it says so in time."""
    began = time.monotonic()
    try:
        desk(desk.acquire(name, ttl=ttl, timeout=1).release)
    except BackendUnavailable:
        assert time.monotonic() - began < 1.3 + SLACK
        return False
    return True


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_without_a_majority_nothing_is_granted_and_nobody_waits_longer(whole: Any, flavour: str) -> None:
    with desk_for(flavour, whole.url) as desk:
        assert desk(desk.acquire("job", ttl=5).release)
        for member in whole.members[1:]:
            member.kill()
        assert not granted_by(desk, "job", 5)
        for member in whole.members[1:]:
            member.restart(wait=False)
        whole.wait()
        assert desk(desk.acquire("job", ttl=5).release)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_member_that_answers_nothing_is_passed_over(whole: Any, flavour: str) -> None:
    """Its connections are open and silent, as behind a firewall that drops."""
    silent = other_than(whole, leader(whole))
    others = [member for member in whole.members if member is not silent]
    url = f"etcd://{','.join(member.address for member in [silent, *others])}"
    with desk_for(flavour, url) as desk:
        held = desk.acquire("job", ttl=10)
        wait = desk.waiting("job", ttl=10)
        wait_until(lambda: desk.inspect("job").waiters, "one waits")
        silent.pause()
        try:
            assert desk(held.release)
            lease = wait.result(20)
            assert desk(lease.verify)
            assert desk(lease.release)
        finally:
            silent.resume()
