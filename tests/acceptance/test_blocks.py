"""A `with` block ends the lease that it entered with: on real stores, in both flavours, in real programs.

The interleavings themselves are in tests/unit/test_blocks.py. Here the store is asked, round after round, who
holds a permit: exactly those whose block has not ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from crew import Crew, sqlite_url
from tools.servers import start

import fencelock
from fencelock.testing import view

ROUNDS = 1000
LOOK_EVERY = 20
LIMIT = 6
REQUESTS = 150
AT_A_TIME = 50


@pytest.fixture(scope="module", params=["memory", "sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "memory":
        yield "memory://blocks"
    elif request.param == "sqlite":
        yield sqlite_url(tmp_path_factory.mktemp("blocks"))
    else:
        with start(request.param) as group:
            yield group.url


class Threads:
    """A few threads that make calls, so that a block can be left on another one than it was entered on."""

    def __init__(self, count: int) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._pools = [ThreadPoolExecutor(1) for _ in range(count)]

    def call(self, chance: random.Random, function: Callable[[], Any]) -> Any:
        return chance.choice(self._pools).submit(function).result(60)

    def close(self) -> None:
        for pool in self._pools:
            pool.shutdown()


def stacked(slots: Any) -> Iterator[Any]:
    """The same block by way of an `ExitStack`."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(slots)


def stated(slots: Any) -> Iterator[Any]:
    with slots as lease:
        yield lease


def own(slots: Any) -> Iterator[Any]:
    with slots.acquire() as lease:
        yield lease


def test_generators_on_any_thread(url: str) -> None:
    chance = random.Random(2027)
    with contextlib.closing(Threads(3)) as threads, fencelock.Client(url) as locks:
        slots = locks.semaphore("x", LIMIT, ttl=60)
        for number in range(ROUNDS):
            kinds = [chance.choice((stated, stated, stacked, own)) for _ in range(chance.randint(1, LIMIT))]
            running = [kind(slots) for kind in kinds]
            held = {block: threads.call(chance, lambda block=block: next(block)) for block in running}
            chance.shuffle(running)
            while running:
                block = running.pop()
                threads.call(chance, block.close)
                assert not held[block].is_held()
                assert all(held[other].is_held() for other in running)
                if number % LOOK_EVERY == 0:
                    holders = {entry.owner for entry in locks.inspect("x").holders}
                    assert holders == {held[other].owner for other in running}
        assert locks.inspect("x").is_free
        assert view.held(locks) == []


async def stacked_async(slots: Any) -> AsyncIterator[Any]:
    async with contextlib.AsyncExitStack() as stack:
        yield await stack.enter_async_context(slots)


async def stated_async(slots: Any) -> AsyncIterator[Any]:
    async with slots as lease:
        yield lease


async def own_async(slots: Any) -> AsyncIterator[Any]:
    async with slots.acquire() as lease:
        yield lease


def test_async_generators_in_any_task(url: str) -> None:
    chance = random.Random(2028)

    async def anywhere(coroutine: Any) -> Any:
        return await (asyncio.create_task(coroutine) if chance.random() < 0.5 else coroutine)

    async def main() -> None:
        async with fencelock.AsyncClient(url) as locks:
            slots = locks.semaphore("x", LIMIT, ttl=60)
            for number in range(ROUNDS):
                choices = (stated_async, stated_async, stacked_async, own_async)
                running = [chance.choice(choices)(slots) for _ in range(chance.randint(1, LIMIT))]
                held = {block: await anywhere(block.__anext__()) for block in running}
                chance.shuffle(running)
                while running:
                    block = running.pop()
                    await anywhere(block.aclose())  # type: ignore[attr-defined]
                    assert not held[block].is_held()
                    assert all(held[other].is_held() for other in running)
                    if number % LOOK_EVERY == 0:
                        holders = {entry.owner for entry in (await locks.inspect("x")).holders}
                        assert holders == {held[other].owner for other in running}
            assert (await locks.inspect("x")).is_free
            assert view.held(locks) == []

    asyncio.run(main())


@pytest.mark.parametrize("path", ["plain", "async"])
def test_dependencies_of_fastapi_under_uvicorn(url: str, path: str, crew: Crew) -> None:
    """FastAPI enters and leaves a `def` dependency on different threads of its pool."""
    limit = AT_A_TIME - 5  # of fifty requests at a time a few wait
    server = crew.start("shared_semaphore", url, limit)
    port = server.hear()["port"]

    async def main() -> list[httpx.Response]:
        gate = asyncio.Semaphore(AT_A_TIME)
        limits = httpx.Limits(max_connections=AT_A_TIME)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=60, limits=limits
        ) as browser:

            async def ask() -> httpx.Response:
                async with gate:
                    return await browser.get(f"/{path}")

            return list(await asyncio.gather(*(ask() for _ in range(REQUESTS))))

    answers = asyncio.run(main())
    assert [answer.status_code for answer in answers] == [200] * REQUESTS
    told = [answer.json() for answer in answers]
    assert len({answer["owner"] for answer in told}) == REQUESTS, "each request had a lease of its own"
    assert all(answer["held"] and answer["still"] for answer in told), "and had it to its end"
    assert max(answer["inside"] for answer in told) <= limit
    if not url.startswith("memory"):
        with fencelock.Client(url) as locks:
            assert locks.inspect(path).is_free
    assert "Error" not in server.errors


FIXTURES = '''
import asyncio, threading
import pytest, fencelock

locks = fencelock.Client({url!r})
slots = locks.semaphore("fixtures", 4, ttl=60)
seen = []

@pytest.fixture
def one():
    with slots as lease:
        yield lease

@pytest.fixture
def two():
    with slots as lease:
        yield lease

@pytest.fixture(scope="module")
def module():
    with slots as lease:
        yield lease

@pytest.fixture
def asynchronous():
    """As asyncio plugins do it: set up in one task, torn down in another."""
    async def fixture():
        async with client.semaphore("async-fixtures", 4, ttl=60) as lease:
            yield lease
    with asyncio.Runner() as runner:
        async def make():
            return fencelock.AsyncClient({url!r})
        client = runner.run(make())
        first, second = fixture(), fixture()
        leases = [runner.run(first.__anext__()), runner.run(second.__anext__())]
        yield leases
        runner.run(first.aclose())
        assert not leases[0].is_held() and leases[1].is_held()
        runner.run(second.aclose())
        runner.run(client.close())

@pytest.mark.parametrize("number", range(20))
def test_fixtures(number, module, one, two):
    assert one.verify() and two.verify() and module.verify()
    assert len(locks.inspect("fixtures").holders) == 3

@pytest.mark.parametrize("number", range(5))
def test_async_fixtures(number, asynchronous):
    assert all(lease.is_held() for lease in asynchronous)

def test_nothing_is_left(module):
    assert [entry.owner for entry in locks.inspect("fixtures").holders] == [module.owner]
    assert locks.inspect("async-fixtures").is_free
'''


def test_fixtures_of_pytest(url: str, tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(FIXTURES.format(url=url))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "test_shop.py",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "26 passed" in done.stdout


def test_many_threads_share_one_lock_and_its_decorator(url: str) -> None:
    total = 0
    with fencelock.Client(url) as locks:
        lock = locks.lock("decorated", ttl=60)

        @lock
        def add() -> None:
            nonlocal total
            seen = total
            threading.Event().wait(0.0005)
            total = seen + 1

        @lock
        def iterate() -> Iterator[int]:
            add_here = total
            yield add_here

        def work() -> None:
            for _ in range(25):
                add()
                assert len(list(iterate())) == 1

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert total == 100
        assert locks.inspect("decorated").is_free
