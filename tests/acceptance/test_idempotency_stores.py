"""Once and `Store` on PostgreSQL, MariaDB and Redis: waits, errors, retention, every sort of connection."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from tools.servers import start
from workers.databases import asked, connected, connected_async, done, engine_url

from fencelock import BackendUnavailable, ConfigurationError, LeaseLost, StaleToken
from fencelock.idempotency import (
    AsyncStore,
    Attempt,
    Done,
    FingerprintChanged,
    InProgress,
    Store,
    create_table,
    create_table_async,
    once,
    once_async,
    purge,
)
from fencelock.idempotency.places import PREFIX
from fencelock.idempotency.records import make_key


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with start(request.param) as group:
        yield str(group.url)


@pytest.fixture
def table(url: str) -> None:
    done(url, "DROP TABLE IF EXISTS fencelock_idempotency", "DROP TABLE IF EXISTS ledger")
    done(url, "CREATE TABLE ledger (amount INTEGER)")
    conn = connected(url)
    create_table(conn)
    create_table(conn)
    conn.commit()
    conn.close()


def never() -> None:
    raise AssertionError("it was run")


@pytest.mark.usefixtures("table")
def test_a_wait_that_takes_too_long_leaves_the_transaction_as_it_was(url: str) -> None:
    first, second = connected(url), connected(url)
    try:
        assert once(first, "k", "f", lambda: "first") == "first"
        asked(second, "INSERT INTO ledger VALUES (7)")
        began = time.monotonic()
        with pytest.raises(InProgress, match="key 'k' is in progress elsewhere"):
            once(second, "k", "f", never, timeout=1)
        assert 0.9 <= time.monotonic() - began < 20
        assert asked(second, "SELECT amount FROM ledger") == [(7,)]
        first.commit()
        assert once(second, "k", "f", never, timeout=1) == "first"
        second.commit()
        if url.startswith("postgresql"):
            assert asked(second, "SHOW lock_timeout") == [("0",)]
        else:
            assert asked(second, "SELECT @@innodb_lock_wait_timeout") == [(50,)]
    finally:
        first.close()
        second.close()


@pytest.mark.usefixtures("table")
def test_a_rollback_lets_the_next_one_do_it(url: str) -> None:
    first, second = connected(url), connected(url)
    try:
        once(first, "k", "f", lambda: asked(first, "INSERT INTO ledger VALUES (1)"))
        first.rollback()
        assert once(second, "k", "other", lambda: "second", timeout=5) == "second"
        second.commit()
        assert done(url, "SELECT count(*) FROM ledger") == [(0,)]
        with pytest.raises(FingerprintChanged):
            once(first, "k", "f", never)
    finally:
        first.close()
        second.close()


@pytest.mark.usefixtures("table")
def test_results_are_purged_in_their_time(url: str) -> None:
    conn = connected(url)
    for number in range(5):
        once(conn, f"old-{number}", "f", lambda: 1, retention=0)
    once(conn, "young", "f", lambda: 1)
    conn.commit()
    time.sleep(0.05)
    assert [purge(conn, limit=3), purge(conn), purge(conn)] == [3, 2, 0]
    conn.commit()
    assert once(conn, "young", "f", never) == 1
    for limit in (0, True, "x"):
        with pytest.raises(ConfigurationError, match="limit="):
            purge(conn, limit=limit)  # type: ignore[arg-type]
    conn.close()


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("autocommit", [False, True])
@pytest.mark.parametrize("step", ["finish", "extend", "abandon"])
def test_a_late_caller_waits_for_its_successor(url: str, autocommit: bool, step: str) -> None:
    """The successor's claim is under way when the late one comes: the token is compared after that."""
    store = Store(lambda: connected(url, autocommit=autocommit))
    attempt = store.begin("k", "f")
    assert isinstance(attempt, Attempt)
    steps: dict[str, Callable[[], None]] = {
        "finish": lambda: store.finish(attempt, "late"),
        "extend": lambda: store.extend(attempt, 5),
        "abandon": lambda: store.abandon(attempt),
    }
    successor = connected(url)
    asked(successor, "UPDATE fencelock_idempotency SET token = token + 1, tries = 2")
    found: list[Any] = []

    def late() -> None:
        try:
            found.append(steps[step]())
        except StaleToken as error:
            found.append(error.newest)

    thread = threading.Thread(target=late)
    thread.start()
    time.sleep(0.3)
    assert found == []
    successor.commit()
    thread.join(30)
    successor.close()
    assert found == [attempt.token + 1]
    assert done(url, "SELECT done FROM fencelock_idempotency") == [(0,)]


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("autocommit", [False, True])
def test_two_who_take_over_at_once(url: str, autocommit: bool) -> None:
    """One of them has begun to claim the key of a crashed attempt: the other waits, and is told."""
    store = Store(lambda: connected(url, autocommit=autocommit))
    crashed = store.begin("k", "f")
    assert isinstance(crashed, Attempt)
    store.abandon(crashed)
    first = connected(url)
    asked(first, "SELECT * FROM fencelock_idempotency FOR UPDATE")
    found: list[Any] = []

    def second() -> None:
        try:
            found.append(store.begin("k", "f", timeout=0))
        except InProgress as error:
            found.append(error)

    thread = threading.Thread(target=second)
    thread.start()
    time.sleep(0.3)
    assert found == []
    asked(first, "UPDATE fencelock_idempotency SET token = token + 1, tries = 2, deadline = deadline + 60")
    first.commit()
    thread.join(30)
    first.close()
    assert [type(one) for one in found] == [InProgress]


