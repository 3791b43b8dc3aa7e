"""No residue: many names, each locked once, leave no row, and tables that are as small as before.

VACUUM gives back the table, not its index, which is as large as the rows that may be dead before autovacuum
comes; so the sizes before are those after a first lot of names, and they are small.

`make test` takes a part of it; FENCELOCK_NAMES=100000 and FENCELOCK_CHURN=60 (seconds) ask for all.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from crew import Crew, wait_until
from postgres_desk import FLAVOURS, activity, ask, desk_for, nothing_left, residue, sizes
from tools.servers import start

from fencelock import AcquireTimeout, BackendUnavailable, Client
from fencelock.backends.postgres.schema import BUCKETS
from fencelock.testing import view

NAMES = int(os.environ.get("FENCELOCK_NAMES", "4000"))
CHURN = float(os.environ.get("FENCELOCK_CHURN", "8"))
THREADS = 8
RARE = 97
GIVES_UP = AcquireTimeout, BackendUnavailable
"""What a wait of a few milliseconds ends with: there may have been no answer at all by then."""
SMALL = 2 << 20
ROOM = 256 << 10
"""Bytes that a table may differ by when it was vacuumed: a few pages, and its free space map."""
# Nothing here is about durability, and the disks of test machines are slow.
QUICK = {"fsync": "off", "autovacuum_naptime": "1s"}


@pytest.fixture
def group() -> Iterator[Any]:
    with start("postgres", settings=QUICK) as group:
        yield group


@pytest.fixture
def server(group: Any) -> Any:
    return group.members[0]


def vacuum(server: Any) -> None:
    for table in ("queue", "buckets"):
        ask(server, f"VACUUM fencelock.{table}")


def use(locks: Client, number: int) -> None:
    """Lock a name and release it; now and then in an unusual way."""
    name = f"{uuid.UUID(int=number)}#send_email"
    if number % RARE:
        locks.lock(name).acquire().release()
        return
    with locks.lock(name, metadata={"n": number}):
        assert locks.lock(name).try_acquire() is None
        with pytest.raises(GIVES_UP):
            locks.lock(name).acquire(timeout=0.01)
        with locks.semaphore(f"{name}/permit", 3), locks.rwlock(f"{name}/read").read():
            locks.force_release(f"{name}/other")


def use_all(locks: Client, count: int) -> None:
    numbers = iter(range(count))
    turn = threading.Lock()

    def work() -> None:
        while True:
            with turn:
                number = next(numbers, None)
            if number is None:
                return
            use(locks, number)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(work) for _ in range(THREADS)]:
            done.result()


def test_distinct_names_leave_nothing(server: Any, record_property: Any) -> None:
    with Client(server.url) as locks:
        for _ in range(2):  # every bucket, all dead rows there may be, index pages that wait to be used again
            use_all(locks, NAMES)
            vacuum(server)
        before = sizes(server)
        started = time.monotonic()
        use_all(locks, NAMES)
        seconds = time.monotonic() - started
    wait_until(lambda: residue(server) == [], "nothing is owed")
    vacuum(server)
    after = sizes(server)
    told = f"{NAMES} names in {seconds:.1f}s: {before} before, {after} after"
    record_property("residue", told)
    print(told)
    assert ask(server, "SELECT count(*) FROM fencelock.buckets") == [(BUCKETS,)]
    assert ask(server, "SELECT count(*) FROM fencelock.version") == [(1,)]
    for table, size in after.items():
        assert size <= before[table] + ROOM, told
        assert size <= SMALL, told
    wait_until(lambda: not activity(server), "nobody is connected")
    nothing_left(server)


def test_a_churn_does_not_swell_the_tables(server: Any, tmp_path: Any, record_property: Any) -> None:
    """Autovacuum does its work: after a while the tables do not grow any more."""
    with Crew() as crew:
        for number, flavour in enumerate(FLAVOURS):
            arguments = (server.url, tmp_path, f"churn-{number}", flavour, 30, 3, 6)
            assert crew.start("postgres_churn", *arguments).hear()["ready"]
        wait_until(lambda: (tmp_path / "history").stat().st_size > 10_000, "they work")
        samples, ends = [], time.monotonic() + CHURN
        while time.monotonic() < ends:
            samples.append(sum(sizes(server).values()))
            time.sleep(CHURN / 60)
        (tmp_path / "stop").touch()
        for member in crew.members:
            assert member.end() == 0, member.errors
    half = len(samples) // 2
    first, second = max(samples[:half]), max(samples[half:])
    grants = (tmp_path / "history").read_text().count('"granted"')
    vacuums = ask(server, "SELECT relname, autovacuum_count FROM pg_stat_user_tables ORDER BY 1")
    told = f"{grants} grants in {CHURN:g}s: at most {first} bytes, then {second}; {vacuums}"
    record_property("churn", told)
    print(told)
    # A row per step would be 100 bytes and more for each grant.
    assert second <= max(1.5 * first, first + ROOM), told
    assert residue(server) == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_waiters_that_time_out_leave_nothing(server: Any, flavour: str) -> None:
    with desk_for(flavour, server.url) as desk:
        held = desk.acquire("job", ttl=60)
        waits = [desk.waiting("job", timeout=0.3) for _ in range(20)]
        for wait in waits:
            assert isinstance(wait.exception(30), GIVES_UP)
        wait_until(lambda: [row[2] for row in residue(server)] == [held.owner], "only the holder is left")
        assert desk(held.release)
        assert residue(server) == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_has_expired_is_swept_though_nobody_asks_for_it(
    server: Any, flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash leaves rows of names that nobody ever asks for again; whoever else is there removes them."""
    monkeypatch.setattr("fencelock.backends.postgres.SWEEP_EVERY", 0.5)
    with desk_for(flavour, server.url) as desk:
        leases = [desk.acquire(f"job-{number}", ttl=3, renew=False) for number in range(50)]
        assert len(residue(server)) == 50
        wait_until(lambda: not any(lease.is_held() for lease in leases), "all have expired")
        ask(server, "UPDATE fencelock.queue SET deadline = deadline - interval '5 minutes'")

        def swept() -> bool:
            desk(desk.acquire("other").release)
            return not residue(server)

        wait_until(swept, "all are gone")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_client_keeps_nothing_of_names_it_has_released(server: Any, flavour: str) -> None:
    with desk_for(flavour, server.url) as desk:
        for number in range(300):
            lease = desk.acquire(f"job-{number}")
            if number % 10 == 0:
                with pytest.raises(GIVES_UP):
                    desk.acquire(f"job-{number}", timeout=0.01)
            desk(lease.release)
        wait_until(lambda: not view.pending_cleanups(desk.locks), "nothing is left to clean up")
        assert view.kept(desk.locks) == []
        backend = desk.locks._session.backend
        assert not backend._waiting
        assert not backend._listener._slots
