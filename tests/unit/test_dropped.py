"""A lease that its caller dropped fails safe: it is not renewed, ends with its ttl, and says so."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencelock import AcquireTimeout, AsyncClient, Client
from fencelock.core.holds import abandoned

TTL = 3.0
"""A collection in a process with thousands of tests may take a second."""


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"sqlite://{tmp_path}/locks.db"


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@contextlib.contextmanager
def dropping(name: str = "x") -> Iterator[None]:
    """Expect that a lease is dropped inside."""
    with pytest.warns(
        ResourceWarning, match=rf"the lease on '{name}' was dropped.*keep what acquire\(\) returns"
    ):
        yield
        gc.collect()


def ends_with_its_ttl(other: Client, name: str, dropped: float) -> None:
    """Fail unless another client gets the lock, and not before the ttl is over."""
    with other.lock(name, timeout=TTL + 10):
        assert time.monotonic() - dropped >= TTL * 0.9


def test_a_result_that_is_not_kept_protects_until_the_ttl(
    client: Client, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    of_others = set(abandoned)  # earlier tests of this process may have left some, until their ttl is over
    with Client(url) as other:
        for take in (client.lock("x", ttl=TTL).acquire, client.lock("x", ttl=TTL).try_acquire):
            before = time.monotonic()
            with dropping():
                take()
            assert not other.inspect("x").is_free
            ends_with_its_ttl(other, "x", before)
    told = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 2
    assert all(
        "'x' was dropped" in record.getMessage() and "`with` block" in record.getMessage() for record in told
    )
    assert until(lambda: abandoned <= of_others)


def test_the_habit_of_other_libraries_protects_its_work(client: Client, url: str) -> None:
    """`if lock.try_acquire(): work()`"""
    with Client(url) as other, dropping():
        if client.lock("x", ttl=TTL).try_acquire():
            gc.collect()
            assert other.lock("x").try_acquire() is None


def test_under_asyncio_too(url: str) -> None:
    async def main() -> None:
        async with AsyncClient(url) as client, AsyncClient(url) as other:
            before = time.monotonic()
            with dropping():
                await client.lock("x", ttl=TTL).acquire()
            assert await other.lock("x").try_acquire() is None
            async with other.lock("x", timeout=TTL + 10):
                assert time.monotonic() - before >= TTL * 0.9

    asyncio.run(main())


def test_leases_of_a_multi_lock_are_dropped_together(client: Client) -> None:
    before = time.monotonic()
    with pytest.warns(ResourceWarning) as told:
        client.multi(["a", "b"], ttl=TTL).acquire()
        gc.collect()
    assert sorted(str(one.message).split("'")[1] for one in told) == ["a", "b"]
    ends_with_its_ttl(client, "a", before)
    ends_with_its_ttl(client, "b", before)


def test_another_that_is_kept_is_renewed_meanwhile(client: Client) -> None:
    with client.lock("kept", ttl=TTL) as kept:
        with dropping():
            client.lock("x", ttl=TTL).acquire()
        with client.lock("x", timeout=TTL + 10):
            pass
        time.sleep(TTL)
        assert kept.is_held() and kept.verify()


def test_a_timeout_in_the_same_process_says_so(client: Client, url: str) -> None:
    with dropping():
        client.lock("x", ttl=60).acquire()
    with Client(url) as other:
        for waiting in (client, other):
            with pytest.raises(
                AcquireTimeout, match="this process acquired it and dropped the lease"
            ) as caught:
                waiting.lock("x").acquire(timeout=0.1)
            assert caught.value.holder is not None
    with client.lock("y"), pytest.raises(AcquireTimeout) as caught:
        client.lock("y").acquire(timeout=0)
    assert "dropped" not in str(caught.value)


def test_closing_the_client_releases_it(client: Client, url: str) -> None:
    of_others = set(abandoned)
    with Client(url) as other:
        with dropping():
            other.lock("x", ttl=60).acquire()
        assert not client.inspect("x").is_free
    assert client.inspect("x").is_free
    assert until(lambda: abandoned <= of_others)


def test_a_client_that_is_dropped_with_its_lease_stays_until_the_ttl(client: Client, url: str) -> None:
    before = time.monotonic()
    with dropping():
        Client(url).lock("x", ttl=TTL).acquire()
    assert not client.inspect("x").is_free
    ends_with_its_ttl(client, "x", before)


def test_in_a_cycle_of_everything_too(client: Client, url: str) -> None:
    before = time.monotonic()
    with dropping():
        cycle: list[Any] = [Client(url)]
        cycle += [cycle[0].lock("x", ttl=TTL).acquire(), cycle]
        del cycle
    assert not client.inspect("x").is_free
    ends_with_its_ttl(client, "x", before)


def test_an_async_client_that_is_dropped_with_its_lease_stays_until_the_ttl(url: str) -> None:
    async def main() -> None:
        async with AsyncClient(url) as other:
            before = time.monotonic()
            with dropping():
                await AsyncClient(url).lock("x", ttl=TTL).acquire()
            assert await other.lock("x").try_acquire() is None
            async with other.lock("x", timeout=TTL + 10):
                assert time.monotonic() - before >= TTL * 0.9

    asyncio.run(main())


def test_the_place_is_named_where_tracemalloc_knows_it(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    tracemalloc.start(10)
    try:
        with pytest.warns(ResourceWarning, match=r"acquired at .*test_dropped\.py:\d+") as told:
            client.lock("x", ttl=TTL).acquire()
            gc.collect()
    finally:
        tracemalloc.stop()
    assert len(told) == 1
    assert until(lambda: any("test_dropped.py:" in record.getMessage() for record in caplog.records))


def until(is_true: Callable[[], bool], seconds: float = 10.0) -> bool:
    give_up = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.01)
    return True


# In a block -------------------------------------------------------------------------------


def test_a_lease_of_a_block_that_is_over_is_released_at_once(client: Client) -> None:
    """As an interrupt at the end of a block leaves it: no warning, and the lock is free."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lease = client.lock("x", ttl=60).acquire().__enter__()
        del lease
        gc.collect()
        assert until(lambda: client.inspect("x").is_free)


def test_an_async_lease_of_a_block_that_is_over_is_released_at_once(url: str) -> None:
    async def main() -> None:
        async with AsyncClient(url) as client:
            lease = await (await client.lock("x", ttl=60).acquire()).__aenter__()
            del lease
            gc.collect()
            async with client.lock("x", timeout=10):
                pass

    asyncio.run(main())


def test_what_was_released_or_lost_is_not_dropped(client: Client) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lease = client.lock("x").acquire()
        lease.release()
        del lease
        lease = client.lock("x").acquire()
        client.force_release("x")
        assert not lease.verify()
        del lease
        gc.collect()


def test_a_dropped_entry_of_a_reentrant_lock_gives_back_its_share(client: Client) -> None:
    lock = client.lock("x", ttl=60, reentrant=True)
    with lock as outer:
        with dropping():
            lock.acquire()
        assert until(lambda: not client._session.dropped)
        assert outer.is_held() and outer.verify()
    assert client.inspect("x").is_free


def test_a_dropped_reentrant_lease_is_not_entered_again(client: Client) -> None:
    lock = client.lock("x", ttl=TTL, reentrant=True)
    before = time.monotonic()
    with dropping():
        first = lock.acquire().token
    with lock.acquire(timeout=TTL + 10) as lease:
        assert lease.token > first and time.monotonic() - before >= TTL * 0.9