def test_a_missing_table_is_one_clear_line(url: str) -> None:
    done(url, "DROP TABLE IF EXISTS fencelock_idempotency")
    conn = connected(url)
    with pytest.raises(ConfigurationError, match=r"no table fencelock_idempotency: .*create_table\(conn\)"):
        once(conn, "k", "f", never)
    conn.rollback()
    conn.close()
    engine = create_engine(engine_url(url))
    for store in (Store(lambda: connected(url)), Store(engine.connect)):
        with pytest.raises(ConfigurationError, match="no table"):
            store.begin("k", "f")
    engine.dispose()


@pytest.mark.usefixtures("table")
def test_there_must_be_a_transaction(url: str) -> None:
    conn = connected(url, autocommit=True)
    with pytest.raises(ConfigurationError, match="no transaction"):
        once(conn, "k", "f", never)
    conn.close()


@pytest.mark.usefixtures("table")
def test_an_engine_of_sqlalchemy(url: str) -> None:
    engine = create_engine(engine_url(url))
    for _ in range(2):
        with engine.begin() as conn:

            def pay(conn: Any = conn) -> int:
                return int(conn.execute(text("INSERT INTO ledger VALUES (1)")).rowcount)

            assert once(conn, "k", "f", pay, timeout=3) == 1
    store = Store(engine.connect)
    assert [store.run("s", "f", lambda attempt: attempt.tries) for _ in range(2)] == [1, 1]
    assert done(url, "SELECT count(*) FROM ledger") == [(1,)]
    engine.dispose()


@pytest.mark.usefixtures("table")
def test_asynchronous_ones(url: str) -> None:
    async def main() -> None:
        engine = create_async_engine(engine_url(url, is_async=True))
        async with engine.begin() as conn:
            await create_table_async(conn)

        async def result() -> str:
            return "once"

        for _ in range(2):
            async with engine.begin() as conn:
                assert await once_async(conn, "k", "f", result, timeout=3) == "once"

        async def effect(attempt: Attempt) -> int:
            return attempt.tries

        for autocommit in (False, True):
            for target in (engine.connect, lambda a=autocommit: connected_async(url, autocommit=a)):
                store = AsyncStore(target, namespace=f"{autocommit}")
                assert [await store.run("s", "f", effect) for _ in range(2)] == [1, 1]
                attempt = await store.begin(f"c-{target}", "f")
                assert isinstance(attempt, Attempt)
                await store.abandon(attempt)
                assert f"c-{target}" in {one.key for one in await store.crashed()}
        await engine.dispose()

    asyncio.run(main())


