"""Three members: one is killed, stopped or cut off, and what always holds goes on holding.

A client on the side of the minority gets nothing, and gives up what it has by its own clock; one that knows
all members goes on by the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import pytest
from crew import wait_until
from redis_crowd import Crowd
from redis_desk import FLAVOURS, Desk, desk_for
from tools.servers import NotReady, start
from zookeeper_desk import sessions, znodes

from fencelock import BackendUnavailable
from fencelock.testing import boottime

TTL = 4.0
SLACK = 10.0
"""Seconds that a busy machine may add."""


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    # Two seconds of silence between members, so that a leader which is cut off is soon replaced.
    with start("zookeeper3", netns=True, settings={"syncLimit": "4"}) as group:
        yield group


@pytest.fixture
def whole(group: Any) -> Iterator[Any]:
    """The ensemble, which is healed after each test, and on which nothing is left."""
    yield group
    group.heal()
    for member in group.members:
        if not member.is_alive():
            member.restart(wait=False)
    group.wait()
    wait_until(lambda: not znodes(leader(group)), "no znode is left")
    wait_until(lambda: not sessions(leader(group)), "no session is left")


def mode(member: Any) -> str:
    try:
        return str(member.status()["Mode"])
    except (OSError, NotReady):
        return ""


def leader(group: Any) -> Any:
    """Return the member that leads."""
    return wait_until(lambda: next((m for m in group.members if mode(m) == "leader"), None), "somebody leads")


def follower(group: Any) -> Any:
    return next(member for member in group.members if mode(member) == "follower")


def test_the_leader_is_killed_under_load(whole: Any) -> None:
    with Crowd(whole.url, ["a", "b"], ttl=8.0) as crowd:
        crowd.everybody_gets_on()
        killed = leader(whole)
        killed.kill()
        crowd.everybody_gets_on()
        killed.restart(wait=False)
        whole.wait()
        crowd.everybody_gets_on()
    assert crowd.violations() == []


def test_all_members_are_killed_and_come_back(whole: Any) -> None:
    """Nothing that was granted is forgotten: what ZooKeeper says, it has written down."""
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


@pytest.mark.parametrize("which", [leader, follower])
def test_clients_of_a_member_that_is_cut_off(whole: Any, which: Any) -> None:
    """They hold a lock, wait for another and want a third: they keep none past its ttl and get none."""
    alone = which(whole)
    others = ",".join(member.address for member in whole.members if member is not alone)
    with ExitStack() as stack:
        sides = [
            (
                stack.enter_context(desk_for(flavour, f"zookeeper://{alone.address}", namespace=flavour)),
                stack.enter_context(desk_for(flavour, f"zookeeper://{others}", namespace=flavour)),
            )
            for flavour in FLAVOURS
        ]
        cases = [Case(cut, free) for cut, free in sides]
        whole.partition(alone)
        began = boottime()
        for case in cases:
            case.wants_what_is_held()
            assert not granted_by(case.cut, "other", TTL)
        for case in cases:
            case.lets_go(began)
        for case in cases:
            case.others_go_on()
            assert not granted_by(case.cut, "other", TTL)
        whole.heal()
        for case in cases:
            case.comes_back()


class Case:
    """A client on either side, of one flavour."""

    def __init__(self, cut: Desk, free: Desk) -> None:
        self.cut, self.free = cut, free
        self.held = cut.acquire("held", ttl=TTL)
        self.blocker = free.acquire("wanted", ttl=30)
        self.wait = cut.waiting("wanted", ttl=TTL, timeout=60)
        wait_until(lambda: free.inspect("wanted").waiters, "one waits")

    def wants_what_is_held(self) -> None:
        self.taken = eventually(self.free, "held", TTL)

    def lets_go(self, began: float) -> None:
        wait_until(lambda: not self.held.is_held() or self.taken.done(), "somebody lets go", TTL + SLACK)
        assert not self.held.is_held(), "two hold it"
        assert boottime() - began <= TTL + SLACK

    def others_go_on(self) -> None:
        lease = self.taken.result(60)
        assert lease.token > self.held.token
        assert self.free(lease.release)
        assert self.free(self.blocker.release)
        time.sleep(0.3)
        assert not self.wait.done() or isinstance(self.wait.exception(), BackendUnavailable)

    def comes_back(self) -> None:
        if self.wait.exception(60) is None:
            late = self.wait.result()
            assert late.token > self.blocker.token
            assert self.cut(late.verify)
            assert self.cut(late.release)


def eventually(desk: Desk, name: str, ttl: float) -> Future[Any]:
    """Acquire, through however long an outage: the others may first have to elect a leader."""
    future: Future[Any] = Future()

    def insist() -> None:
        while True:
            try:
                future.set_result(desk.acquire(name, ttl=ttl, timeout=30))
                return
            except BackendUnavailable:
                time.sleep(0.05)

    threading.Thread(target=insist, daemon=True).start()
    return future


def granted_by(desk: Desk, name: str, ttl: float) -> bool:
    """Whether it gets a lock; if not, then it says so in time: 1.3 s at rest."""
    began = time.monotonic()
    try:
        desk.acquire(name, ttl=ttl, timeout=1)
    except BackendUnavailable:
        assert time.monotonic() - began < 1.3 + SLACK
        return False
    return True


def test_without_a_majority_nothing_is_granted_and_nobody_waits_longer(whole: Any) -> None:
    with desk_for("blocking", whole.url) as thread, desk_for("asyncio", whole.url) as task:
        for desk in (thread, task):
            assert desk(desk.acquire("job", ttl=5).release)
        for member in whole.members[1:]:
            member.kill()
        for desk in (thread, task):
            assert not granted_by(desk, "job", 5)
        for member in whole.members[1:]:
            member.restart(wait=False)
        whole.wait()
        for desk in (thread, task):
            assert desk(desk.acquire("job", ttl=5).release)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_member_that_answers_nothing_is_left_for_another(whole: Any, flavour: str) -> None:
    """Its connections are open and silent, as behind a firewall that drops; nobody loses his place."""
    followers = ",".join(member.address for member in whole.members if mode(member) == "follower")
    with desk_for(flavour, f"zookeeper://{followers}") as desk:
        held = desk.acquire("job", ttl=6)
        wait = desk.waiting("job", ttl=6)
        wait_until(lambda: desk.inspect("job").waiters, "one waits")
        silent = connected_to(whole, desk)
        silent.pause()
        try:
            assert desk(held.release)
            lease = wait.result(20)
            assert desk(lease.verify)
            assert desk(lease.release)
        finally:
            silent.resume()


def connected_to(group: Any, desk: Desk) -> Any:
    """Return the member that most of its sessions talk to."""
    sessions = list(desk.locks._session.backend._ensemble.sessions.values())
    hosts = [session._connection._socket.getpeername()[0] for session in sessions]
    return next(member for member in group.members if member.host == max(hosts, key=hosts.count))
