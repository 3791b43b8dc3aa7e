"""Bring your own: connections out of a SQLAlchemy engine, given back as they were."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from mysql_desk import ask, cut, ours, residue
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from tools.servers import start

from fencelock import AsyncClient, BackendUnavailable, Client, ConfigurationError
from fencelock.backends.mysql import MySQLBackend


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("mariadb") as group:
        yield group.members[0]


def address(server: Any, driver: str) -> str:
    return f"mysql+{driver}://fencelock:reef-knot@{server.address}/fencelock"


@pytest.fixture
def engine(server: Any) -> Iterator[Any]:
    engine = create_engine(address(server, "pymysql"), pool_size=3, max_overflow=0)
    yield engine
    engine.dispose()


def test_an_engine(server: Any, engine: Any) -> None:
    with Client(MySQLBackend.from_engine(engine)) as locks:
        with locks.lock("job", ttl=30) as lease:
            assert lease.verify()
            assert locks.lock("job").try_acquire() is None
            assert [holder.token for holder in locks.inspect("job").holders] == [lease.token]
        with engine.connect() as connection:
            assert connection.execute(text("SELECT 1")).scalar() == 1
            timeouts = connection.connection.driver_connection._read_timeout
            assert timeouts is None
        assert engine.pool.checkedout() == 0
        for number in ours(server):
            cut(server, number)
        with locks.lock("job", ttl=30):  # broken ones are invalidated, and made anew
            pass
        assert engine.pool.checkedout() == 0
    assert residue(server) == 0
    assert ask(server, "SELECT COUNT(*) FROM information_schema.INNODB_TRX") == ((0,),)


def test_an_engine_whose_pool_is_empty(engine: Any) -> None:
    engine.pool._timeout = 0.2
    busy = [engine.connect() for _ in range(3)]
    try:
        no_connection = pytest.raises(BackendUnavailable, match="the engine gives no connection")
        with Client(MySQLBackend.from_engine(engine)) as locks, no_connection:
            locks.lock("job").try_acquire()
    finally:
        for connection in busy:
            connection.close()


def test_an_async_engine(server: Any) -> None:
    async def main() -> None:
        engine = create_async_engine(address(server, "asyncmy"), pool_size=3, max_overflow=0)
        async with AsyncClient(MySQLBackend.from_engine(engine)) as locks:

            async def work(number: int) -> None:
                async with locks.lock("job", ttl=30, timeout=30) as lease:
                    assert await lease.verify()

            await asyncio.gather(*(work(number) for number in range(10)))
            for step in range(40):
                task = asyncio.ensure_future(locks.lock("job").acquire())
                await asyncio.sleep(step / 10_000)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await (await task).release()
            for number in ours(server):
                cut(server, number)
            async with locks.lock("job", ttl=30):
                pass
            assert await locks.list() == []
        assert engine.sync_engine.pool.checkedout() == 0
        await engine.dispose()

    asyncio.run(main())
    assert residue(server) == 0


def test_the_wrong_kind_of_engine(server: Any, engine: Any) -> None:
    with pytest.raises(ConfigurationError, match="give an Engine to Client"):
        AsyncClient(MySQLBackend.from_engine(engine))
    later = create_async_engine(address(server, "asyncmy"))
    with pytest.raises(ConfigurationError, match="give an Engine to Client"):
        Client(MySQLBackend.from_engine(later))
    with pytest.raises(ConfigurationError, match="speaks sqlite"):
        MySQLBackend.from_engine(create_engine("sqlite://"))
    with pytest.raises(ConfigurationError, match="is not a SQLAlchemy engine"):
        MySQLBackend.from_engine("mysql://localhost/db")
    assert "password" not in repr(MySQLBackend.from_engine(engine))
