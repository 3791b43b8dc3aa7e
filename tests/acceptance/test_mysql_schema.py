"""The tables: made by whoever comes first, by many at once, or by an operator; and left alone after that."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from crew import Crew
from mysql_desk import FLAVOURS, ask, desk_for, getlock, nothing_left
from tools.servers import start
from tools.servers.packages import program

from fencelock import AsyncClient, Client
from fencelock.backends import backend_from_url

FIRST_USE = """
import sys, fencelock
sys.stdin.readline()
with fencelock.Client(sys.argv[1]) as locks, locks.lock("job", timeout=60) as lease:
    print('{"token": %d}' % lease.token, flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("mariadb") as group:
        yield group.members[0]


@pytest.mark.parametrize("form", ["mysql", "mysql+getlock"])
def test_many_come_first(server: Any, form: str) -> None:
    ask(server, "DROP DATABASE IF EXISTS crowd", "CREATE DATABASE crowd")
    url = f"mysql://fencelock:reef-knot@{server.address}/crowd"
    with Crew() as crew:
        members = [crew.python(FIRST_USE, url if form == "mysql" else getlock(url)) for _ in range(6)]
        for member in members:
            member.tell()
        tokens = [member.hear()["token"] for member in members]
        assert len(set(tokens)) == 6
        for member in members:
            assert member.end() == 0, member.errors
            assert member.errors == ""


@pytest.mark.parametrize("form", ["mysql", "mysql+getlock"])
def test_an_operator_makes_them(server: Any, form: str) -> None:
    """What `schema()` says is run by the `mysql` program, twice, and serves users who may not create."""
    ask(server, "DROP DATABASE IF EXISTS made", "CREATE DATABASE made", "DROP USER IF EXISTS clerk")
    ask(server, "CREATE USER clerk IDENTIFIED BY 'clerk'")
    ask(server, "GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON made.* TO clerk")
    url = f"{form}://clerk:clerk@{server.address}/made?prefix=app_"
    script = backend_from_url(url).schema()  # type: ignore[attr-defined]
    client = [
        program("mariadb"),
        "--no-defaults",
        "-h",
        server.host,
        "-P",
        str(server.port),
        "-u",
        "root",
        "made",
    ]
    for _ in range(2):
        subprocess.run(client, input=script, text=True, check=True, timeout=60, capture_output=True)
    for flavour in FLAVOURS:
        with desk_for(flavour, url) as desk:
            lease = desk.acquire("job", ttl=30)
            assert desk(lease.verify)
            assert desk(lease.release)
    names = {row[0] for row in ask(server, "SHOW TABLES FROM made")}
    assert names
    assert all(name.startswith("app_") for name in names)


def test_two_prefixes_are_two_worlds(server: Any) -> None:
    one, two = Client(f"{server.url}?prefix=one_"), Client(f"{server.url}?prefix=two_")
    with one, two, one.lock("job", timeout=5), two.lock("job", timeout=5):
        assert len(one.list()) == len(two.list()) == 1


def test_sessions_with_settings_of_their_own(server: Any) -> None:
    """Time zones, isolation levels and SQL modes of the server do not matter."""
    ask(
        server,
        "SET GLOBAL time_zone = '+13:00'",
        "SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,NO_ZERO_DATE'",
    )
    try:
        for flavour in FLAVOURS:
            with desk_for(flavour, f"{server.url}?prefix=odd_") as desk:
                lease = desk.acquire("job's \\ name", ttl=30, metadata={"it's": 'a "quote" \\'})
                (holder,) = desk.inspect("job's \\ name").holders
                assert holder.metadata == {"it's": 'a "quote" \\'}
                assert 25 < holder.expires_in <= 30
                assert desk(lease.verify)
                assert desk(lease.release)
    finally:
        ask(
            server,
            "SET GLOBAL time_zone = 'SYSTEM'",
            "SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "SET GLOBAL sql_mode = DEFAULT",
        )


def test_a_full_use_leaves_nothing_open(server: Any) -> None:
    import asyncio

    async def main() -> None:
        locks = AsyncClient(server.url)
        both = locks.multi(["a", "b"])
        async with locks, locks.rwlock("data").read(), locks.semaphore("slots", 2), both:
            assert len(await locks.list()) == 4

    with Client(server.url) as locks, locks.rwlock("data").write(), locks.election("lead").lead():
        assert len(locks.list()) == 2
    with Client(getlock(server.url)) as locks, locks.multi(["a", "b"]):
        pass
    asyncio.run(main())
    nothing_left(server)
