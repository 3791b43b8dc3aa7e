"""A guard adds no round trip beyond its one statement: requests are counted on the wire.

A proxy stands before the server and notes each request. A driver waits for the answer to one before it sends
the next, so a request is a round trip. tests/unit/fencing/test_table.py counts the statements on SQLite.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
import redis.asyncio
from tools.servers import start
from workers.fencing_shelves import SQLShelf, done, mapped_row

from fencelock import StaleToken
from fencelock.fencing import AsyncRedisFence, RedisFence
from fencelock.testing import TCPProxy

KINDS = [
    ("postgres", "psycopg"),
    ("postgres", "psycopg-async"),
    ("postgres", "connection"),
    ("postgres", "session"),
    ("postgres", "connection-async"),
    ("postgres", "session-async"),
    ("mariadb", "pymysql"),
    ("mariadb", "asyncmy"),
    ("mariadb", "connection"),
    ("mariadb", "session"),
    ("mariadb", "connection-async"),
    ("mariadb", "session-async"),
]


class Wire:
    """A server behind a proxy; `requests` are those that were sent since it was last emptied."""

    def __init__(self, group: Any, proxy: TCPProxy) -> None:
        parts = urlsplit(str(group.url))
        user = f"{parts.username}:{parts.password or ''}@" if parts.username else ""
        self.url = f"{parts.scheme}://{user}{proxy.host}:{proxy.port}{parts.path}"
        self.requests: list[bytes] = []
        proxy.delay(0, "requests", match=self._note)

    def _note(self, request: bytes) -> bool:
        self.requests.append(request)
        return False


@pytest.fixture(scope="module")
def wires() -> Iterator[Callable[[str], Wire]]:
    """`wires(store)`: each server is started once, when it is first asked for."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def wire(store: str) -> Wire:
            group = stack.enter_context(start(store))
            member = group.members[0]
            return Wire(group, stack.enter_context(TCPProxy(member.host, member.port)))

        yield wire


@pytest.fixture
def wire(wires: Callable[[str], Wire], store: str) -> Wire:
    return wires(store)


Steps = Callable[[], Awaitable[Any]]
Count = Callable[[Steps], int]


@pytest.fixture
def shelf(wire: Wire, driver: str) -> Iterator[SQLShelf]:
    shelf = SQLShelf(f"{driver}+admit", wire.url)
    for table in ("shelf", "log", "fencelock_fences"):
        shelf.transaction(lambda table=table: shelf.ask(f"DROP TABLE IF EXISTS {table}"))
    shelf.create()
    shelf.write(1, "warm")
    yield shelf
    shelf.close()


@pytest.fixture
def count(wire: Wire, shelf: SQLShelf) -> Count:
    """`count(steps)` does a transaction, and says how many round trips that took."""

    def trips(steps: Steps) -> int:
        wire.requests.clear()
        shelf.transaction(steps)
        return len(wire.requests)

    return trips


@pytest.mark.parametrize(("store", "driver"), KINDS)
def test_admit_is_one_round_trip_and_the_column_form_none(shelf: SQLShelf, wire: Wire, count: Count) -> None:
    async def bare() -> None:
        await shelf.ask("UPDATE shelf SET text = 'x'")

    def admitted(token: int) -> Steps:
        async def steps() -> None:
            await done(shelf.call("admit", shelf.conn, "shelf", token))
            await bare()

        return steps

    async def in_its_place() -> None:
        await done(shelf.call("update", shelf.conn, "shelf", {"text": "y"}, where={"id": 1}, token=5))

    without = count(bare)
    assert without >= 2, "no teeth: the requests were not seen"
    assert [count(admitted(token)) for token in (5, 5, 6)] == [without + 1] * 3
    assert [count(in_its_place) for _ in range(3)] == [without] * 3
    with pytest.raises(StaleToken):
        count(admitted(4))
    assert len(wire.requests) == without, "more than the guard and the rollback"


@pytest.mark.parametrize(("store", "driver"), [kind for kind in KINDS if "session" in kind[1]])
def test_the_mixin_is_one_round_trip(shelf: SQLShelf, count: Count) -> None:
    async def change(token: int | None) -> None:
        row = await done(shelf.conn.get_one(mapped_row(), 1))
        if token is not None:
            await done(row.admit_async(token) if shelf.asynchronous else row.admit(token))
        row.text = f"by {token}"

    without = count(lambda: change(None))
    trips = [count(lambda token=token: change(token)) for token in (5, 6)]  # type: ignore[misc]
    # Without RETURNING what was read before is read again: under asyncio at once.
    added = 2 if shelf.asynchronous and shelf.dialect == "mysql" else 1
    assert trips == [without + added] * 2
    assert shelf.read()[1] == "by 6"


@pytest.mark.parametrize("store", ["redis"])
def test_a_fenced_write_is_one_command(wire: Wire) -> None:
    with redis.Redis.from_url(wire.url) as client:
        fence = RedisFence(client)
        fence.set("r", "x", token=5)
        wire.requests.clear()
        fence.set("r", "y", token=6)
        fence.hset("h", {"a": 1, "b": 2}, token=6)
        with pytest.raises(StaleToken):
            fence.set("r", "late", token=5)
    sent = [request.split(b"\r\n")[2] for request in wire.requests]
    assert sent == [b"EVALSHA", b"EVALSHA", b"EVAL", b"EVALSHA"], "a script that is new is sent once"

    async def main() -> None:
        client = redis.asyncio.Redis.from_url(wire.url)
        fence = AsyncRedisFence(client)
        await fence.set("r", "x", token=7)
        wire.requests.clear()
        await fence.set("r", "y", token=8)
        await client.aclose()

    asyncio.run(main())
    assert len(wire.requests) == 1
