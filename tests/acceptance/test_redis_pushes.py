"""Pushes: the grant comes with them, one connection listens for all, and losing them costs latency only."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from crew import wait_until
from redis_desk import Desk, calls, connections, desk_for, proxied, residue

from fencelock import AcquireTimeout

LONG = 60.0
HEARTBEAT = 1.0
"""A waiter looks for itself so often: a third of its patience."""
SLACK = 10.0


@pytest.fixture
def other(group: Any, flavour: str) -> Iterator[Desk]:
    with desk_for(flavour, group.url) as desk:
        yield desk


def in_line(desk: Desk, name: str, count: int, **terms: Any) -> list[Any]:
    """Begin to wait so many times, one after the other."""
    waits = []
    for number in range(count):
        waits.append(desk.waiting(name, ttl=LONG, **terms))
        wait_until(lambda count=number + 1: len(desk.inspect(name).waiters) == count, "it waits")
    return waits


def test_one_connection_listens_for_all_waiters_of_a_client(desk: Desk, other: Desk, server: Any) -> None:
    names = [f"job-{number}" for number in range(20)]
    held = [other.acquire(name, ttl=LONG) for name in names]
    waits = [desk.waiting(name, ttl=LONG) for name in names for _ in range(2)]
    wait_until(lambda: all(len(other.inspect(name).waiters) == 2 for name in names), "all wait")
    wait_until(lambda: connections(server, "pubsub"), "somebody listens")
    assert len(connections(server, "pubsub")) == 1
    for lease in held:
        assert other(lease.release)
    while waits:
        done = wait_until(lambda: next((wait for wait in waits if wait.done()), None), "the next has it")
        waits.remove(done)
        assert len(connections(server, "pubsub")) == 1
        assert desk(done.result().release)
    assert residue(server) == []


def test_the_order_is_first_in_first_out(desk: Desk, other: Desk, server: Any) -> None:
    held = desk.acquire("job", ttl=LONG)
    waits = []
    for number in range(12):
        waits.append((desk, other)[number % 2].waiting("job", ttl=LONG))
        wait_until(lambda count=number + 1: len(desk.inspect("job").waiters) == count, "it waits")
    tokens = [entry.token for entry in desk.inspect("job").waiters]
    assert tokens == sorted(tokens)
    assert desk(held.release)
    for number, wait in enumerate(waits):
        lease = wait.result(30)
        assert lease.token == tokens[number]
        assert not any(later.done() for later in waits[number + 1 :])
        assert (desk, other)[number % 2](lease.release)
    assert residue(server) == []


def test_a_handoff_takes_no_more_than_three_calls(desk: Desk, server: Any, record_property: Any) -> None:
    """Stand in line, be pushed the grant, renew it for the first time, release: no call to be admitted."""
    count = 40
    held = desk.acquire("job", ttl=LONG)
    waits = in_line(desk, "job", count)
    server.ask("CONFIG", "RESETSTAT")
    started = time.monotonic()
    assert desk(held.release)
    for wait in waits:
        assert desk(wait.result(30).release)
    seconds = time.monotonic() - started
    heartbeats = count * (seconds / HEARTBEAT + 1)  # of those who stand behind, meanwhile
    made = calls(server)
    told = f"{made / (count + 1):.2f} calls a handoff, {seconds / count * 1e3:.2f} ms"
    record_property("handoff", told)
    print(told)
    assert made <= 3 * (count + 1) + heartbeats


def test_a_grant_is_carried_by_the_push(desk: Desk, other: Desk, server: Any) -> None:
    """From release to release by the next: one call of one and one of the other, and perhaps a renewal."""
    rounds, made, seconds = 10, 0, 0.0
    for _ in range(rounds):
        held = other.acquire("job", ttl=LONG)
        wait = desk.waiting("job", ttl=LONG)
        wait_until(lambda: other.inspect("job").waiters, "it waits")
        wait_until(lambda: connections(server, "pubsub"), "it listens")
        time.sleep(0.05)
        server.ask("CONFIG", "RESETSTAT")
        began = time.monotonic()
        assert other(held.release)
        lease = wait.result(30)
        assert desk(lease.release)
        made += calls(server)
        seconds += time.monotonic() - began
    assert made <= 3 * rounds + 1 + seconds / HEARTBEAT, "and heartbeats, meanwhile"


@pytest.mark.parametrize("how", ["killed", "vanished"])
def test_lost_pushes_cost_latency_and_not_liveness(
    desk: Desk, group: Any, server: Any, flavour: str, how: str
) -> None:
    with proxied(group.url) as (proxy, url), desk_for(flavour, url) as deaf:
        subscribed = (
            proxy.hold("replies", match=lambda data: b"SUBSCRIBE" in data) if how == "vanished" else None
        )
        for _ in range(3):
            held = desk.acquire("job", ttl=LONG)
            wait = deaf.waiting("job", ttl=LONG)
            wait_until(lambda: desk.inspect("job").waiters, "it waits")
            if how == "killed":
                wait_until(lambda: connections(server, "pubsub"), "it listens")
                server.ask("CLIENT", "KILL", "TYPE", "pubsub")
            started = time.monotonic()
            assert desk(held.release)
            lease = wait.result(30)
            assert time.monotonic() - started <= 5.0 + SLACK
            assert deaf(lease.verify)
            assert deaf(lease.release)
        if subscribed is not None:
            assert subscribed.struck
            subscribed.cancel()
    assert residue(server) == []


def test_a_client_listens_again_after_its_listening_connection_broke(
    desk: Desk, other: Desk, server: Any
) -> None:
    held = other.acquire("job", ttl=LONG)
    wait = desk.waiting("job", ttl=LONG)
    for _ in range(3):
        wait_until(lambda: connections(server, "pubsub"), "it listens")
        (before,) = connections(server, "pubsub")
        server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        wait_until(
            lambda gone=before["id"]: [c["id"] for c in connections(server, "pubsub")] not in ([], [gone]),
            "it listens again",
        )
    assert other(held.release)
    lease = wait.result(30)
    assert desk(lease.release)


def test_threads_that_come_and_go_pass_the_reading_on(group: Any, server: Any) -> None:
    """The thread that reads for all leaves by its grant or by its timeout, and another takes over."""
    with desk_for("blocking", group.url) as desk, desk_for("blocking", group.url) as holder:
        names = [f"job-{number}" for number in range(8)]
        stop = time.monotonic() + 6.0
        grants: list[float] = []
        errors: list[BaseException] = []

        def work(number: int) -> None:
            for turn in itertools.count(number):
                if time.monotonic() > stop:
                    return
                name, timeout = names[turn % len(names)], 30.0
                if turn % 20 == 0:  # to leave by the timeout, which even a busy machine answers within
                    name, timeout = "held", 2.0
                try:
                    lease = desk.locks.lock(name, ttl=LONG).acquire(timeout=timeout)
                except BaseException as error:
                    errors.append(error)
                    continue
                grants.append(time.monotonic())
                lease.release()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        with holder.locks.lock("held", ttl=LONG):
            for thread in threads:
                thread.start()
            while time.monotonic() < stop:
                for name in names:
                    lease = holder.locks.lock(name, ttl=LONG).acquire(timeout=30)
                    lease.release()
            for thread in threads:
                thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
        assert {type(error) for error in errors} == {AcquireTimeout}
        assert len(grants) > 100
    assert residue(server) == []


def test_force_release_is_pushed_to_whoever_listens(desk: Desk, other: Desk) -> None:
    losses: list[Any] = []
    held = desk.acquire("job", ttl=LONG, on_lost=losses.append)
    blocked = other.acquire("busy", ttl=LONG)
    wait = desk.waiting("busy", ttl=LONG)  # so that this client listens
    wait_until(lambda: other.inspect("busy").waiters, "it waits")
    time.sleep(0.2)
    (broken,) = other(other.locks.force_release, "job")
    assert broken.owner == held.owner
    wait_until(lambda: losses, "the holder was told", LONG / 4)
    assert not held.is_held()
    assert other(blocked.release)
    assert desk(wait.result(30).release)
