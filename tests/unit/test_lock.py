"""Lock objects: with, decorator, try, timeouts, sharing, reentrancy; in both flavours."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from fencelock import AcquireTimeout, AsyncClient, Client, ConfigurationError
from fencelock.backends.memory import MemoryBackend, Store
from fencelock.testing import view
from unit.support import until, until_async
from unit.test_lease import on_loop


@pytest.fixture
def client() -> Any:
    with Client(MemoryBackend(Store())) as client:
        yield client


# With, decorator, try --------------------------------------------------------------------


def test_a_block_holds_the_lock_and_gives_it_back(client: Client) -> None:
    lock = client.lock("x")
    with lock:
        assert lock.try_acquire() is None
    lease = lock.try_acquire()
    assert lease is not None
    lease.release()


def test_a_lock_is_a_decorator(client: Client) -> None:
    @client.lock("x")
    def work(a: int, *, b: int = 0) -> int:
        """What it does."""
        assert client.lock("x").try_acquire() is None
        return a + b

    assert work(1, b=2) == 3
    assert (work.__name__, work.__doc__) == ("work", "What it does.")
    assert client.inspect("x").is_free


def test_a_decorated_function_that_raises_gives_the_lock_back(client: Client) -> None:
    @client.lock("x")
    def work() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        work()
    assert client.inspect("x").is_free


def test_a_decorator_of_the_wrong_flavour_says_so(client: Client) -> None:
    async def coroutine() -> None:
        """Not for a blocking lock."""

    with pytest.raises(ConfigurationError, match="use AsyncClient"):
        client.lock("x")(coroutine)
    with pytest.raises(ConfigurationError, match="use Client"):
        AsyncClient("memory://").lock("x")(lambda: None)


def test_an_async_lock_is_a_decorator() -> None:
    async def main(client: AsyncClient) -> None:
        @client.lock("x")
        async def work(a: int) -> int:
            assert await client.lock("x").try_acquire() is None
            return a

        assert inspect.iscoroutinefunction(work)
        assert await asyncio.gather(work(1), work(2), work(3)) == [1, 2, 3]
        assert (await client.inspect("x")).is_free

    on_loop(main)


def test_names_and_reprs(client: Client) -> None:
    assert client.lock("x").name == "x"
    assert repr(client.lock("x")) == "<Lock 'x' exclusive>"
    assert repr(client.semaphore("x", 2)) == "<Lock 'x' permit>"
    assert client.rwlock("x").name == "x"
    assert repr(client.rwlock("x").read()) == "<Lock 'x' shared>"


# Timeouts --------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, 0.05, timedelta(milliseconds=50)])
def test_a_timeout_is_honoured_and_names_the_holder(client: Client, timeout: Any) -> None:
    with client.lock("x"):
        before = time.monotonic()
        with pytest.raises(AcquireTimeout) as caught:
            client.lock("x", timeout=timeout).acquire()
        assert time.monotonic() - before < 30
        assert caught.value.name == "x"
        assert caught.value.holder is not None
        assert caught.value.holder.pid > 0
        assert client.inspect("x").waiters == ()


def test_the_timeout_of_a_call_goes_before_the_one_of_the_lock(client: Client) -> None:
    lock = client.lock("x", timeout=math.inf)
    with lock, pytest.raises(AcquireTimeout):
        lock.acquire(timeout=0)
    hasty = client.lock("x", timeout=0)
    blocker = client.lock("x").acquire()
    threading.Timer(0.05, blocker.release).start()
    hasty.acquire(timeout=None).release()


def test_a_block_with_a_timeout_raises_before_its_body(client: Client) -> None:
    with client.lock("x"), pytest.raises(AcquireTimeout), client.lock("x", timeout=0.01):
        pytest.fail("entered")


def test_asyncio_timeout_around_acquire_leaves_nothing() -> None:
    async def main(client: AsyncClient) -> None:
        async with client.lock("x"):
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(0.02):
                    await client.lock("x").acquire()
            assert not isinstance(caught.value, AcquireTimeout)
            assert (await client.inspect("x")).waiters == ()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.lock("x").acquire(), 0.02)
            assert (await client.inspect("x")).waiters == ()
            with pytest.raises(AcquireTimeout):
                await client.lock("x").acquire(timeout=0.02)
            assert (await client.inspect("x")).waiters == ()

    on_loop(main)


# Turns -----------------------------------------------------------------------------------


def test_threads_take_turns_in_the_order_in_which_they_came(client: Client) -> None:
    order: list[int] = []
    blocker = client.lock("x").acquire()

    def work(number: int) -> None:
        with client.lock("x"):
            order.append(number)

    threads = []
    for number in range(8):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        assert until(lambda number=number: len(client.inspect("x").waiters) == number + 1)
    blocker.release()
    for thread in threads:
        thread.join(10)
    assert order == list(range(8))


def test_tasks_take_turns_in_the_order_in_which_they_came() -> None:
    async def main(client: AsyncClient) -> None:
        order: list[int] = []
        lock = client.lock("x")

        async def work(number: int) -> None:
            async with lock:
                order.append(number)
                await asyncio.sleep(0)

        async with lock:
            tasks = []
            for number in range(20):
                tasks.append(asyncio.create_task(work(number)))
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert order == list(range(20))

    on_loop(main)


def test_one_lock_object_serves_many_threads(client: Client) -> None:
    lock = client.lock("x")
    total = 0

    def work() -> None:
        nonlocal total
        for _ in range(50):
            with lock:
                seen = total
                time.sleep(0)
                total = seen + 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert total == 200
    assert lock._blocks._open == {}


def test_readers_share_and_a_writer_does_not_starve() -> None:
    async def main(client: AsyncClient) -> None:
        both = client.rwlock("x")
        first = await both.read().acquire()
        second = await both.read().acquire()
        writer = asyncio.create_task(both.write().acquire())
        await asyncio.sleep(0.01)
        assert await both.read().try_acquire() is None, "a reader stands behind the writer"
        await first.release()
        await second.release()
        lease = await asyncio.wait_for(writer, 10)
        assert lease.mode == "exclusive"
        await lease.release()

    on_loop(main)


def test_a_semaphore_has_as_many_holders_as_its_limit(client: Client) -> None:
    slots = client.semaphore("x", 3)
    leases = [slots.acquire() for _ in range(3)]
    assert slots.try_acquire() is None
    assert len({lease.token for lease in leases}) == 3
    leases[1].release()
    leases[1] = slots.acquire(timeout=0)
    for lease in leases:
        assert lease.release()


# Leaving a block elsewhere ---------------------------------------------------------------


def test_a_block_may_be_left_on_another_thread(client: Client) -> None:
    lock = client.lock("x")

    @contextmanager
    def dependency() -> Iterator[None]:
        with lock:
            yield

    context = dependency()
    thread = threading.Thread(target=context.__enter__)
    thread.start()
    thread.join()
    assert not client.inspect("x").is_free
    context.__exit__(None, None, None)
    assert client.inspect("x").is_free


def test_a_block_within_a_block_of_the_same_semaphore(client: Client) -> None:
    slots = client.semaphore("x", 2)
    with slots as outer, slots as inner:
        assert outer.token != inner.token
        assert len(client.inspect("x").holders) == 2
    assert client.inspect("x").is_free


# Reentrancy ------------------------------------------------------------------------------


def test_reentry_gives_the_same_token_and_the_last_to_leave_releases(client: Client) -> None:
    lock = client.lock("x", reentrant=True)
    with lock as outer:
        with lock as inner:
            assert inner.token == outer.token
            assert inner.owner == outer.owner
        assert not inner.is_held()
        assert outer.is_held()
        assert outer.verify()
        assert inner.release() is False
        assert outer.is_held()
    assert client.inspect("x").is_free


def test_reentry_is_by_thread(client: Client) -> None:
    lock = client.lock("x", reentrant=True)
    with lock:
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(lock.try_acquire()))
        thread.start()
        thread.join()
        assert found == [None]


def test_reentry_is_by_task() -> None:
    async def main(client: AsyncClient) -> None:
        lock = client.lock("x", reentrant=True)
        async with lock as outer, lock as inner:
            assert inner.token == outer.token
            assert await asyncio.create_task(lock.try_acquire()) is None

    on_loop(main)


def test_without_reentrancy_a_thread_waits_for_itself(client: Client) -> None:
    with client.lock("x"), pytest.raises(AcquireTimeout):
        client.lock("x", timeout=0.02).acquire()


def test_a_reader_cannot_become_a_writer_by_entering_again(client: Client) -> None:
    both = client.rwlock("x", reentrant=True)
    with both.read(), pytest.raises(ConfigurationError, match="would wait for itself"):
        both.write().acquire()
    with both.write() as writer, both.read() as reader:
        assert reader.token == writer.token


# Renewal ---------------------------------------------------------------------------------


def test_a_lease_outlives_its_ttl_many_times_and_others_stay_out(client: Client) -> None:
    with client.lock("x", ttl=0.15) as lease:
        end = time.monotonic() + 0.8
        while time.monotonic() < end:
            assert client.lock("x").try_acquire() is None
            time.sleep(0.01)
        assert lease.verify()


def test_an_async_lease_outlives_its_ttl_many_times() -> None:
    async def main(client: AsyncClient) -> None:
        async with client.lock("x", ttl=0.15) as lease:
            await asyncio.sleep(0.8)
            assert await lease.verify()

    on_loop(main)


def test_many_leases_have_one_renewer_and_one_timekeeper(client: Client) -> None:
    leases = [client.lock(f"n{i}", ttl=0.3).acquire() for i in range(200)]
    time.sleep(0.5)
    ours = [thread.name for thread in threading.enumerate() if thread.name.startswith("fencelock-")]
    assert client._session.renewer.service is not None
    assert ours.count("fencelock-renewer") <= 1 + ours.count("fencelock-timekeeper")
    assert all(lease.is_held() for lease in leases)
    client.close()


# What others see -------------------------------------------------------------------------


def test_inspect_shows_holders_and_waiters_in_order(client: Client) -> None:
    with client.lock("x", ttl=20, metadata={"job": 7}) as lease:
        waiter = threading.Thread(target=lambda: client.lock("x", metadata="second").acquire().release())
        waiter.start()
        assert until(lambda: client.inspect("x").waiters)
        state = client.inspect("x")
    waiter.join(10)
    (holder,), (waiting,) = state.holders, state.waiters
    assert (holder.owner, holder.token, holder.mode) == (lease.owner, lease.token, "exclusive")
    assert holder.metadata == {"job": 7}
    assert waiting.metadata == "second"
    assert waiting.token > holder.token
    assert 0 < holder.expires_in <= 20
    assert abs(holder.since - time.time()) < 60
    assert state.as_dict()["holders"][0]["metadata"] == {"job": 7}


def test_list_shows_what_is_in_use_by_name(client: Client) -> None:
    with client.lock("b/2"), client.lock("a"), client.lock("b/1"):
        assert [state.name for state in client.list()] == ["a", "b/1", "b/2"]
        assert [state.name for state in client.list("b/")] == ["b/1", "b/2"]
        assert client.list("c") == []
    assert client.list() == []


def test_force_release_of_one_waiter(client: Client) -> None:
    async def main(aio: AsyncClient) -> None:
        async with aio.lock("x"):
            task = asyncio.create_task(aio.lock("x").acquire())
            assert await until_async(lambda: len(view.acquiring(aio)) == 1)
            await asyncio.sleep(0.01)
            (waiter,) = (await aio.inspect("x")).waiters
            (broken,) = await aio.force_release("x", owner=waiter.owner)
            assert broken.owner == waiter.owner
            assert await aio.force_release("x", owner="nobody") == ()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert await aio.force_release("nothing") == ()

    on_loop(main)
