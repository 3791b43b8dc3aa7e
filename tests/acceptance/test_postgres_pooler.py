"""Behind pgbouncer: in session mode as without it; in transaction mode everything works, but waiters poll.

After all of it no connection is in a transaction, and no session has a lock.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crew import Crew, wait_until
from postgres_desk import FLAVOURS, Desk, ask, desk_for, nothing_left
from tools.servers import start

from fencelock import AcquireTimeout, AsyncClient, ConfigurationError
from fencelock.testing import History, check

LONG = 60.0
MODES = ["session", "transaction"]
PREPARED = "SELECT count(*) FROM pg_prepared_statements"


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("pgbouncer") as group:
        yield group


@pytest.fixture
def server(group: Any) -> Iterator[Any]:
    server = group.members[0]
    yield server
    nothing_left(server)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def listening(server: Any) -> int:
    """How many sessions of the server are in a LISTEN, as far as their last statement tells."""
    rows = ask(server, "SELECT query FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    return len(rows)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "waiters poll" in record.getMessage()]


def test_every_kind_of_lock(
    server: Any, group: Any, mode: str, flavour: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    url = group.urls[mode]
    with desk_for(flavour, url) as desk, desk_for(flavour, url) as other:
        exclusive(desk, other)
        shared(desk, other)
        permits(desk, other)
        broken(desk, other)
        told = warnings(caplog)
    if mode == "session":
        assert not told
    else:
        assert len(told) == 2, "once for each client"
        assert all("transaction mode" in line for line in told)


def exclusive(desk: Desk, other: Desk) -> None:
    held = desk.acquire("job", ttl=LONG)
    waits = []
    for number in range(3):
        waits.append((desk, other)[number % 2].waiting("job", ttl=LONG))
        wait_until(lambda count=number + 1: len(desk.inspect("job").waiters) == count, "it waits")
    assert other(other.locks.lock("job").try_acquire) is None
    with pytest.raises(AcquireTimeout) as caught:
        other.acquire("job", timeout=1)
    assert caught.value.holder.owner == held.owner
    tokens = [held.token]
    assert desk(held.release)
    for number, wait in enumerate(waits):
        lease = wait.result(30)
        assert not any(later.done() for later in waits[number + 1 :]), "first come, first served"
        tokens.append(lease.token)
        owner = (desk, other)[number % 2]
        assert owner(lease.verify)
        owner(lease.extend, LONG)
        assert owner(lease.release)
    assert tokens == sorted(set(tokens))


def shared(desk: Desk, other: Desk) -> None:
    reads = [desk(desk.locks.rwlock("page", ttl=LONG).read().acquire) for _ in range(3)]
    write = other.begin(other.locks.rwlock("page", ttl=LONG).write().acquire)
    wait_until(lambda: desk.inspect("page").waiters, "the writer waits")
    for lease in reads:
        assert desk(lease.release)
    assert other(write.result(30).release)


def permits(desk: Desk, other: Desk) -> None:
    held = [desk(desk.locks.semaphore("permit", 2, ttl=LONG).acquire) for _ in range(2)]
    third = other.begin(other.locks.semaphore("permit", 2, ttl=LONG).acquire)
    wait_until(lambda: desk.inspect("permit").waiters, "the third waits")
    with pytest.raises(ConfigurationError):
        other(other.locks.semaphore("permit", 3).try_acquire)
    for lease in held:
        assert desk(lease.release)
    assert other(third.result(30).release)


def broken(desk: Desk, other: Desk) -> None:
    taken = desk.acquire("broken", ttl=LONG)
    (gone,) = other(other.locks.force_release, "broken")
    assert gone.owner == taken.owner
    assert not desk(taken.verify)


def test_leases_are_renewed(server: Any, group: Any, mode: str, flavour: str) -> None:
    with desk_for(flavour, group.urls[mode]) as desk, desk_for(flavour, group.urls["direct"]) as other:
        lost: list[Any] = []
        leases = [desk.acquire(f"job-{number}", ttl=1.5, on_lost=lost.append) for number in range(10)]
        time.sleep(3.5)
        assert all(lease.is_held() for lease in leases)
        assert other(other.locks.lock("job-0").try_acquire) is None
        assert not lost
        for lease in leases:
            assert desk(lease.release)


def test_pushes_come_through_in_session_mode(server: Any, group: Any, flavour: str) -> None:
    with (
        desk_for(flavour, group.urls["session"]) as desk,
        desk_for(flavour, group.urls["transaction"]) as other,
    ):
        held = other.acquire("job", ttl=LONG)
        waits = desk.waiting("job", ttl=LONG)
        wait_until(lambda: other.inspect("job").waiters, "it waits")
        wait_until(lambda: listening(server), "it listens")
        (channel,) = {row[0] for row in ask(server, "SELECT channel FROM fencelock.queue WHERE NOT held")}
        assert channel.startswith("fencelock_")
        assert other(held.release)
        assert desk(waits.result(30).release)


def test_nobody_listens_in_transaction_mode(server: Any, group: Any, flavour: str) -> None:
    """A LISTEN would be left in a session of the pool, and nobody would hear it."""
    before = listening(server)
    with (
        desk_for(flavour, group.urls["transaction"]) as desk,
        desk_for(flavour, group.urls["direct"]) as other,
    ):
        held = other.acquire("job", ttl=LONG)
        waits = desk.waiting("job", ttl=LONG)
        wait_until(lambda: other.inspect("job").waiters, "it waits")
        wait_until(
            lambda: ask(server, "SELECT channel FROM fencelock.queue WHERE NOT held") == [("",)], "it polls"
        )
        assert listening(server) == before
        assert other(held.release)
        assert desk(waits.result(30).release)


def test_a_crowd_of_processes(server: Any, group: Any, mode: str, tmp_path: Path) -> None:
    with Crew() as crew:
        for number in range(4):
            arguments = (group.urls[mode], tmp_path, f"client-{number}", FLAVOURS[number % 2], 10, 2, 3)
            assert crew.start("postgres_churn", *arguments).hear()["ready"]
        history = tmp_path / "history"
        wait_until(lambda: history.exists() and history.read_text().count('"granted"') > 100, "they work")
        (tmp_path / "stop").touch()
        for member in crew.members:
            assert member.end() == 0, member.errors
    report = check(History.load(history))
    assert report.ok, str(report)
    assert report.grants == report.releases
    assert report.losses == 0


def test_the_pooler_is_started_again(server: Any, group: Any, mode: str, flavour: str) -> None:
    pooler = group.members[1 + MODES.index(mode)]
    with desk_for(flavour, group.urls[mode]) as desk, desk_for(flavour, group.urls["direct"]) as other:
        lease = desk.acquire("job", ttl=20)
        waits = other.waiting("job", ttl=LONG)
        mine = desk.waiting("theirs", ttl=LONG)
        assert desk(mine.result(30).release)
        pooler.restart()
        assert desk(lease.verify)
        wait_until(lambda: desk.inspect("job").waiters, "the other waits")
        assert desk(lease.release)
        theirs = waits.result(30)
        again = desk.waiting("job", ttl=LONG)
        wait_until(lambda: other.inspect("job").waiters, "it waits")
        assert other(theirs.release)
        assert desk(again.result(30).release)


def test_cancelled_while_the_pooler_is_found_out(group: Any) -> None:
    """It listens, so it asks what kind of pooler this is: cancelled anywhere in that, it is cancelled."""

    async def main() -> None:
        async with AsyncClient(group.urls["transaction"]) as other, other.lock("job", ttl=30):
            for step in range(60):
                async with AsyncClient(group.urls["transaction"]) as locks:
                    task = asyncio.ensure_future(locks.lock("job").acquire(timeout=20))
                    await asyncio.sleep(step / 2000)
                    task.cancel()
                    await asyncio.wait({task}, timeout=5)
                    assert task.cancelled(), f"after {step / 2:g} ms"

    asyncio.run(main())
