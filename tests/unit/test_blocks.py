"""A `with` block ends the lease that it entered with, in every interleaving."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from fencelock import AsyncClient, Client, ConfigurationError, LeaseLost, NotHeld

ROUNDS = 1000


@pytest.fixture
def client() -> Iterator[Client]:
    with Client("memory://blocks") as client:
        yield client


def on_loop(main: Callable[[AsyncClient], Any]) -> Any:
    async def with_client() -> Any:
        async with AsyncClient("memory://blocks") as client:
            return await main(client)

    return asyncio.run(with_client())


def on_thread(function: Callable[[], Any]) -> Any:
    """Call a function on a thread of its own; return or raise what it does."""
    outcome: list[Any] = []

    def main() -> None:
        try:
            outcome.append((function(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=main)
    thread.start()
    thread.join(30)
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


def owners(client: Client, name: str) -> set[str]:
    return {entry.owner for entry in client.inspect(name).holders}


# Generators -------------------------------------------------------------------------------


def test_generators_of_one_thread_each_end_their_own_lease(client: Client) -> None:
    slots = client.semaphore("x", 2)

    def block() -> Iterator[Any]:
        with slots as lease:
            yield lease

    one, two = block(), block()
    first, second = next(one), next(two)
    one.close()
    assert not first.is_held() and second.is_held()
    assert owners(client, "x") == {second.owner}
    two.close()
    assert client.inspect("x").is_free


def test_async_generators_of_one_task_each_end_their_own_lease() -> None:
    async def main(client: AsyncClient) -> None:
        slots = client.semaphore("x", 2)

        async def block() -> AsyncIterator[Any]:
            async with slots as lease:
                yield lease

        one, two = block(), block()
        first, second = await anext(one), await anext(two)
        await one.aclose()  # type: ignore[attr-defined]
        assert not first.is_held() and second.is_held()
        await two.aclose()  # type: ignore[attr-defined]
        assert (await client.inspect("x")).is_free

    on_loop(main)


def test_generators_entered_on_two_threads_are_closed_on_a_third(client: Client) -> None:
    slots = client.semaphore("x", 2)

    def block() -> Iterator[Any]:
        with slots as lease:
            yield lease

    one, two = block(), block()
    first, second = on_thread(lambda: next(one)), on_thread(lambda: next(two))
    on_thread(one.close)
    assert not first.is_held() and second.is_held()
    two.close()
    assert client.inspect("x").is_free


def test_async_generators_entered_in_one_task_are_closed_in_another() -> None:
    async def main(client: AsyncClient) -> None:
        slots = client.semaphore("x", 2)

        async def block() -> AsyncIterator[Any]:
            async with slots as lease:
                yield lease

        one, two = block(), block()

        async def enter() -> list[Any]:
            return [await anext(one), await anext(two)]

        first, second = await asyncio.create_task(enter())
        await asyncio.create_task(one.aclose())  # type: ignore[attr-defined]
        assert not first.is_held() and second.is_held()
        await asyncio.create_task(two.aclose())  # type: ignore[attr-defined]
        assert (await client.inspect("x")).is_free

    on_loop(main)


def test_a_generator_that_is_garbage_ends_its_lease(client: Client) -> None:
    slots = client.semaphore("x", 2)

    def block() -> Iterator[Any]:
        with slots as lease:
            yield lease

    one, two = block(), block()
    first, second = next(one), next(two)
    del one
    assert not first.is_held() and second.is_held()
    two.close()


def test_blocks_of_one_frame_end_last_in_first_out(client: Client) -> None:
    slots = client.semaphore("x", 3)
    with slots as outer:
        with slots as inner, slots as innermost:
            assert len({outer.owner, inner.owner, innermost.owner}) == 3
        assert owners(client, "x") == {outer.owner}
        with slots as again:
            assert owners(client, "x") == {outer.owner, again.owner}
    assert client.inspect("x").is_free


# Random interleavings ---------------------------------------------------------------------


def test_a_thousand_rounds_of_generators_on_many_threads(client: Client) -> None:
    """Each round enters a few generators on any thread and closes them on any thread, in any order."""
    slots = client.semaphore("x", 8)
    chance = random.Random(27)

    def block() -> Iterator[Any]:
        with slots as outer:
            if chance.random() < 0.3:
                with slots:
                    yield outer
            else:
                yield outer

    for number in range(ROUNDS):
        here = (lambda call: call()) if number % 10 else on_thread
        running = [block() for _ in range(chance.randint(1, 4))]
        held = {generator: here(lambda generator=generator: next(generator)) for generator in running}
        chance.shuffle(running)
        while running:
            generator = running.pop()
            assert held[generator].is_held()
            here(generator.close)
            assert not held[generator].is_held()
            assert all(held[other].is_held() for other in running)
        assert slots._blocks._open == {}
    assert client.inspect("x").is_free


def test_a_thousand_rounds_of_async_generators_in_many_tasks() -> None:
    async def main(client: AsyncClient) -> None:
        slots = client.semaphore("x", 8)
        chance = random.Random(28)

        async def block() -> AsyncIterator[Any]:
            async with slots as outer:
                if chance.random() < 0.3:
                    async with slots:
                        yield outer
                else:
                    yield outer

        for number in range(ROUNDS):
            running: list[Any] = [block() for _ in range(chance.randint(1, 4))]
            held = {}
            for generator in running:
                held[generator] = await (
                    asyncio.create_task(anext(generator)) if number % 2 else anext(generator)
                )
            chance.shuffle(running)
            while running:
                generator = running.pop()
                assert held[generator].is_held()
                await (asyncio.create_task(generator.aclose()) if number % 3 else generator.aclose())
                assert not held[generator].is_held()
                assert all(held[other].is_held() for other in running)
            assert slots._blocks._open == {}
        assert (await client.inspect("x")).is_free

    on_loop(main)


# Blocks that are entered by calls ---------------------------------------------------------


def test_exit_stacks_end_their_own_leases_in_any_order(client: Client) -> None:
    slots = client.semaphore("x", 4)
    one, two = contextlib.ExitStack(), contextlib.ExitStack()
    first, second, third = one.enter_context(slots), two.enter_context(slots), one.enter_context(slots)
    one.close()
    assert not first.is_held() and not third.is_held() and second.is_held()
    on_thread(two.close)
    assert client.inspect("x").is_free


def test_async_exit_stacks_end_their_own_leases_in_any_order() -> None:
    async def main(client: AsyncClient) -> None:
        slots = client.semaphore("x", 4)
        one, two = contextlib.AsyncExitStack(), contextlib.AsyncExitStack()
        first = await one.enter_async_context(slots)
        second = await asyncio.create_task(two.enter_async_context(slots))
        await asyncio.create_task(one.aclose())
        assert not first.is_held() and second.is_held()
        await two.aclose()
        assert (await client.inspect("x")).is_free

    on_loop(main)


def test_a_stack_does_not_end_the_lease_of_a_with_statement(client: Client) -> None:
    """The statement was entered last, on the same thread."""
    slots = client.semaphore("x", 2)
    stack = contextlib.ExitStack()
    first = stack.enter_context(slots)

    def block() -> Iterator[Any]:
        with slots as lease:
            yield lease

    running = block()
    second = next(running)
    stack.pop_all().close()
    assert not first.is_held() and second.is_held()
    running.close()


class Guard:
    """Passes a block on, as many wrappers do."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def __enter__(self) -> Any:
        return self.lock.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.lock.__exit__(*error)


