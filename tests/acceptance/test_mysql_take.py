"""The short way: who had a lock, and finds the bucket as it was, takes it again without looking at the queue.

Whoever comes in between is seen, however short it stayed and however late it is done.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from crew import PATIENCE, wait_until
from mysql_desk import FLAVOURS, ask, connected, desk_for, residue
from tools.servers import start

from fencelock import Client
from fencelock.backends.mysql.places import Place, Places

NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
DETAILS = """'{"client": "c", "host": "h", "pid": 1}'"""
REST = f"'exclusive', 1, 60000000, 3000000, 2, {DETAILS}"


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("mariadb", settings={"innodb-flush-log-at-trx-commit": "0"}) as group:
        with Client(group.url) as locks, locks.lock("first"):
            pass
        yield group.members[0]


@pytest.fixture(params=FLAVOURS)
def desk(request: Any, server: Any) -> Iterator[Any]:
    with desk_for(request.param, server.url) as desk:
        yield desk
    assert residue(server) == 0


@pytest.fixture
def others(server: Any) -> Iterator[Client]:
    with Client(server.url) as others:
        yield others


def had(desk: Any, name: str) -> tuple[Place, int]:
    """Let the client have had a lock; return its place, and the token it left there."""
    lease = desk.acquire(name, ttl=30)
    assert desk(lease.release)
    place = desk.locks._session.backend._places.find(name)
    assert place._left == lease.token
    return place, lease.token


def token_of(server: Any, place: Place) -> int:
    return int(ask(server, f"SELECT token FROM fencelock_buckets WHERE bucket = {place.bucket}")[0][0])


def test_a_lock_that_nobody_else_had(server: Any, desk: Any) -> None:
    place, last = had(desk, "mine")
    for _ in range(5):
        lease = desk.acquire("mine", ttl=30, metadata={"why": "tea"})
        assert place._vain == 0
        assert last < lease.token == token_of(server, place)
        assert desk(lease.verify)
        (holder,) = desk.inspect("mine").holders
        assert (holder.token, holder.mode, holder.metadata) == (lease.token, "exclusive", {"why": "tea"})
        assert 25 < holder.expires_in <= 30
        assert desk(lease.release)
        last = lease.token


def test_somebody_came_and_stays(desk: Any, others: Client) -> None:
    place, _ = had(desk, "stays")
    with others.lock("stays") as theirs:
        assert desk(desk.locks.lock("stays").try_acquire) is None
        assert place._vain == 1
        waiting = desk.waiting("stays")
        wait_until(lambda: len(others.inspect("stays").waiters) == 1, "it stands in line")
    lease = waiting.result(PATIENCE)
    assert lease.token > theirs.token
    assert desk(lease.release)


def test_somebody_came_and_left(desk: Any, others: Client) -> None:
    had(desk, "left")
    with others.lock("left") as theirs:
        pass
    lease = desk.acquire("left")
    assert lease.token > theirs.token
    assert desk(lease.release)


@pytest.mark.parametrize("mode", ["shared", "permit"])
def test_somebody_came_in_another_mode(desk: Any, others: Client, mode: str) -> None:
    had(desk, mode)
    lock = others.rwlock(mode).read() if mode == "shared" else others.semaphore(mode, 2)
    with lock:
        assert desk(desk.locks.lock(mode).try_acquire) is None


def test_somebody_came_who_may_hold_beside_us(desk: Any, others: Client) -> None:
    place, _ = had(desk, "readers")
    with others.rwlock("readers").read():
        lease = desk(desk.locks.rwlock("readers").read().try_acquire)
        assert lease is not None
        assert desk(lease.release)
        assert place.last() == 0  # somebody may have stood before a shared lease


def test_somebody_came_who_is_not_done_yet(server: Any, desk: Any) -> None:
    """It has drawn its token and written its row, but not committed: the short way waits for the latch."""
    place, _ = had(desk, "slow")
    with connected(server) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"UPDATE fencelock_buckets SET token = token + 1 WHERE bucket = {place.bucket}")
        cursor.execute(
            f"INSERT INTO fencelock_queue SELECT {place.word}, token, 'slow', 'exclusive', 1, "
            f"{NOW} + 60000000, {NOW}, 1, {DETAILS} FROM fencelock_buckets WHERE bucket = {place.bucket}"
        )
        trying = desk.begin(desk.locks.lock("slow").try_acquire)
        time.sleep(0.3)
        assert not trying.done()
        cursor.execute("COMMIT")
        assert trying.result(PATIENCE) is None
        cursor.execute("DELETE FROM fencelock_queue")


def test_a_waiter_came_while_it_was_held(server: Any, desk: Any, others: Client) -> None:
    """A lease that leaves the lock to somebody is no reason to pass it."""
    had(desk, "next")
    lease = desk.acquire("next")
    with desk_for("asyncio", server.url) as third:
        waiting = third.waiting("next")
        wait_until(lambda: len(others.inspect("next").waiters) == 1, "it stands in line")
        assert desk(lease.release)
        assert desk(desk.locks.lock("next").try_acquire) is None
        assert third(waiting.result(PATIENCE).release)


def test_a_late_step(server: Any, desk: Any) -> None:
    """It was sent on a connection that broke, and arrives when its request was given up: it does nothing."""
    place, last = had(desk, "late")
    owner = "e" * 32
    leave = f"CALL fencelock_leave_v2({place.bucket}, {place.word}, '{owner}', 0, 1)"
    late = f"CALL fencelock_take_v1({last}, {place.bucket}, {place.word}, '{owner}', {REST})"
    assert ask(server, leave) == ((0,),)
    assert ask(server, late) == ((3, 0),)
    assert desk.inspect("late").is_free
    ask(server, "DELETE FROM fencelock_gone")


def test_a_step_that_is_done_twice(server: Any, desk: Any) -> None:
    place, last = had(desk, "twice")
    owner = "d" * 32
    step = f"CALL fencelock_take_v1({last}, {place.bucket}, {place.word}, '{owner}', {REST})"
    ((first,),) = ask(server, step)
    ((second,),) = ask(server, step)
    assert first < 0
    assert second == -first
    ask(server, "DELETE FROM fencelock_queue")


def test_where_others_come_and_go_it_is_tried_less_and_less() -> None:
    place = Places("").find("job")
    tried = []
    for turn in range(1, 200):
        if place.last():
            tried.append(turn)
            place.tried(in_vain=True)
        place.left(turn)
    assert tried == [2, 4, 8, 16, 32, 64, 128, 192]
    place.tried(in_vain=False)
    place.left(7)
    assert (place.last(), place.last()) == (7, 0)
