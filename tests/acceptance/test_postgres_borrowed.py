"""Bring your own: a psycopg pool or a SQLAlchemy engine lends the connections, and gets them back clean."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import StaticPool, create_engine, event, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool, QueuePool
from tools.servers import start

from fencelock import AsyncClient, BackendUnavailable, Client, ConfigurationError
from fencelock.backends.postgres import PostgresBackend
from fencelock.backends.postgres.address import Address
from fencelock.backends.postgres.lenders import EngineTasks, Loan, PoolTasks, TaskLender
from fencelock.backends.postgres.loans import BorrowedTasks
from fencelock.backends.postgres.pools import TaskPool, ThreadPool
from fencelock.testing.conformance import checks, run
from fencelock.testing.conformance.expect import took
from unit.support import fork

BLOCKING = ("pool", "engine")
SIZES = (1, 4)
OWN = ["idle"]
"""Beside the borrowed ones: one to listen on."""


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("postgres", settings={"max_connections": "400"}) as group:
        yield group


@pytest.fixture(scope="module")
def url(server: Any) -> str:
    return str(server.url)


def dialect(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


# What lends: each gives a backend, and a function that borrows a connection as its owner would ------


class Lent:
    """A pool or an engine of the user's."""

    def __init__(
        self, owner: Any, backend: Callable[..., PostgresBackend], borrow: Callable[[], Any]
    ) -> None:
        self.owner = owner
        self.backend = backend
        self.borrow = borrow


@contextmanager
def lent(kind: str, url: str, size: int = 4, **options: Any) -> Iterator[Lent]:
    if kind == "pool":
        with ConnectionPool(url, min_size=1, max_size=size, open=True, **options) as pool:
            yield Lent(pool, lambda **more: PostgresBackend.from_pool(pool, **more), pool.connection)
    else:
        engine = create_engine(dialect(url), pool_size=size, max_overflow=0, **options)

        @contextmanager
        def borrow() -> Iterator[Any]:
            with engine.connect() as connection:
                yield connection.connection.driver_connection

        try:
            yield Lent(engine, lambda **more: PostgresBackend.from_engine(engine, **more), borrow)
            gc.collect()  # some checks leave a client to the collector
            until(lambda: not isinstance(engine.pool, QueuePool) or engine.pool.checkedout() == 0)
        finally:
            engine.dispose()  # what is out now would never be closed


@asynccontextmanager
async def lent_async(kind: str, url: str, size: int = 4, **options: Any) -> AsyncIterator[Lent]:
    if kind == "pool":
        async with AsyncConnectionPool(url, min_size=1, max_size=size, open=False, **options) as pool:
            yield Lent(pool, lambda **more: PostgresBackend.from_pool(pool, **more), pool.connection)
    else:
        engine = create_async_engine(dialect(url), pool_size=size, max_overflow=0, **options)

        @asynccontextmanager
        async def borrow() -> AsyncIterator[Any]:
            async with engine.connect() as connection:
                yield (await connection.get_raw_connection()).driver_connection

        try:
            yield Lent(engine, lambda **more: PostgresBackend.from_engine(engine, **more), borrow)
        finally:
            await engine.dispose()


def sessions(url: str, name: str = "fencelock") -> list[str]:
    """The states of the server's sessions that are called so, but for the one that asks."""
    with psycopg.connect(url, application_name="the test") as connection:
        rows = connection.execute(
            "SELECT state FROM pg_stat_activity WHERE backend_type LIKE 'client%%' AND application_name = %s",
            (name,),
        )
        return [row[0] for row in rows]


def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


# Locks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", BLOCKING)
def test_threads_take_turns_on_borrowed_connections(kind: str, size: int, url: str) -> None:
    count = 0
    with lent(kind, url, size) as mine, Client(mine.backend()) as locks:

        def work() -> None:
            nonlocal count
            for _ in range(10):
                with locks.lock("counter", ttl=10, timeout=30):
                    seen = count
                    time.sleep(0.0005)
                    count = seen + 1

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert count == 60
        assert sessions(url) == OWN
    until(lambda: sessions(url) == [])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", BLOCKING)
def test_tasks_take_turns_on_borrowed_connections(kind: str, size: int, url: str) -> None:
    async def main() -> None:
        count = 0
        async with lent_async(kind, url, size) as mine, AsyncClient(mine.backend()) as locks:

            async def work() -> None:
                nonlocal count
                for _ in range(10):
                    async with locks.lock("counter", ttl=10, timeout=30):
                        seen = count
                        await asyncio.sleep(0.0005)
                        count = seen + 1

            await asyncio.gather(*(work() for _ in range(6)))
            assert count == 60
            assert sessions(url) == OWN

    asyncio.run(main(), debug=True)
    until(lambda: sessions(url) == [])


