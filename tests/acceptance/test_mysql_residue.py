"""What is left: nothing of a name that is not in use, however many there were.

FENCELOCK_NAMES=100000 asks for more than eight thousand.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from mysql_desk import FLAVOURS, ask, desk_for, getlock, nothing_left, residue
from tools.servers import start

from fencelock import AsyncClient, Client
from fencelock.backends.mysql.places import Places

NAMES = int(os.environ.get("FENCELOCK_NAMES", "8000"))
TASKS = 16


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    # Nothing here is about durability, and a disk that is shared with others is slow.
    with start("mariadb", settings={"innodb-flush-log-at-trx-commit": "0"}) as group:
        yield group.members[0]


async def use(url: str, count: int) -> None:
    names = iter(range(count))

    async def work() -> None:
        for number in names:
            name = f"{uuid.UUID(int=number)}#send_email"
            async with locks.lock(name):
                if not number % 97:
                    assert await locks.lock(name).try_acquire() is None
                    async with locks.semaphore(f"{name}/permit", 3), locks.rwlock(f"{name}/read").read():
                        continue

    async with AsyncClient(url) as locks:
        await asyncio.gather(*(work() for _ in range(TASKS)))


def test_many_names_leave_nothing(server: Any) -> None:
    asyncio.run(use(server.url, NAMES))
    assert residue(server) == 0
    assert ask(server, "SELECT COUNT(*) FROM fencelock_buckets") == ((256,),)
    assert ask(server, "SELECT COUNT(*) FROM fencelock_gone") == ((0,),)
    nothing_left(server)


def test_many_names_leave_nothing_with_getlock(server: Any) -> None:
    count = NAMES // 10
    with Client(getlock(server.url)) as locks:
        for number in range(count):
            with locks.lock(f"{uuid.UUID(int=number)}#send_email"):
                pass
        desk = locks._session.backend._desk
        assert (desk._claims, desk._owners, desk._crowds) == ({}, {}, {})
    assert ask(server, "SELECT COUNT(*) <= 256 FROM fencelock_tokens") == ((1,),)
    nothing_left(server)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("form", ["mysql", "mysql+getlock"])
def test_names_that_a_collation_would_fold_do_not_meet(server: Any, flavour: str, form: str) -> None:
    names = [
        "name",
        "NAME",
        "name ",
        "name  ",
        "näme",
        "na\u0308me",
        "name\t",
        "nam",
        "name'",
        'na"me',
        "n\\ame",
    ]
    with desk_for(flavour, server.url if form == "mysql" else getlock(server.url)) as desk:
        leases = [desk.acquire(name, timeout=5) for name in names]
        assert all(desk(lease.verify) for lease in leases)
        if form == "mysql":
            assert sorted(state.name for state in desk(desk.locks.list)) == sorted(names)
            assert [state.name for state in desk(desk.locks.list, "name ")] == ["name ", "name  "]
        for lease in leases:
            assert desk(lease.release)


def test_what_nobody_asks_for_any_more_is_swept(server: Any) -> None:
    with Client(server.url) as locks, Client(server.url) as others:
        dead = [others.lock(f"dead-{number}", ttl=30).acquire() for number in range(5)]
        ask(server, "UPDATE fencelock_queue SET deadline = deadline - 60000000")
        ask(server, "INSERT INTO fencelock_gone VALUES ('somebody', 0)")
        locks._session.backend._sweep_at = 0.0
        with locks.lock("alive"):
            assert residue(server) == 1
        assert ask(server, "SELECT COUNT(*) FROM fencelock_gone") == ((0,),)
        assert not any(lease.verify() for lease in dead)


def test_a_step_that_comes_after_its_request_was_given_up(server: Any) -> None:
    """It was sent on a connection that broke, and arrives when everything is over: it must do nothing."""
    with Client(server.url) as locks:
        backend = locks._session.backend
        place = Places("").find("late")
        owner = "f" * 32
        with locks.lock("late"):
            pass
        leave = f"CALL fencelock_leave_v2({place.bucket}, {place.word}, '{owner}', 0, 1)"
        late = (
            f"CALL fencelock_acquire_v1({place.bucket}, {place.word}, '{owner}', 'exclusive', 1, 60000000, "
            "3000000, 1, x'7b7d')"
        )
        assert ask(server, leave) == ((0,),)
        assert ask(server, late) == ((3, 0),)
        assert locks.inspect("late").is_free
        assert backend._unsure == {}
