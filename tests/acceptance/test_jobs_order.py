"""The order of one worker: by priority, then what a crash has left, then by when it was due."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from tools.servers import start

from fencelock import AsyncClient, Client, jobs

DRIVERS = {
    "sqlite": ("sqlite:", "sqlite:", "sqlite+aiosqlite:"),
    "postgres": ("postgresql:", "postgresql+psycopg:", "postgresql+psycopg:"),
    "mariadb": ("mysql:", "mysql+pymysql:", "mysql+asyncmy:"),
}
COUNT = 250
"""More than a worker looks at, at a time."""
PRIORITIES = (5, 0, -3)
LEFT = 7
"""Every so many jobs say running: their worker has crashed."""
POLL = 0.05


class Urls:
    """Databases, each started when it is first asked for."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._stack = stack
        self._known = {"sqlite": f"sqlite:///{folder}/jobs.db"}

    def __getitem__(self, kind: str) -> tuple[str, str]:
        if kind not in self._known:
            self._known[kind] = str(self._stack.enter_context(start(kind)).url)
        plain, blocking, asynchronous = DRIVERS[kind]
        url = self._known[kind]
        return url.replace(plain, blocking, 1), url.replace(plain, asynchronous, 1)


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Urls]:
    with ExitStack() as stack:
        yield Urls(tmp_path_factory.mktemp("jobs"), stack)


class Shop:
    """A new table, and one worker of either flavour, with locks or without."""

    def __init__(self, urls: Urls, kind: str, form: str, flavour: str) -> None:
        self._url, self._async_url = urls[kind]
        self._form, self._flavour = form, flavour
        self.engine = create_engine(self._url)
        self.sql("DROP TABLE IF EXISTS fencelock_jobs")
        self.table = jobs.Table(self.engine)
        self.table.create()

    def sql(self, statement: str, **values: Any) -> None:
        with self.engine.begin() as conn:
            conn.execute(text(statement), values)

    def work(self, handle: Callable[[Any], None], **options: Any) -> None:
        """Do what is to be done now."""
        if self._flavour == "blocking":
            with Client("memory://") as client:
                locks = client if self._form == "locks" else None
                jobs.Worker(locks, self.table, {"mail": handle}, **options).run_once()
            return

        async def handle_later(job: Any) -> None:
            handle(job)

        async def main() -> None:
            engine = create_async_engine(self._async_url)
            async with AsyncClient("memory://") as client:
                locks = client if self._form == "locks" else None
                table = jobs.AsyncTable(engine)
                await jobs.AsyncWorker(locks, table, {"mail": handle_later}, **options).run_once()
            await engine.dispose()

        asyncio.run(main())


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["locks", "rows"])
def shop(urls: Urls, kind: str, flavour: str, request: pytest.FixtureRequest) -> Iterator[Shop]:
    shop = Shop(urls, kind, request.param, flavour)
    yield shop
    shop.engine.dispose()


def test_one_worker_does_what_was_due_first(shop: Shop) -> None:
    with shop.engine.begin() as conn:
        for number in range(COUNT):
            shop.table.enqueue("mail", number, conn=conn)
    seen: list[int] = []
    shop.work(lambda job: seen.append(job.payload))
    assert seen == list(range(COUNT))


def test_priorities_then_what_a_crash_has_left_then_what_was_due_first(shop: Shop) -> None:
    dues = random.sample(range(COUNT), COUNT)
    now = time.time()
    with shop.engine.begin() as conn:
        for number, due in enumerate(dues):
            id_ = shop.table.enqueue("mail", number, priority=PRIORITIES[number % 3], conn=conn)
            change = text("UPDATE fencelock_jobs SET due = :due, status = :status WHERE id = :id")
            status = "pending" if number % LEFT else "running"
            conn.execute(change, {"due": now - 1000 + due, "status": status, "id": id_})
    seen: list[int] = []
    shop.work(lambda job: seen.append(job.payload))
    assert sorted(seen) == list(range(COUNT))
    # With locks a worker tries pending jobs between those left behind: a lock may still be held for these.
    wanted = sorted(range(COUNT), key=lambda number: (-PRIORITIES[number % 3], dues[number]))
    for is_left in (True, False):
        assert [n for n in seen if (n % LEFT == 0) is is_left] == [
            n for n in wanted if (n % LEFT == 0) is is_left
        ]
    assert [PRIORITIES[number % 3] for number in seen] == sorted(
        (PRIORITIES[number % 3] for number in range(COUNT)), reverse=True
    )
    assert seen[0] % LEFT == 0


def test_an_urgent_job_does_not_wait_for_those_that_were_found_before_it(shop: Shop) -> None:
    for number in range(20):
        shop.table.enqueue("mail", number)
    seen: list[Any] = []

    def handle(job: Any) -> None:
        seen.append(job.payload)
        if job.payload == 2:
            shop.table.enqueue("mail", "urgent", priority=9)
            time.sleep(2 * POLL)

    shop.work(handle, poll=POLL)
    assert seen == [0, 1, 2, "urgent", *range(3, 20)]
