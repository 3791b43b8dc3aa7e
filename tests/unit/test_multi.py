"""Several locks as one, in both flavours."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencelock import AcquireTimeout, AsyncClient, BackendUnavailable, Client, LeaseLost
from fencelock.backends.memory import MemoryBackend, Store
from unit.test_lease import Down, current, on_loop


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(MemoryBackend(Store())) as client:
        yield client


def test_all_are_held_in_one_order_whatever_order_was_given(client: Client) -> None:
    lock = client.multi(["b", "a", "é", "B", "a"])
    assert lock.names == ("B", "a", "b", "é")
    with lock as lease:
        assert lease.names == lock.names
        assert set(lease.tokens) == set(lock.names)
        assert lease["a"].token == lease.tokens["a"]
        assert [one.name for one in lease] == list(lock.names)
        assert len(lease) == 4
        assert lease.is_held()
        assert lease.verify()
        assert 0 < lease.remaining() <= 30
        assert repr(lease) == "<MultiLease B, a, b, é>"
        lease.check()
        lease.extend(60)
        assert lease.remaining() > 50
        assert [state.name for state in client.list()] == ["B", "a", "b", "é"]
    assert client.list() == []
    assert not lease.is_held()
    assert lease.release() is False


def test_names_may_come_from_any_iterable(client: Client) -> None:
    assert client.multi(str(i) for i in range(3)).names == ("0", "1", "2")
    assert client.multi({"x"}).names == ("x",)


def test_all_or_none(client: Client) -> None:
    with client.lock("b"):
        assert client.multi(["a", "b", "c"]).try_acquire() is None
        with pytest.raises(AcquireTimeout) as caught:
            client.multi(["a", "b", "c"], timeout=0.05).acquire()
        assert caught.value.name == "b"
        assert caught.value.holder is not None
        assert [state.name for state in client.list()] == ["b"]


def test_opposite_orders_do_not_deadlock(client: Client) -> None:
    counts = [0]

    def work(names: list[str]) -> None:
        for _ in range(30):
            with client.multi(names, timeout=30):
                counts[0] += 1

    threads = [threading.Thread(target=work, args=(names,)) for names in (["a", "b", "c"], ["c", "b", "a"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert counts == [60]


def test_one_loss_is_the_loss_of_all(client: Client) -> None:
    with pytest.raises(LeaseLost) as caught, client.multi(["a", "b"]) as lease:
        client.force_release("b")
        assert lease.lost.wait(10)
        assert not lease.is_held()
        assert lease.remaining() == 0
        with pytest.raises(LeaseLost):
            lease.check()
        assert not lease.verify()
    assert caught.value.name == "b"
    assert client.list() == []


def test_entering_again_does_not_silence_the_event_of_the_outer_lease(client: Client) -> None:
    lock = client.multi(["a", "b"], reentrant=True)
    with pytest.raises(LeaseLost), lock as outer, pytest.raises(LeaseLost), lock as inner:
        client.force_release("a")
        assert inner.lost.wait(10)
        assert outer.lost.wait(30)


def test_a_failing_release_does_not_keep_the_others() -> None:
    backend = Down()
    with Client(backend) as client:
        lease = client.multi(["a", "b"]).acquire()
        backend.down = True
        with pytest.raises(BackendUnavailable):
            lease.release()
        assert not lease.is_held()
        backend.down = False
        lease.release()
        assert client.list() == []


def test_a_multi_lock_is_a_decorator(client: Client) -> None:
    @client.multi(["a", "b"])
    def work() -> list[str]:
        return [state.name for state in client.list()]

    assert work() == ["a", "b"]


# asyncio ---------------------------------------------------------------------------------


def test_an_async_multi_lock_does_the_same() -> None:
    async def main(client: AsyncClient) -> None:
        lock = client.multi(["b", "a"])
        assert lock.names == ("a", "b")
        async with lock as lease:
            assert lease.names == ("a", "b")
            assert lease.is_held()
            assert await lease.verify()
            await lease.extend(60)
            assert lease.remaining() > 50
            assert await lock.try_acquire() is None
        assert await client.list() == []
        assert await lease.release() is False

    on_loop(main)


@pytest.mark.parametrize("lost", [["a"], ["b"], ["a", "b"], ["a", "b", "c"], ["c", "a"]])
def test_losses_cancel_the_body_and_leave_no_cancellation_behind(lost: list[str]) -> None:
    async def main(client: AsyncClient) -> None:
        with pytest.raises(LeaseLost):
            async with client.multi(["a", "b", "c"]) as lease:
                for name in lost:
                    await client.force_release(name)
                assert await lease.lost.wait(10)
                await asyncio.sleep(60)
        assert current().cancelling() == 0
        for _ in range(5):
            await asyncio.sleep(0)
        assert await client.list() == []

    on_loop(main)


def test_a_loss_that_only_the_release_finds_cancels_nothing_after_the_block(tmp_path: Path) -> None:
    """The first loss ends the block; that the second lease is gone too is seen when it is released."""

    async def main(client: AsyncClient) -> None:
        with pytest.raises(LeaseLost):
            async with client.multi(["a", "b"]) as lease:
                await client.force_release("a")
                await client.force_release("b")
                assert await lease["a"].verify() is False
                await asyncio.sleep(60)
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert current().cancelling() == 0

    on_loop(main, f"sqlite://{tmp_path}/x.db")


def test_losses_beside_somebody_elses_cancellation_are_a_cancellation() -> None:
    async def main(client: AsyncClient) -> None:
        async def work() -> None:
            async with client.multi(["a", "b"]):
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        task.cancel()
        await client.force_release("a")
        await client.force_release("b")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await client.list() == []

    on_loop(main)


def test_cancelled_while_it_waits_for_the_second_lock_the_first_is_given_back() -> None:
    async def main(client: AsyncClient) -> None:
        async with client.lock("b"):
            task = asyncio.create_task(client.multi(["a", "b"]).acquire())
            await asyncio.sleep(0.02)
            assert [state.name for state in await client.list()] == ["a", "b"]
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [state.name for state in await client.list()] == ["b"]

    on_loop(main)


def test_a_failing_async_release_does_not_keep_the_others() -> None:
    backend = Down()

    async def main(client: AsyncClient) -> None:
        lease = await client.multi(["a", "b"]).acquire()
        backend.down = True
        with pytest.raises(BackendUnavailable):
            await lease.release()
        backend.down = False
        await lease.release()
        assert await client.list() == []

    on_loop(main, backend)


def test_one_timeout_covers_all_names() -> None:
    async def main(client: AsyncClient) -> None:
        async with client.lock("a"), client.lock("b"):
            before = time.monotonic()
            with pytest.raises(AcquireTimeout) as caught:
                await client.multi(["a", "b"], timeout=0.1).acquire()
            assert time.monotonic() - before < 30
            assert caught.value.waited >= 0.1

    on_loop(main)
