"""Deadlines on PostgreSQL and MySQL: an extension may shorten, a renewal may not; the longest ttl is kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

import mysql_desk
import postgres_desk
import pytest
from advisory_desk import advisory
from crew import Crew, wait_until
from redis_desk import AsyncDesk, Desk, desk_for
from tools.servers import start

from fencelock import Client
from fencelock.backends.base import Outcome, Renewal
from fencelock.runtime.blocking import run
from fencelock.testing import pause

LONG = 600.0
LEASES = ["postgresql", "postgresql+advisory", "mysql"]
SESSIONS = ["postgresql+advisory", "mysql+getlock"]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    with start("postgres") as group:
        yield group.members[0]


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Any]:
    with start("mariadb") as group:
        yield group.members[0]


@pytest.fixture
def url(scheme: str, request: pytest.FixtureRequest) -> str:
    server = request.getfixturevalue("mariadb" if scheme.startswith("mysql") else "postgres")
    found = {
        "postgresql+advisory": lambda: advisory(server.url),
        "mysql+getlock": lambda: mysql_desk.getlock(server.url),
    }
    return str(found.get(scheme, lambda: server.url)())


def left(desk: Desk, name: str = "job") -> float:
    """In how many seconds the lock's only holder expires, as the server has it."""
    (holder,) = desk.inspect(name).holders
    return float(holder.expires_in)


@pytest.mark.parametrize("scheme", LEASES)
def test_an_extension_may_shorten_and_lengthen(url: str, flavour: str) -> None:
    with desk_for(flavour, url) as desk:
        lease = desk.acquire("job", ttl=LONG, renew=False)
        assert LONG - 60 < left(desk) <= LONG
        desk(lease.extend, 20)
        assert 10 < left(desk) <= 20
        desk(lease.extend, 40)
        assert 20 < left(desk) <= 40
        assert desk(lease.verify)
        assert desk(lease.release)


@pytest.mark.parametrize("scheme", LEASES)
def test_a_waiter_has_the_lock_when_the_shorter_ttl_is_over(url: str, flavour: str) -> None:
    with desk_for(flavour, url) as desk, desk_for(flavour, url) as other:
        lease = desk.acquire("job", ttl=LONG, renew=False)
        call = other.waiting("job", ttl=30)
        wait_until(lambda: desk.inspect("job").waiters, "it waits")
        desk(lease.extend, 0.2)
        successor = call.result(30)
        assert successor.token > lease.token
        assert not lease.is_held()
        assert other(successor.release)


def renew(desk: Desk, leases: Sequence[Any], asked: Sequence[tuple[float, bool, bool]]) -> list[Outcome]:
    """Renew leases in one call: each with a ttl, whether to extend at all, and whether exactly."""
    session = desk.locks._session
    renewals = [
        Renewal(lease._hold.request, lease.token, *words) for lease, words in zip(leases, asked, strict=True)
    ]
    step = session.backend.renew(renewals, deadline=session.runtime.now() + 10)
    if isinstance(desk, AsyncDesk):
        return list(asyncio.run_coroutine_threadsafe(step, desk.loop).result(30))
    return list(run(step))


@pytest.mark.parametrize("scheme", LEASES)
def test_a_batch_renews_exactly_plainly_and_not_at_all(url: str, flavour: str) -> None:
    asked = [(20.0, True, True), (20.0, True, False), (2 * LONG, True, False), (20.0, False, True)]
    asked.append((2 * LONG, True, True))
    with desk_for(flavour, url) as desk:
        leases = [desk.acquire(f"job-{number}", ttl=LONG, renew=False) for number in range(5)]
        renewed, held = Outcome.RENEWED, Outcome.HELD
        assert renew(desk, leases, asked) == [renewed, renewed, renewed, held, renewed]
        assert 10 < left(desk, "job-0") <= 20
        assert LONG - 60 < left(desk, "job-1") <= LONG, "a renewal does not shorten"
        assert 2 * LONG - 60 < left(desk, "job-2") <= 2 * LONG
        assert LONG - 60 < left(desk, "job-3") <= LONG, "it was only looked at"
        assert 2 * LONG - 60 < left(desk, "job-4") <= 2 * LONG
        for lease in leases:
            assert desk(lease.release)


@pytest.mark.parametrize("scheme", ["mysql+getlock"])
def test_a_batch_of_session_locks(url: str, flavour: str) -> None:
    """The server knows no deadline: the client lets go of the lock."""
    asked = [(0.5, True, True), (0.5, True, False), (0.5, False, True)]
    with desk_for(flavour, url) as desk, Client(url) as others:
        leases = [desk.acquire(f"job-{number}", ttl=LONG, renew=False) for number in range(3)]
        assert renew(desk, leases, asked) == [Outcome.RENEWED, Outcome.RENEWED, Outcome.HELD]
        assert others.lock("job-0").acquire(timeout=30).release()
        assert others.lock("job-1").try_acquire() is None, "a renewal does not shorten"
        assert others.lock("job-2").try_acquire() is None, "it was only looked at"
        assert [desk(lease.verify) for lease in leases] == [False, True, True]


HOLDER = """
import sys, time
import fencelock
locks = fencelock.Client(sys.argv[1])
other = locks.lock("other", ttl=2).acquire()
lease = locks.lock("job", ttl=55).acquire()
lease.extend(2)
print("{}", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("scheme", SESSIONS)
def test_a_stopped_process_keeps_a_lock_for_its_shorter_ttl(url: str, crew: Crew) -> None:
    """The server ends a silent session: after the ttl that its leases have, not after one that they had."""
    holder = crew.python(HOLDER, url)
    holder.hear()
    pause(holder.pid)
    with Client(url) as locks:
        assert locks.lock("job").acquire(timeout=30).release()


@pytest.mark.parametrize("scheme", [*LEASES, "mysql+getlock"])
def test_the_longest_ttl_of_a_waiter(url: str, flavour: str) -> None:
    with desk_for(flavour, url) as desk, desk_for(flavour, url) as other:
        longest = desk.locks.guarantees.max_ttl
        lease = desk.acquire("job", ttl=longest)
        call = other.waiting("job", ttl=longest, renew=False)
        time.sleep(0.2)
        assert desk(lease.release)
        successor = call.result(30)
        assert longest - 60 < successor.remaining() <= longest
        assert other(successor.verify)
        desk_left = longest if "getlock" in url else left(desk)
        assert longest - 60 < desk_left <= longest
        assert other(successor.release)


OLDER = {
    "postgresql": "SELECT oid::regprocedure FROM pg_proc WHERE proname = 'renew'",
    "postgresql+advisory": "SELECT oid::regprocedure FROM pg_proc WHERE proname = 'advisory_renew'",
}


@pytest.mark.parametrize("scheme", LEASES)
def test_a_schema_without_exact_renewals_is_completed(
    scheme: str, url: str, flavour: str, request: pytest.FixtureRequest
) -> None:
    with desk_for(flavour, url) as desk:
        lease = desk.acquire("job", ttl=LONG, renew=False)
        if scheme == "mysql":
            mysql_desk.ask(request.getfixturevalue("mariadb"), "DROP PROCEDURE fencelock_renew_v2")
        else:
            server = request.getfixturevalue("postgres")
            ((name,),) = postgres_desk.ask(server, OLDER[scheme])
            postgres_desk.ask(server, f"DROP FUNCTION {name}")
        desk(lease.extend, 20)
        assert 10 < left(desk) <= 20
        assert desk(lease.release)