def test_a_wrapper_that_passes_the_calls_on_ends_its_own_lease(client: Client) -> None:
    slots = client.semaphore("x", 4)
    one, two = Guard(slots), Guard(slots)
    first, second = one.__enter__(), two.__enter__()
    one.__exit__(None, None, None)
    assert not first.is_held() and second.is_held()
    on_thread(lambda: two.__exit__(None, None, None))
    assert client.inspect("x").is_free


def test_calls_from_functions_end_what_their_thread_entered_last(client: Client) -> None:
    slots = client.semaphore("x", 4)

    def enter() -> Any:
        return slots.__enter__()

    def leave() -> None:
        slots.__exit__(None, None, None)

    elsewhere = on_thread(enter)
    mine = enter()
    leave()
    assert not mine.is_held() and elsewhere.is_held()
    leave()
    assert client.inspect("x").is_free, "no other was left"


def test_calls_from_functions_do_not_end_the_lease_of_a_with_statement(client: Client) -> None:
    slots = client.semaphore("x", 2)

    def enter() -> Any:
        return slots.__enter__()

    def leave() -> None:
        slots.__exit__(None, None, None)

    first = enter()
    with slots as second:
        leave()
        assert not first.is_held() and second.is_held()


def test_awaited_calls_from_functions_do_not_end_the_lease_of_an_async_with_statement() -> None:
    async def main(client: AsyncClient) -> None:
        slots = client.semaphore("x", 2)

        async def enter() -> Any:
            return await slots.__aenter__()

        async def leave() -> None:
            await slots.__aexit__(None, None, None)

        first = await enter()
        async with slots as second:
            await leave()
            assert not first.is_held() and second.is_held()

    on_loop(main)


