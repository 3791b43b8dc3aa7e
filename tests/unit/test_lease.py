"""Leases in both flavours: what they tell, how they end, and how their loss reaches the work."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fencelock import AsyncClient, BackendUnavailable, Client, LeaseLost, NotHeld
from fencelock.backends.base import Request
from fencelock.backends.memory import MemoryBackend, Store
from fencelock.testing import view
from unit.support import cancelled_everywhere, until, until_async


class Down(MemoryBackend):
    """A backend that fails when it is told to."""

    def __init__(self) -> None:
        super().__init__(Store())
        self.down = False

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        if self.down:
            raise BackendUnavailable(backend="memory", detail="down")
        return await super().release(request, token, deadline=deadline)

    async def abandon(self, request: Request, *, deadline: float) -> None:
        if self.down:
            raise BackendUnavailable(backend="memory", detail="down")
        await super().abandon(request, deadline=deadline)


def on_loop(main: Callable[[AsyncClient], Coroutine[Any, Any, None]], target: Any = None) -> None:
    """Run `main` with a client of its own; no task may be left, and no cancellation pending."""

    async def outer() -> None:
        async with AsyncClient(target or MemoryBackend(Store())) as client:
            await main(client)
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            await asyncio.wait(left, timeout=30)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(outer())


@pytest.fixture
def client() -> Any:
    with Client(MemoryBackend(Store())) as client:
        yield client


# What a lease tells ----------------------------------------------------------------------


def test_a_lease_tells_what_it_is(client: Client) -> None:
    with client.rwlock("x", ttl=timedelta(seconds=20)).read() as lease:
        assert (lease.name, lease.mode, lease.ttl) == ("x", "shared", 20.0)
        assert isinstance(lease.token, int)
        assert len(lease.owner) == 32
        assert 15 < lease.remaining() <= 20
        assert lease.is_held()
        assert lease.verify()
        assert not lease.lost.is_set()
        assert repr(lease) == f"<Lease 'x' token={lease.token} held>"
        lease.check()
    assert (lease.remaining(), lease.is_held(), lease.verify()) == (0.0, False, False)
    assert "released" in repr(lease)
    with pytest.raises(NotHeld) as caught:
        lease.check()
    assert caught.value.name == "x"
    with pytest.raises(NotHeld):
        lease.extend(5)
    assert not lease.lost.is_set()


def test_an_async_lease_tells_the_same() -> None:
    async def main(client: AsyncClient) -> None:
        async with client.semaphore("x", 3, ttl=20) as lease:
            assert (lease.name, lease.mode, lease.ttl) == ("x", "permit", 20.0)
            assert lease.is_held()
            assert await lease.verify()
            assert not lease.lost.is_set()
            assert repr(lease) == f"<AsyncLease 'x' token={lease.token} held>"
            lease.check()
            await lease.extend(40)
            assert lease.ttl == 40
            assert lease.remaining() > 30
        assert not lease.is_held()
        assert not await lease.verify()
        assert await lease.release() is False
        with pytest.raises(NotHeld):
            lease.check()
        with pytest.raises(NotHeld):
            await lease.extend(5)

    on_loop(main)


def test_tokens_rise(client: Client) -> None:
    tokens = []
    for _ in range(20):
        with client.lock("x") as lease:
            tokens.append(lease.token)
    assert tokens == sorted(set(tokens))


def test_release_is_idempotent_and_says_whether_it_was_held(client: Client) -> None:
    lease = client.lock("x").acquire()
    assert lease.release() is True
    assert lease.release() is False
    assert client.inspect("x").is_free


def test_a_second_release_does_not_release_the_next_holder(client: Client) -> None:
    first = client.lock("x").acquire()
    first.release()
    second = client.lock("x").acquire()
    first.release()
    assert second.verify()
    second.release()


def test_extend_moves_the_end(client: Client) -> None:
    with client.lock("x", ttl=1) as lease:
        lease.extend(timedelta(minutes=1))
        assert lease.ttl == 60
        assert lease.remaining() > 50
        assert client.inspect("x").holders[0].expires_in > 50


# Loss, blocking --------------------------------------------------------------------------


def test_a_forced_release_raises_at_the_end_of_the_block(client: Client) -> None:
    with pytest.raises(LeaseLost) as caught, client.lock("x") as lease:
        client.force_release("x")
        assert lease.lost.wait(10)
        assert not lease.is_held()
        with pytest.raises(LeaseLost, match="force-released"):
            lease.check()
        with pytest.raises(LeaseLost):
            lease.extend(10)
    assert caught.value.token == lease.token
    assert "lost" in repr(lease)


def test_an_error_of_the_block_is_not_replaced_by_the_loss_but_noted(client: Client) -> None:
    with pytest.raises(KeyError) as caught, client.lock("x"):
        client.force_release("x")
        raise KeyError("mine")
    assert any("was lost" in note for note in caught.value.__notes__)


def test_a_loss_raised_by_check_is_not_noted_twice(client: Client) -> None:
    with pytest.raises(LeaseLost) as caught, client.lock("x") as lease:
        client.force_release("x")
        lease.check()
    assert not getattr(caught.value, "__notes__", [])


def test_without_renewal_the_lease_ends_with_its_ttl(client: Client) -> None:
    with pytest.raises(LeaseLost, match="renew is off"), client.lock("x", ttl=0.05, renew=False) as lease:
        assert lease.lost.wait(10)


def test_max_hold_ends_a_lease_that_is_renewed(client: Client) -> None:
    with pytest.raises(LeaseLost, match="max_hold"), client.lock("x", ttl=0.2, max_hold=0.3) as lease:
        before = time.monotonic()
        assert lease.lost.wait(10)
        assert time.monotonic() - before > 0.2


def test_on_lost_is_called_once_with_the_lease(client: Client) -> None:
    told: list[object] = []
    with pytest.raises(LeaseLost), client.lock("x", on_lost=told.append) as lease:
        client.force_release("x")
        assert until(lambda: told)
    time.sleep(0.02)
    assert told == [lease]


def test_on_lost_is_not_called_for_a_release(client: Client) -> None:
    told: list[object] = []
    with client.lock("x", on_lost=told.append):
        pass
    client.close()
    assert told == []


def test_a_release_that_fails_is_raised_by_the_block_and_paid_later() -> None:
    backend = Down()
    with Client(backend) as client:
        with pytest.raises(BackendUnavailable), client.lock("x") as lease:
            backend.down = True
        assert not lease.is_held()
        with pytest.raises(BackendUnavailable):
            lease.release()
        backend.down = False
        assert until(lambda: client.inspect("x").is_free)
        assert lease.release() is False


def test_a_release_that_fails_does_not_replace_the_error_of_the_block() -> None:
    backend = Down()
    with Client(backend) as client:
        with pytest.raises(KeyError) as caught, client.lock("x"):
            backend.down = True
            raise KeyError("mine")
        assert any("releasing" in note for note in caught.value.__notes__)
        backend.down = False


# Leases that nobody has ------------------------------------------------------------------


# Loss, asyncio ---------------------------------------------------------------------------


def current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def test_a_loss_cancels_the_body_and_the_block_raises_lease_lost() -> None:
    async def main(client: AsyncClient) -> None:
        seen: list[BaseException] = []
        with pytest.raises(LeaseLost, match="force-released"):
            async with client.lock("x") as lease:
                try:
                    await client.force_release("x")
                    await asyncio.sleep(60)
                except asyncio.CancelledError as error:
                    seen.append(error)
                    assert lease.lost.is_set()
                    assert not lease.is_held()
                    raise
        assert len(seen) == 1
        assert current().cancelling() == 0
        await asyncio.sleep(0)

    on_loop(main)


def test_a_loss_by_the_clock_cancels_the_body_as_well() -> None:
    async def main(client: AsyncClient) -> None:
        with pytest.raises(LeaseLost, match="renew is off"):
            async with client.lock("x", ttl=0.05, renew=False):
                await asyncio.sleep(60)

    on_loop(main)


def test_a_body_that_swallows_the_cancellation_still_gets_lease_lost() -> None:
    async def main(client: AsyncClient) -> None:
        with pytest.raises(LeaseLost):
            async with client.lock("x"):
                await client.force_release("x")
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    pass
                await asyncio.sleep(0)  # works on: it is not cancelled again
        assert current().cancelling() == 0
        await asyncio.sleep(0)

    on_loop(main)


def test_a_body_that_ends_before_the_cancellation_arrives_is_not_cancelled_after_it() -> None:
    async def main(client: AsyncClient) -> None:
        with pytest.raises(LeaseLost):
            async with client.lock("x"):
                await client.force_release("x")
        for _ in range(5):
            await asyncio.sleep(0)
        assert current().cancelling() == 0

    on_loop(main)


def test_a_body_that_turns_the_cancellation_into_an_error_raises_that() -> None:
    async def main(client: AsyncClient) -> None:
        with pytest.raises(KeyError) as caught:
            async with client.lock("x"):
                await client.force_release("x")
                try:
                    await asyncio.sleep(60)
                finally:
                    raise KeyError("mine")
        assert any("was lost" in note for note in caught.value.__notes__)
        assert current().cancelling() == 0
        await asyncio.sleep(0)

    on_loop(main)


def test_somebody_elses_cancellation_stays_a_cancellation() -> None:
    async def main(client: AsyncClient) -> None:
        async def work() -> None:
            async with client.lock("x"):
                current().cancel()
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.inspect("x")).is_free

    on_loop(main)


@pytest.mark.parametrize("order", ["loss first", "cancellation first"])
def test_a_loss_and_somebody_elses_cancellation_at_once_are_a_cancellation(order: str) -> None:
    async def main(client: AsyncClient) -> None:
        async def work() -> None:
            async with client.lock("x"):
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        assert await until_async(lambda: view.held(client))
        if order == "loss first":
            await client.force_release("x")
            await asyncio.sleep(0)
            task.cancel("shutdown")
        else:
            task.cancel("shutdown")
            await client.force_release("x")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    on_loop(main)


def test_asyncio_timeout_around_a_block_that_is_lost_sees_the_loss() -> None:
    async def main(client: AsyncClient) -> None:
        with pytest.raises(LeaseLost):
            async with asyncio.timeout(30):
                async with client.lock("x"):
                    await client.force_release("x")
                    await asyncio.sleep(60)
        assert current().cancelling() == 0

    on_loop(main)


def test_asyncio_timeout_inside_a_block_is_its_own() -> None:
    async def main(client: AsyncClient) -> None:
        async with client.lock("x") as lease:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(60)
            assert lease.is_held()

    on_loop(main)


def test_asyncio_timeout_at_the_same_time_as_a_loss_is_a_timeout_or_a_loss_and_nothing_else() -> None:
    async def main(client: AsyncClient) -> None:
        for _ in range(20):
            try:
                async with asyncio.timeout(0.01):
                    async with client.lock("x", ttl=0.01, renew=False):
                        await asyncio.sleep(60)
            except (TimeoutError, LeaseLost):
                pass
            assert current().cancelling() == 0
            await asyncio.sleep(0)

    on_loop(main)


def test_nested_blocks_the_inner_loss_stays_inside() -> None:
    async def main(client: AsyncClient) -> None:
        async with client.lock("outer") as outer:
            with pytest.raises(LeaseLost) as caught:
                async with client.lock("inner"):
                    await client.force_release("inner")
                    await asyncio.sleep(60)
            assert caught.value.name == "inner"
            assert outer.is_held()
            await asyncio.sleep(0)

    on_loop(main)


def test_nested_blocks_the_outer_loss_passes_through_the_inner() -> None:
    async def main(client: AsyncClient) -> None:
        with pytest.raises(LeaseLost) as caught:
            async with client.lock("outer"), client.lock("inner") as inner:
                await client.force_release("outer")
                await asyncio.sleep(60)
        assert caught.value.name == "outer"
        assert not inner.is_held()
        assert (await client.inspect("inner")).is_free

    on_loop(main)


def test_nested_blocks_both_lost_at_once_raise_one_loss_and_leave_no_cancellation() -> None:
    async def main(client: AsyncClient) -> None:
        with pytest.raises(LeaseLost):
            async with client.lock("outer"), client.lock("inner"):
                await client.force_release("outer")
                await client.force_release("inner")
                await asyncio.sleep(60)
        assert current().cancelling() == 0
        await asyncio.sleep(0)

    on_loop(main)


def test_a_reentrant_lock_lost_in_its_inner_block() -> None:
    async def main(client: AsyncClient) -> None:
        lock = client.lock("x", reentrant=True)
        with pytest.raises(LeaseLost):
            async with lock as outer, lock as inner:
                assert outer.token == inner.token
                await client.force_release("x")
                await asyncio.sleep(60)
        assert current().cancelling() == 0
        await asyncio.sleep(0)

    on_loop(main)


def test_in_a_task_group_a_loss_ends_the_group_with_lease_lost() -> None:
    async def main(client: AsyncClient) -> None:
        async def work() -> None:
            async with client.lock("x"):
                await client.force_release("x")
                await asyncio.sleep(60)

        async def sibling() -> None:
            async with client.lock("y"):
                await asyncio.sleep(60)

        async def grouped() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(sibling())
                group.create_task(work())

        with pytest.raises(BaseExceptionGroup) as caught:
            await asyncio.create_task(grouped())
        assert [type(error) for error in caught.value.exceptions] == [LeaseLost]
        assert (await client.inspect("y")).is_free

    on_loop(main)


def test_a_task_group_inside_a_block_is_cancelled_by_the_loss() -> None:
    async def main(client: AsyncClient) -> None:
        ended: list[str] = []

        async def child() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("child")

        with pytest.raises(LeaseLost):
            async with client.lock("x"), asyncio.TaskGroup() as group:
                group.create_task(child())
                await asyncio.sleep(0)
                await client.force_release("x")
        assert ended == ["child"]
        assert current().cancelling() == 0

    on_loop(main)


def test_acquire_without_a_block_cancels_nobody() -> None:
    async def main(client: AsyncClient) -> None:
        lease = await client.lock("x").acquire()
        await client.force_release("x")
        assert await lease.lost.wait(10)
        for _ in range(5):
            await asyncio.sleep(0)
        with pytest.raises(LeaseLost):
            lease.check()
        assert await lease.release() is False

    on_loop(main)


def test_on_lost_may_be_a_function_or_a_coroutine_function() -> None:
    async def main(client: AsyncClient) -> None:
        told: list[str] = []

        async def later(lease: object) -> None:
            await asyncio.sleep(0)
            told.append("coroutine")

        for name, callback in [("a", lambda lease: told.append("function")), ("b", later)]:
            lease = await client.lock(name, on_lost=callback).acquire()
            await client.force_release(name)
            await lease.lost.wait(10)
        assert await until_async(lambda: len(told) == 2)
        assert told == ["function", "coroutine"]

    on_loop(main)


def test_a_loss_noticed_on_another_thread_reaches_the_task() -> None:
    async def main(client: AsyncClient) -> None:
        with pytest.raises(LeaseLost):
            async with client.lock("x") as lease:
                tell = client._session.backend.lost
                threading.Thread(target=tell, args=(lease.owner, "its session ended")).start()
                await asyncio.sleep(60)
        assert current().cancelling() == 0

    on_loop(main)


def test_a_worker_thread_may_ask_whether_the_lease_of_its_task_is_held() -> None:
    async def main(client: AsyncClient) -> None:
        def work(lease: Any) -> str:
            assert lease.is_held()
            assert until(lambda: not lease.is_held())
            with pytest.raises(LeaseLost):
                lease.check()
            return "stopped"

        lease = await client.lock("x", ttl=0.05, renew=False).acquire()
        assert await asyncio.to_thread(work, lease) == "stopped"

    on_loop(main)


def test_an_async_release_that_fails_is_raised_by_the_block_unless_it_raises_itself() -> None:
    backend = Down()

    async def main(client: AsyncClient) -> None:
        with pytest.raises(BackendUnavailable):
            async with client.lock("x"):
                backend.down = True
        with pytest.raises(KeyError) as caught:
            backend.down = False
            async with client.lock("y"):
                backend.down = True
                raise KeyError("mine")
        assert any("releasing" in note for note in caught.value.__notes__)
        backend.down = False

    on_loop(main, backend)


# Cancellation anywhere leaves nothing ----------------------------------------------------


def targets(tmp_path: Path) -> list[Any]:
    return [MemoryBackend(Store()), f"sqlite://{tmp_path}/x.db"]


@pytest.mark.parametrize("which", [0, 1], ids=["memory", "sqlite"])
@pytest.mark.parametrize("kind", ["free", "waiting", "released", "multi", "try"])
def test_cancelled_at_any_await_nothing_is_left_behind(which: int, kind: str, tmp_path: Path) -> None:
    async def main(client: AsyncClient) -> None:
        lock = client.lock("x")

        async def free() -> None:
            async with lock:
                await asyncio.sleep(0)

        async def waiting() -> None:
            blocker = await lock.acquire()
            asyncio.get_running_loop().call_later(0.01, lambda: keep(blocker.release()))
            async with lock:
                pass

        async def released() -> None:
            lease = await lock.acquire()
            await lease.release()

        async def multi() -> None:
            async with client.multi(["x", "y", "z"]):
                await asyncio.sleep(0)

        async def attempt() -> None:
            lease = await lock.try_acquire()
            assert lease is not None
            async with lease:
                await lease.extend(10)
                assert await lease.verify()

        tasks: set[asyncio.Task[Any]] = set()

        def keep(coroutine: Coroutine[Any, Any, Any]) -> None:
            tasks.add(asyncio.ensure_future(coroutine))

        async def check() -> None:
            await asyncio.sleep(0.015 if kind == "waiting" else 0)
            await asyncio.gather(*tasks)
            tasks.clear()
            for _ in range(200):
                if not await client.list():
                    break
                gc.collect()
                await asyncio.sleep(0.005)
            assert await client.list() == []
            assert view.acquiring(client) == []
            assert view.held(client) == []

        bodies = {"free": free, "waiting": waiting, "released": released, "multi": multi, "try": attempt}
        places = await cancelled_everywhere(bodies[kind], check)
        assert places >= (2 if kind in {"free", "waiting", "multi"} or which else 0)

    on_loop(main, targets(tmp_path)[which])
