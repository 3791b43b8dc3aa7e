"""A decorated function runs under the lock, all of its body, or does not run."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from typing import Any

import pytest

from fencelock import AsyncClient, Client, ConfigurationError


@pytest.fixture
def client() -> Iterator[Client]:
    with Client("memory://decorate") as client:
        yield client


def on_loop(main: Callable[[AsyncClient], Any]) -> Any:
    async def with_client() -> Any:
        async with AsyncClient("memory://decorate") as client:
            return await main(client)

    return asyncio.run(with_client())


def is_held(client: Client) -> bool:
    return not client.inspect("x").is_free


async def is_held_async(client: AsyncClient) -> bool:
    return not (await client.inspect("x")).is_free


class Callee:
    """An object that is called like a function."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def __call__(self, value: int) -> tuple[int, bool]:
        return value, is_held(self.client)


class AsyncCallee:
    def __init__(self, client: Any) -> None:
        self.client = client

    async def __call__(self, value: int) -> tuple[int, bool]:
        return value, await is_held_async(self.client)


# Blocking ---------------------------------------------------------------------------------


def test_partials_and_objects_are_called_under_the_lock(client: Client) -> None:
    lock = client.lock("x")

    def function(value: int, *, more: int = 0) -> tuple[int, bool]:
        return value + more, is_held(client)

    assert lock(functools.partial(function, more=2))(1) == (3, True)
    assert lock(functools.partial(functools.partial(function, 4), more=2))() == (6, True)
    assert lock(Callee(client))(7) == (7, True)
    assert lock(Callee(client).__call__)(8) == (8, True)
    assert lock(function).__name__ == "function"
    assert not is_held(client)


def test_a_generator_holds_the_lock_while_it_is_iterated(client: Client) -> None:
    @client.lock("x")
    def items(count: int) -> Generator[Any, Any, str]:
        for _ in range(count):
            try:
                sent = yield is_held(client)
                assert sent in {None, "word"}
            except KeyError:
                yield "caught"
        return "the end"

    assert list(items(2)) == [True, True]
    assert not is_held(client)
    generator = items(3)
    assert not is_held(client), "it has not begun"
    assert next(generator) and generator.send("word") and is_held(client)
    assert generator.throw(KeyError()) == "caught"
    generator.close()
    assert not is_held(client)

    def outer() -> Generator[Any, Any, None]:
        assert (yield from items(1)) == "the end"

    assert list(outer()) == [True]


def test_what_a_blocking_lock_cannot_hold_is_refused_when_it_is_decorated(client: Client) -> None:
    lock = client.lock("x")

    async def coroutine() -> None: ...
    async def generator() -> AsyncGenerator[int, None]:
        yield 1

    for function in (coroutine, generator, functools.partial(coroutine), AsyncCallee(client)):
        with pytest.raises(ConfigurationError, match="async function: use AsyncClient"):
            lock(function)


@pytest.mark.parametrize("kind", ["coroutine", "generator", "async generator", "future"])
def test_a_plain_function_that_only_makes_the_work_is_refused_when_it_is_called(
    client: Client, kind: str
) -> None:
    begun: list[str] = []

    async def coroutine() -> None:
        begun.append("coroutine")

    def generator() -> Iterator[int]:
        begun.append("generator")
        yield 1

    async def asynchronous() -> AsyncGenerator[int, None]:
        begun.append("async generator")
        yield 1

    makes = {
        "coroutine": coroutine,
        "generator": generator,
        "async generator": asynchronous,
        "future": lambda: asyncio.get_running_loop().create_task(coroutine()),
    }

    def plain() -> Any:
        return makes[kind]()

    called = client.lock("x")(plain)

    async def main() -> None:
        with pytest.raises(ConfigurationError, match="would run without the lock"):
            called()
        await asyncio.sleep(0)

    asyncio.run(main())
    assert begun == [] and not is_held(client)


def test_what_is_no_function_is_refused(client: Client) -> None:
    for thing in (Callee, 5, None, property(lambda self: 1)):
        with pytest.raises(ConfigurationError, match="is not a function"):
            client.lock("x")(thing)  # type: ignore[type-var]
    with pytest.raises(ConfigurationError, match="put the lock below @staticmethod"):
        client.lock("x")(staticmethod(lambda: 1))
    with pytest.raises(ConfigurationError, match="put the lock below @classmethod"):
        client.lock("x")(classmethod(lambda cls: 1))  # type: ignore[type-var]


def test_methods_and_recursion(client: Client) -> None:
    slots = client.semaphore("x", 3)

    class Shop:
        @slots
        def pay(self, depth: int) -> int:
            return len(client.inspect("x").holders) if depth == 0 else self.pay(depth - 1)

        @staticmethod
        @slots
        def count() -> int:
            return len(client.inspect("x").holders)

    assert Shop().pay(2) == 3
    assert Shop.count() == 1
    assert not is_held(client)


# asyncio ----------------------------------------------------------------------------------


def test_async_partials_and_objects_are_called_under_the_lock() -> None:
    async def main(client: AsyncClient) -> None:
        lock = client.lock("x")

        async def function(value: int, *, more: int = 0) -> tuple[int, bool]:
            return value + more, await is_held_async(client)

        assert await lock(functools.partial(function, more=2))(1) == (3, True)
        assert await lock(AsyncCallee(client))(7) == (7, True)
        assert not await is_held_async(client)

    on_loop(main)


def test_an_async_generator_holds_the_lock_while_it_is_iterated() -> None:
    async def main(client: AsyncClient) -> None:
        closed = []

        @client.lock("x")
        async def items(count: int) -> AsyncGenerator[Any, Any]:
            try:
                for _ in range(count):
                    try:
                        sent = yield await is_held_async(client)
                        assert sent in {None, "word"}
                    except KeyError:
                        yield "caught"
            finally:
                closed.append(await is_held_async(client))

        assert [item async for item in items(2)] == [True, True]
        assert not await is_held_async(client)
        generator = items(3)
        assert not await is_held_async(client), "it has not begun"
        assert await anext(generator) and await generator.asend("word")
        assert await generator.athrow(KeyError()) == "caught"
        await generator.aclose()
        assert not await is_held_async(client)
        failing = items(1)
        await anext(failing)
        with pytest.raises(ValueError, match="mine"):
            await failing.athrow(ValueError("mine"))
        assert not await is_held_async(client)
        assert closed == [True, True, True], "the body ends under the lock, whatever ends it"

    on_loop(main)


def test_what_an_async_lock_cannot_hold_is_refused() -> None:
    async def main(client: AsyncClient) -> None:
        lock = client.lock("x")

        def plain() -> None: ...
        def generator() -> Iterator[int]:
            yield 1

        for function in (plain, generator, functools.partial(plain), Callee(client)):
            with pytest.raises(ConfigurationError, match="is not an async function: use Client"):
                lock(function)

        @lock
        async def makes() -> Any:
            return generator()

        with pytest.raises(ConfigurationError, match="would run without the lock"):
            await makes()
        assert not await is_held_async(client)

    on_loop(main)
