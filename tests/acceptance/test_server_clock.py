"""The server's clock is set forward, so a lease expires there; and back, before anybody has looked.

Set forward it ends leases early, as declared. But a lease that its holder was told is lost stays lost: its
record does not come back to life with the clock, to keep everybody out until a deadline that nobody is under.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crew import wait_until
from redis_desk import FLAVOURS, Desk, desk_for
from tools.servers import start
from tools.servers.clock import Clock

from fencelock import LeaseLost, Unsupported

KINDS = ["redis", "valkey", "redlock", "postgres", "mariadb"]
JUMP = 60
TTL = 50
"""Longer than anybody here waits, and shorter than the jump."""


@pytest.fixture(scope="module", params=KINDS)
def moved(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A kind of server, where it is, and its clock."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # servers that have an account of their own read there
        clock = Clock(Path(folder))
        with start(request.param, env=clock.env) as group:
            yield request.param, group.url, clock


@pytest.fixture(params=FLAVOURS)
def desk(request: pytest.FixtureRequest, moved: Any) -> Iterator[Desk]:
    with desk_for(request.param, moved[1]) as desk:
        yield desk


def end(desk: Desk, lease: Any, told: str) -> None:
    """Let the holder be told that its lease is over."""
    if told == "verify":
        assert desk(lease.verify) is False
    elif told == "extend":
        with pytest.raises(LeaseLost):
            desk(lease.extend, TTL)
    elif told == "release":
        desk(lease.release)  # it may say that it was there: nobody has had the lock since
    else:
        wait_until(lambda: not lease.is_held(), "a renewal has found it expired")
    assert not lease.is_held()


@pytest.mark.parametrize("told", ["verify", "extend", "release", "renewal"])
def test_a_lease_that_was_called_lost_does_not_come_back(desk: Desk, moved: Any, told: str) -> None:
    _, _, clock = moved
    lost = desk.acquire("job", ttl=3 if told == "renewal" else TTL)
    clock.set(JUMP)
    try:
        end(desk, lost, told)
    finally:
        clock.set(0)
    other = desk.acquire("job", ttl=TTL, timeout=TTL / 5)
    assert other.token > lost.token
    assert desk(other.release)


@pytest.mark.parametrize("told", ["verify", "extend", "release"])
def test_nor_beside_one_that_is_held(desk: Desk, moved: Any, told: str) -> None:
    """A server that forgets a lock once its last deadline has passed keeps all of this one."""
    kind, _, clock = moved
    if kind == "redlock":
        with pytest.raises(Unsupported, match="redlock"):
            desk(desk.locks.rwlock("book", ttl=TTL).read().acquire)
        return
    lost = desk(desk.locks.rwlock("book", ttl=TTL).read().acquire)
    held = desk(desk.locks.rwlock("book", ttl=TTL + JUMP).read().acquire)
    clock.set(JUMP)
    try:
        end(desk, lost, told)
    finally:
        clock.set(0)
    assert desk(held.verify)
    assert desk(held.release)
    writer = desk(desk.locks.rwlock("book", ttl=TTL).write().acquire, timeout=TTL / 5)
    assert writer.token > held.token
    assert desk(writer.release)