@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.timing
def test_a_waiter_is_woken_by_a_push(kind: str, url: str) -> None:
    with lent(kind, url, 1) as mine, Client(mine.backend()) as locks, Client(url) as others:
        lease = others.lock("pushed").acquire()
        got: list[float] = []
        waiter = threading.Thread(target=lambda: got.append(_waited(locks)))
        waiter.start()
        until(lambda: len(others.inspect("pushed").waiters) == 1)
        time.sleep(0.5)  # a poll would be a quarter of a second apart by now
        released = time.monotonic()
        lease.release()
        waiter.join(60)
        took(0.0, got[0] - released, 0.15, "the handoff")


def _waited(locks: Client) -> float:
    with locks.lock("pushed", timeout=20):
        return time.monotonic()


# Left as they were -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BLOCKING)
def test_what_comes_back_is_clean(kind: str, url: str) -> None:
    with lent(kind, url, 1) as mine:
        with mine.borrow() as connection:
            pid, flag = connection.info.backend_pid, connection.pgconn.nonblocking
        with Client(mine.backend()) as locks, locks.lock("clean"), mine.borrow() as connection:
            assert connection.info.backend_pid == pid
            assert connection.pgconn.nonblocking == flag
            assert connection.info.transaction_status == TransactionStatus.IDLE
            connection.execute("SELECT 1")
            connection.rollback()
        with mine.borrow() as connection:  # the client is closed, and the pool is not
            assert connection.execute("SELECT 1").fetchone() is not None
            names = [row[0] for row in connection.execute("SELECT name FROM pg_prepared_statements")]
            assert names and all(name.startswith("fencelock_") for name in names)
            assert connection.execute("SELECT count(*) FROM pg_listening_channels()").fetchone()[0] == 0


def test_a_statement_is_prepared_once_on_each_connection(url: str) -> None:
    with lent("pool", url, 1) as mine:
        with Client(mine.backend()) as locks, Client(mine.backend()) as more:
            for _ in range(5):
                locks.lock("prepared").acquire().release()
                more.lock("prepared").acquire().release()
        with mine.borrow() as connection:
            rows = connection.execute("SELECT statement FROM pg_prepared_statements").fetchall()
        called = [row[0] for row in rows if ".acquire(" in row[0] or ".leave(" in row[0]]
        assert len(called) == 2


def test_clients_with_schemas_of_their_own_share_a_pool(url: str) -> None:
    with (
        lent("pool", url, 1) as mine,
        Client(mine.backend()) as locks,
        Client(mine.backend(schema="other")) as others,
        locks.lock("same"),
        others.lock("same", timeout=1),
    ):
        assert len(locks.inspect("same").holders) == len(others.inspect("same").holders) == 1


@pytest.mark.parametrize("how", ["DISCARD ALL", "DEALLOCATE ALL"])
def test_statements_that_the_pool_forgets(how: str, url: str) -> None:
    def reset(connection: psycopg.Connection[Any]) -> None:
        connection.autocommit = True
        connection.execute(how, prepare=False)
        connection.autocommit = False

    with lent("pool", url, 1, reset=reset) as mine:
        with mine.borrow() as connection:
            pid = connection.info.backend_pid
        with Client(mine.backend()) as locks:
            for _ in range(10):
                locks.lock("forgotten").acquire().release()
        with mine.borrow() as connection:
            assert connection.info.backend_pid == pid, "it was not closed for that"