# Redis ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["redis", "valkey", "cluster"])
def made(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """A way to make a store of some flavour, and to use it in the same way."""
    with start(request.param) as group:
        first = group.members[0]

        def make(flavour: str, *, decode: bool = False, **options: Any) -> Any:
            kind = "RedisCluster" if request.param == "cluster" else "Redis"
            return Used(flavour, kind, (first.host, first.port), decode, options)

        yield make


class Used:
    """A store on Redis, of either flavour."""

    def __init__(self, flavour: str, kind: str, where: tuple[str, int], decode: bool, options: Any) -> None:
        self._is_async = flavour == "asyncio"
        self._make = (kind, where, decode)
        self._options = options

    def client(self) -> Any:
        """A blocking client of the same server."""
        import redis

        kind, (host, port), decode = self._make
        return getattr(redis, kind)(host=host, port=port, decode_responses=decode)

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            kind, (host, port), decode = self._make
            if not self._is_async:
                with self.client() as client:
                    return getattr(Store(client, **self._options), name)(*args, **options)

            async def main() -> Any:
                import redis.asyncio

                client = getattr(redis.asyncio, kind)(host=host, port=port, decode_responses=decode)
                try:
                    return await getattr(AsyncStore(client, **self._options), name)(*args, **options)
                finally:
                    await client.aclose()

            return asyncio.run(main())

        return call


@pytest.mark.parametrize("decode", [False, True])
def test_a_store_on_redis(made: Any, flavour: str, decode: bool) -> None:
    key = f"k-{flavour}-{decode}-é"
    store = made(flavour, decode=decode, ttl=1.0)
    first = store.begin(key, "f")
    assert isinstance(first, Attempt) and first.tries == 1
    with pytest.raises(InProgress, match="left"):
        store.begin(key, "f", timeout=0)
    with pytest.raises(FingerprintChanged):
        store.begin(key, "g", timeout=0)
    time.sleep(1.05)
    assert key in {one.key for one in store.crashed()}
    second = store.begin(key, "f")
    assert second.tries == 2 and second.token > first.token
    with pytest.raises(StaleToken) as caught:
        store.finish(first, "late")
    assert caught.value.newest == second.token
    store.finish(second, {"é": [1, None]})
    assert store.begin(key, "f") == Done({"é": [1, None]})
    with pytest.raises(LeaseLost, match="ended already"):
        store.finish(second, "twice")
    with pytest.raises(FingerprintChanged):
        store.begin(key, "g")
    assert key not in {one.key for one in store.crashed()}


def test_a_token_is_above_the_last_one_whatever_the_clock_says(made: Any, flavour: str) -> None:
    store = made(flavour, ttl=0.2)
    first = store.begin(f"clock-{flavour}", "f")
    ahead = first.token + 10**12  # as if the server's clock had been ahead, and was set back
    with store.client() as client:
        client.hset(PREFIX + make_key(f"clock-{flavour}", "f").id, "token", ahead)
    time.sleep(0.25)
    assert store.begin(f"clock-{flavour}", "f").token == ahead + 1


def test_redis_keeps_a_result_for_its_time(made: Any, flavour: str) -> None:
    store = made(flavour, retention=0.3)
    attempt = store.begin(f"t-{flavour}", "f")
    store.finish(attempt, 1)
    assert store.begin(f"t-{flavour}", "f") == Done(1)
    time.sleep(0.4)
    again = store.begin(f"t-{flavour}", "other")
    assert again.tries == 1 and again.token > attempt.token
    store.abandon(again)
    assert store.begin(f"t-{flavour}", "other").tries == 2


def test_a_redis_that_is_gone() -> None:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    once_only = Retry(NoBackoff(), 0)  # the client's own tries take seconds
    with redis.Redis(port=1, retry=once_only) as client, pytest.raises(BackendUnavailable):
        Store(client).begin("k", "f")


def test_a_client_of_the_other_flavour() -> None:
    import redis
    import redis.asyncio

    with pytest.raises(ConfigurationError, match="other flavour"):
        AsyncStore(redis.Redis())
    with pytest.raises(ConfigurationError, match="other flavour"):
        Store(redis.asyncio.Redis())
