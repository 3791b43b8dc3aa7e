"""SIGKILL and SIGSTOP of processes that hold, and of processes that wait, on Redis and Valkey.

A waiter that died at the head of the queue delays the next by at most five seconds, whatever the ttl; a
holder that died, by its ttl and two seconds. Both are promises, and the server says who holds.
SLACK is for this machine, which runs other tests at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from crew import Crew, Member, wait_until
from redis_desk import Desk, desk_for, residue

from fencelock.core.ports import LONGEST_PATIENCE
from fencelock.testing import boottime, kill, pause, resume

LONG = 60.0
WAITER_BOUND = 5.0
SLACK = 10.0


@pytest.fixture
def desk(group: Any) -> Iterator[Desk]:
    with desk_for("blocking", group.url) as desk:
        yield desk


def queue(crew: Crew, desk: Desk, url: str, flavour: str, count: int, ttl: float = LONG) -> list[Member]:
    """Start processes that wait, in this order."""
    members = []
    for number in range(count):
        member = crew.start("redis_waiter", url, flavour, "job", ttl, name=f"waiter-{number}")
        members.append(member)
        pids = [member.pid for member in members]
        wait_until(lambda pids=pids: [w.pid for w in desk.inspect("job").waiters] == pids, "it waits")
    return members


def holder_is(desk: Desk, member: Member) -> bool:
    return [entry.pid for entry in desk.inspect("job").holders] == [member.pid]


def finish(member: Member) -> None:
    member.tell()
    assert member.hear()["released"] is True
    assert member.end() == 0, member.errors


def test_a_waiter_killed_at_the_head_delays_the_next_by_seconds(
    group: Any, desk: Desk, crew: Crew, flavour: str, record_property: Any
) -> None:
    held = desk.acquire("job", ttl=LONG)
    dead, alive = queue(crew, desk, group.url, flavour, 2)
    assert kill(dead.process) == -9
    released = boottime()
    assert desk(held.release)
    wait_until(lambda: holder_is(desk, alive), "the living one has it", LONG / 2)
    delay = boottime() - released
    record_property("delay", f"{delay:.2f}s")
    print(f"delay after the kill of a waiter: {delay:.2f}s")
    granted = alive.hear()
    assert granted["held"]
    assert granted["verified"]
    assert delay <= WAITER_BOUND + SLACK
    finish(alive)
    assert residue(group.members[0]) == []


def test_a_waiter_killed_as_it_was_granted_the_lock_delays_the_next_by_seconds(
    group: Any, desk: Desk, crew: Crew, flavour: str
) -> None:
    """Stopped first, so that it never hears of its grant: it dies as a holder that does not know."""
    held = desk.acquire("job", ttl=LONG)
    dead, alive = queue(crew, desk, group.url, flavour, 2)
    pause(dead.pid)
    released = boottime()
    assert desk(held.release)
    assert holder_is(desk, dead)
    assert kill(dead.process) == -9
    wait_until(lambda: holder_is(desk, alive), "the living one has it", LONG / 2)
    assert boottime() - released <= WAITER_BOUND + SLACK
    alive.hear()
    finish(alive)


def test_many_dead_waiters_in_a_row_cost_no_more_than_one(
    group: Any, desk: Desk, crew: Crew, flavour: str
) -> None:
    held = desk.acquire("job", ttl=LONG)
    *dead, alive = queue(crew, desk, group.url, flavour, 4)
    for member in dead:
        assert kill(member.process) == -9
    released = boottime()
    assert desk(held.release)
    wait_until(lambda: holder_is(desk, alive), "the living one has it", LONG / 2)
    assert boottime() - released <= WAITER_BOUND + SLACK
    alive.hear()
    finish(alive)


def test_a_killed_holder_is_recovered_from_within_its_ttl(
    group: Any, desk: Desk, crew: Crew, flavour: str
) -> None:
    ttl = 1.5
    holder = crew.start("redis_waiter", group.url, flavour, "job", ttl)
    token = holder.hear()["token"]
    wait = desk.waiting("job", ttl=LONG)
    wait_until(lambda: desk.inspect("job").waiters, "one waits")
    assert kill(holder.process) == -9
    killed = boottime()
    lease = wait.result(30)
    assert boottime() - killed <= ttl + 2.0 + SLACK
    assert lease.token > token
    assert desk(lease.release)


def test_a_waiter_that_slept_through_its_turn_does_not_wake_up_as_a_holder(
    group: Any, desk: Desk, crew: Crew, flavour: str
) -> None:
    """A push from before an expiry is waiting for it when it wakes: it must not be believed."""
    held = desk.acquire("job", ttl=LONG)
    (sleeper,) = queue(crew, desk, group.url, flavour, 1)
    pause(sleeper.pid)
    assert desk(held.release)  # pushed to it, and read when it wakes
    (admitted,) = desk.inspect("job").holders
    assert admitted.pid == sleeper.pid
    successor = desk.acquire("job", ttl=LONG, timeout=LONGEST_PATIENCE + 30)
    assert successor.token > admitted.token
    resume(sleeper.pid)
    wait_until(lambda: desk.inspect("job").waiters, "it queues again")
    assert holder_is(desk, sleeper) is False
    assert desk(successor.verify)
    assert desk(successor.release)
    granted = sleeper.hear()
    assert granted["held"]
    assert granted["verified"]
    assert granted["token"] > successor.token
    finish(sleeper)
    assert residue(group.members[0]) == []


def test_a_waiter_that_slept_while_others_came_and_went(
    group: Any, desk: Desk, crew: Crew, flavour: str
) -> None:
    held = desk.acquire("job", ttl=LONG)
    (sleeper,) = queue(crew, desk, group.url, flavour, 1)
    pause(sleeper.pid)
    assert desk(held.release)
    tokens = []
    for _ in range(3):
        lease = desk.acquire("job", ttl=LONG, timeout=30)
        tokens.append(lease.token)
        assert desk(lease.release)
    resume(sleeper.pid)
    granted = sleeper.hear()
    assert granted["verified"]
    assert granted["token"] > tokens[-1]
    finish(sleeper)