def test_statements_that_an_async_pool_forgets(url: str) -> None:
    async def reset(connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.set_autocommit(True)
        await connection.execute("DEALLOCATE ALL", prepare=False)
        await connection.set_autocommit(False)

    async def main() -> None:
        async with lent_async("pool", url, 1, reset=reset) as mine:
            async with mine.borrow() as connection:
                pid = connection.info.backend_pid
            async with AsyncClient(mine.backend()) as locks:
                for _ in range(10):
                    await (await locks.lock("forgotten").acquire()).release()
            async with mine.borrow() as connection:
                assert connection.info.backend_pid == pid

    asyncio.run(main())


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_transaction_on_another_connection_is_not_disturbed(kind: str, url: str) -> None:
    with lent(kind, url, 2) as mine, mine.borrow() as connection:
        connection.execute("CREATE TEMPORARY TABLE mine (x integer) ON COMMIT DROP")
        connection.execute("INSERT INTO mine VALUES (1)")
        with Client(mine.backend()) as locks:
            for _ in range(20):
                with locks.lock("beside"):
                    assert connection.info.transaction_status == TransactionStatus.INTRANS
        assert connection.execute("SELECT x FROM mine").fetchall() == [(1,)]
        connection.rollback()


def test_a_transaction_on_another_connection_is_not_disturbed_async(url: str) -> None:
    async def main() -> None:
        async with lent_async("engine", url, 2) as mine, mine.owner.connect() as connection:
            await connection.execute(text("CREATE TEMPORARY TABLE mine (x integer) ON COMMIT DROP"))
            await connection.execute(text("INSERT INTO mine VALUES (1)"))
            async with AsyncClient(mine.backend()) as locks:
                for _ in range(20):
                    async with locks.lock("beside"):
                        pass
            assert (await connection.execute(text("SELECT x FROM mine"))).all() == [(1,)]

    asyncio.run(main())


def test_one_in_the_middle_of_a_transaction_is_refused(url: str) -> None:
    def check(connection: psycopg.Connection[Any]) -> None:
        connection.execute("SELECT 1")  # and does not end the transaction

    with lent("pool", url, 1, check=check) as mine, Client(mine.backend()) as locks:
        with pytest.raises(BackendUnavailable, match="in the middle of a transaction") as caught:
            locks.lock("refused").acquire(timeout=2)
        assert not caught.value.transient
    with lent("engine", url, 1) as mine, Client(mine.backend()) as locks:

        @event.listens_for(mine.owner, "connect")
        def connected(connection: Any, record: Any) -> None:
            connection.execute("SELECT 1")

        with pytest.raises(BackendUnavailable, match="in the middle of a transaction"):
            locks.lock("refused").acquire(timeout=2)


def test_one_in_the_middle_of_a_transaction_is_refused_async(url: str) -> None:
    async def check(connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("SELECT 1")

    async def main() -> None:
        async with lent_async("pool", url, 1, check=check) as mine, AsyncClient(mine.backend()) as locks:
            with pytest.raises(BackendUnavailable, match="in the middle of a transaction"):
                await locks.lock("refused").acquire(timeout=2)

    asyncio.run(main())


# Nothing to lend -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BLOCKING)
def test_an_exhausted_pool_is_unavailable_by_the_deadline(kind: str, url: str) -> None:
    with lent(kind, url, 1) as mine, Client(mine.backend()) as locks:
        locks.lock("exhausted").acquire().release()
        with mine.borrow():
            began = time.monotonic()
            with pytest.raises(BackendUnavailable, match="none of the pool's connections was free"):
                locks.lock("exhausted").acquire(timeout=0.5)
            assert time.monotonic() - began < 20
        with locks.lock("exhausted", timeout=5):
            pass  # and what came too late went back


@pytest.mark.parametrize("kind", BLOCKING)
def test_an_exhausted_async_pool_is_unavailable_by_the_deadline(kind: str, url: str) -> None:
    async def main() -> None:
        async with lent_async(kind, url, 1) as mine, AsyncClient(mine.backend()) as locks:
            await (await locks.lock("exhausted").acquire()).release()
            async with mine.borrow():
                began = time.monotonic()
                with pytest.raises(BackendUnavailable, match="none of the pool's connections was free"):
                    await locks.lock("exhausted").acquire(timeout=0.5)
                assert time.monotonic() - began < 20
            async with locks.lock("exhausted", timeout=5):
                pass

    asyncio.run(main())


def test_a_closed_pool_is_unavailable(url: str) -> None:
    with lent("pool", url, 1) as mine, Client(mine.backend()) as locks:
        locks.lock("closed").acquire().release()
        mine.owner.close()
        with pytest.raises(BackendUnavailable, match="closed") as caught:
            locks.lock("closed").acquire(timeout=5)
        assert not caught.value.transient


def test_a_pool_that_is_not_open_yet_is_unavailable(url: str) -> None:
    async def main() -> None:
        pool = AsyncConnectionPool(url, open=False)
        async with AsyncClient(PostgresBackend.from_pool(pool)) as locks:
            with pytest.raises(BackendUnavailable, match="not open yet"):
                await locks.lock("closed").acquire(timeout=5)

    asyncio.run(main())


def test_no_server_is_one_line_without_a_password() -> None:
    engine = create_engine("postgresql+psycopg://me:s3cret@127.0.0.1:1/db", poolclass=NullPool)
    backend = PostgresBackend.from_engine(engine)
    assert "s3cret" not in repr(backend)
    with Client(backend) as locks:
        with pytest.raises(BackendUnavailable) as caught:
            locks.lock("nobody").acquire(timeout=0.5)
        assert "s3cret" not in str(caught.value) and "\n" not in str(caught.value)


# Broken ----------------------------------------------------------------------------------------


def terminate(url: str, pid: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_broken_connection_is_replaced(kind: str, url: str) -> None:
    with lent(kind, url, 1) as mine, Client(mine.backend()) as locks:
        for seen in (False, True):
            with mine.borrow() as connection:
                pid = connection.info.backend_pid
            if seen:
                locks.lock("broken").acquire().release()
            terminate(url, pid)
            locks.lock("broken").acquire(timeout=10).release()
            with mine.borrow() as connection:
                assert connection.info.backend_pid != pid
                assert connection.execute("SELECT 1").fetchone() == (1,)
                connection.rollback()


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_broken_async_connection_is_replaced(kind: str, url: str) -> None:
    async def main() -> None:
        async with lent_async(kind, url, 1) as mine, AsyncClient(mine.backend()) as locks:
            for seen in (False, True):
                async with mine.borrow() as connection:
                    pid = connection.info.backend_pid
                if seen:
                    await (await locks.lock("broken").acquire()).release()
                await asyncio.to_thread(terminate, url, pid)
                await (await locks.lock("broken").acquire(timeout=10)).release()
                async with mine.borrow() as connection:
                    assert connection.info.backend_pid != pid

    asyncio.run(main())


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_cancelled_step_costs_the_pool_nothing(kind: str, url: str) -> None:
    async def main() -> None:
        async with lent_async(kind, url, 1) as mine, AsyncClient(mine.backend()) as locks:
            for step in range(40):
                task = asyncio.create_task(locks.lock("cancelled").acquire())
                await asyncio.sleep(step * 0.0001)
                task.cancel()
                try:
                    await (await task).release()
                except asyncio.CancelledError:
                    pass
            async with locks.lock("cancelled", timeout=10):
                pass
            assert not (await locks.inspect("cancelled")).waiters

    asyncio.run(main())


def test_a_forked_child_uses_connections_of_its_own(url: str) -> None:
    with lent("pool", url, 2) as mine, Client(mine.backend()) as locks, locks.lock("forked") as lease:
        child = fork()
        if child == 0:
            good = False
            try:
                good = not lease.is_held() and locks.lock("forked").try_acquire() is None
                locks.lock("of the child").acquire().release()
            finally:
                os._exit(0 if good else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert lease.verify()
        with mine.borrow() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


# What the user gives ---------------------------------------------------------------------------


def test_the_flavours_are_not_mixed_up(url: str) -> None:
    with (
        lent("pool", url) as mine,
        pytest.raises(ConfigurationError, match="goes with Client: for AsyncClient"),
    ):
        AsyncClient(mine.backend())
    pool = AsyncConnectionPool(url, open=False)
    with pytest.raises(ConfigurationError, match="goes with AsyncClient: for Client give a ConnectionPool"):
        Client(PostgresBackend.from_pool(pool))
    engine = create_async_engine(dialect(url))
    with pytest.raises(ConfigurationError, match="goes with AsyncClient: for Client give an Engine"):
        Client(PostgresBackend.from_engine(engine))
    with pytest.raises(ConfigurationError, match="give the AsyncEngine itself"):
        PostgresBackend.from_engine(engine.sync_engine)


def test_what_is_no_pool_and_no_engine(url: str) -> None:
    wrong: Any = url
    with pytest.raises(ConfigurationError, match="neither a ConnectionPool"):
        PostgresBackend.from_pool(wrong)
    with pytest.raises(ConfigurationError, match="neither an Engine"):
        PostgresBackend.from_engine(wrong)
    with pytest.raises(ConfigurationError, match=r"driver is sqlite\+pysqlite"):
        PostgresBackend.from_engine(create_engine("sqlite://"))
    with pytest.raises(ConfigurationError, match="has a StaticPool"):
        PostgresBackend.from_engine(create_engine(dialect(url), poolclass=StaticPool))
    with lent("pool", url) as mine, pytest.raises(ConfigurationError, match="no plain name"):
        mine.backend(schema='x"; DROP')


def test_the_listening_connection_is_made_as_the_others(url: str) -> None:
    """With what the pool was given as keywords, and what only a `creator` knows."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    options = {**parts, "application_name": "mine"}
    with (
        ConnectionPool(kwargs=options, min_size=1, open=True) as pool,
        Client(PostgresBackend.from_pool(pool)) as locks,
    ):
        _listen(locks)
        until(lambda: len(sessions(url, "mine")) >= 2)
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(url, application_name="created")
    )
    for _ in range(2):  # the second finds a connection that the first has seen already
        with Client(PostgresBackend.from_engine(engine)) as locks:
            _listen(locks)
            until(lambda: len(sessions(url, "created")) >= 2)
        until(lambda: len(sessions(url, "created")) == 1)
    engine.dispose()


def _listen(locks: Client) -> None:
    with locks.lock("listening"), pytest.raises(TimeoutError):
        locks.lock("listening").acquire(timeout=1)


def test_the_program_ends_without_closing(url: str) -> None:
    """A lease is taken back though the loop is gone: on a connection that is dialled like the pool's."""

    async def main() -> Any:
        async with AsyncConnectionPool(url, min_size=1, open=False) as pool:
            locks = AsyncClient(PostgresBackend.from_pool(pool))
            return locks, await locks.lock("left behind", ttl=60).acquire()

    locks, _lease = asyncio.run(main())
    with Client(url) as others:
        assert len(others.inspect("left behind").holders) == 1
        with pytest.warns(ResourceWarning, match="was not closed"):
            locks._session.last_will(locks._session)
        assert others.inspect("left behind").is_free


# Conformance -----------------------------------------------------------------------------------


def shortfalls(target: Callable[[], PostgresBackend], flavour: str) -> list[tuple[str, str]]:
    """Return what fails."""
    chosen = [check.name for check in checks()][::6]  # the steps are those of the backend's own pools
    summary = run(target, flavours=[flavour], only=chosen, parallel=6)
    assert summary.passed > 30
    return [(result.check.name, result.detail) for result in summary.results if result.outcome == "failed"]


@pytest.mark.parametrize("kind", BLOCKING)
def test_it_conforms(kind: str, url: str) -> None:
    """The checks look on with clients of the other flavour: those have connections of their own."""
    with lent(kind, url, 4) as mine:

        def backend() -> PostgresBackend:
            made = mine.backend()
            address, borrowing = made._address, made._make_source
            made._make_source = lambda flavour: (
                borrowing(flavour) if flavour == "blocking" else TaskPool(address)
            )
            return made

        assert shortfalls(backend, "blocking") == []
        until(lambda: sessions(url) == [])


class Opening(TaskLender):
    """A pool or an engine for each client: made on its loop, and closed with it."""

    what = twin = ""

    def __init__(self, kind: str, url: str) -> None:
        self._lent: AbstractAsyncContextManager[Lent] = lent_async(kind, url, 4)
        self._kind: Callable[[Any], TaskLender] = PoolTasks if kind == "pool" else EngineTasks
        self._lender: TaskLender | None = None
        self._latch = asyncio.Lock()

    async def lend(self, deadline: float) -> Loan:
        async with self._latch:
            if self._lender is None:
                mine = await self._lent.__aenter__()
                self._lender = self._kind(mine.owner)
        return await self._lender.lend(deadline)

    async def take_back(self, loan: Loan) -> None:
        assert self._lender is not None
        await self._lender.take_back(loan)

    async def write_off(self, loan: Loan) -> None:
        assert self._lender is not None
        await self._lender.write_off(loan)

    async def end(self) -> None:
        if self._lender is not None:
            self._lender = None
            await self._lent.__aexit__(None, None, None)


class Ending(BorrowedTasks):
    """A source that closes the pool after it."""

    async def close(self) -> None:
        await super().close()
        assert isinstance(self._lender, Opening)
        await self._lender.end()


@pytest.mark.parametrize("kind", BLOCKING)
def test_it_conforms_under_asyncio(kind: str, url: str) -> None:
    def backend() -> PostgresBackend:
        address, _ = Address.from_url(url)

        def source(flavour: str) -> Any:
            if flavour == "asyncio":
                return Ending(Opening(kind, url), address, {})
            return ThreadPool(address)

        return PostgresBackend(address, source=source)

    assert shortfalls(backend, "asyncio") == []