def test_what_cannot_be_told_is_not_guessed_and_not_leaked(client: Client) -> None:
    slots = client.semaphore("x", 4)

    def enter() -> Any:
        return slots.__enter__()

    def leave(*error: Any) -> None:
        slots.__exit__(*(error or (None, None, None)))

    leases = [on_thread(enter) for _ in range(3)]
    for _ in range(2):
        with pytest.raises(
            ConfigurationError, match=r"cannot tell which lease on 'x'.*with lock.acquire\(\)"
        ):
            on_thread(leave)
        assert all(lease.is_held() for lease in leases)
    on_thread(leave)
    assert client.inspect("x").is_free
    assert slots._blocks._open == {}


def test_an_error_of_the_block_is_not_hidden_by_what_cannot_be_told(client: Client) -> None:
    slots = client.semaphore("x", 4)
    leases = [on_thread(slots.__enter__) for _ in range(2)]
    error = KeyError("mine")
    slots.__exit__(KeyError, error, None)
    assert "cannot tell" in error.__notes__[0]
    on_thread(lambda: slots.__exit__(None, None, None))
    assert not any(lease.is_held() for lease in leases)


def test_leaving_without_having_entered_is_one_clear_error(client: Client) -> None:
    with pytest.raises(ConfigurationError, match="no block to leave"):
        client.lock("x").__exit__(None, None, None)


# Leases as blocks -------------------------------------------------------------------------


def test_a_lease_is_a_block(client: Client) -> None:
    lock = client.lock("x")
    with lock.acquire(timeout=5) as lease:
        assert lease.is_held()
    assert client.inspect("x").is_free
    taken = lock.try_acquire()
    assert taken is not None
    with pytest.raises(KeyError), taken:
        raise KeyError
    assert client.inspect("x").is_free
    with pytest.raises(LeaseLost), lock.acquire() as lease:
        client.force_release("x")


def test_what_acquire_gives_under_asyncio_is_awaited_or_entered() -> None:
    async def main(client: AsyncClient) -> None:
        lock = client.lock("x")
        async with lock.acquire(timeout=5) as lease:
            assert lease.is_held()
        async with await lock.acquire() as lease:
            assert lease.is_held()
        task = asyncio.create_task(lock.acquire())
        await (await task).release()
        (lease,) = await asyncio.gather(lock.acquire())
        await lease.release()
        await (await asyncio.wait_for(lock.acquire(), 30)).release()
        with pytest.raises(LeaseLost):
            async with lock.acquire():
                await client.force_release("x")
                await asyncio.sleep(30)
        with pytest.warns(RuntimeWarning, match="was never awaited"):
            lock.acquire()
        assert (await client.inspect("x")).is_free

    on_loop(main)


def test_several_leases_are_a_block_too(client: Client) -> None:
    with client.multi(["a", "b"]).acquire() as leases:
        assert leases.is_held()
    assert client.list() == []

    async def main(client: AsyncClient) -> None:
        async with client.multi(["a", "b"]).acquire() as leases:
            assert leases.is_held()
        assert await client.list() == []

    on_loop(main)


def test_a_lease_is_entered_once_and_while_it_is_held(client: Client) -> None:
    lock = client.lock("x")
    with lock.acquire() as lease, pytest.raises(ConfigurationError, match="entered already"), lease:
        pass
    with pytest.raises(NotHeld), lease:
        pass
    with lock as lease, pytest.raises(ConfigurationError, match="entered already"), lease:
        pass
    lease = lock.acquire()
    client.force_release("x")
    assert not lease.verify()
    with pytest.raises(LeaseLost), lease:
        pass

    async def main(client: AsyncClient) -> None:
        lock = client.lock("x")
        async with lock.acquire() as lease:
            with pytest.raises(ConfigurationError, match="entered already"):
                async with lease:
                    pass
        with pytest.raises(NotHeld):
            async with lease:
                pass

    on_loop(main)


def test_a_reentrant_lease_is_a_block_of_its_own(client: Client) -> None:
    lock = client.lock("x", reentrant=True)
    with lock.acquire() as outer:
        with lock.acquire() as inner, lock as innermost:
            assert inner.token == outer.token == innermost.token
        assert outer.is_held()
    assert client.inspect("x").is_free
