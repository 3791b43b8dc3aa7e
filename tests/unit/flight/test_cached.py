"""The decorator, and its keys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from fencelock import AsyncClient, Client, ConfigurationError
from fencelock.flight import AsyncFlight, Flight


@pytest.fixture
def cache() -> Iterator[Flight]:
    with Client("memory://cached") as locks, Flight(locks) as cache:
        for key in ("user:1:en", "user:2:en", "sum:3"):
            cache.forget(key)
        yield cache


def test_a_pattern(cache: Flight) -> None:
    calls: list[Any] = []

    @cache.cached(ttl=60, key="user:{user}:{lang}")
    def greet(user: int, lang: str = "en") -> str:
        """Greet somebody."""
        calls.append((user, lang))
        return f"{user} {lang}"

    assert greet(1) == greet(user=1) == greet(1, "en") == "1 en"
    assert greet(2) == "2 en"
    assert calls == [(1, "en"), (2, "en")]
    assert greet.__name__ == "greet" and greet.__doc__ == "Greet somebody."
    assert cache.forget("user:1:en") is True


def test_no_value_becomes_another_key(cache: Flight) -> None:
    @cache.cached(ttl=60, key="pair:{left}:{right}")
    def pair(left: str, right: str) -> list[str]:
        return [left, right]

    assert pair("a:b", "c") == ["a:b", "c"]
    assert pair("a", "b:c") == ["a", "b:c"]
    assert cache.forget("pair:a%3Ab:c") is cache.forget("pair:a:b%3Ac") is True


def test_a_function(cache: Flight) -> None:
    @cache.cached(ttl=60, key=lambda a, b: f"sum:{a + b}")
    def add(a: int, b: int) -> list[int]:
        return [a, b]

    assert add(1, 2) == add(2, 1) == [1, 2]


def test_by_the_arguments(cache: Flight) -> None:
    calls: list[Any] = []

    @cache.cached(ttl=60)
    def work(*args: Any, **kwargs: Any) -> int:
        calls.append((args, kwargs))
        return len(calls)

    assert work() == work() == 1
    assert work(1, b=2) == work(1, b=2) == 2
    assert work("1", b=2) == 3
    with pytest.raises(ConfigurationError, match=r"an argument of .*work is not JSON, so it makes no key"):
        work(object())
    assert cache.forget(f"{__name__}.{work.__qualname__}") is True


def test_with_tasks() -> None:
    async def main() -> None:
        async with AsyncClient("memory://cached-tasks") as locks, AsyncFlight(locks) as cache:

            @cache.cached(ttl=60, key="double:{n}")
            async def double(n: int) -> int:
                await asyncio.sleep(0)
                calls.append(n)
                return 2 * n

            assert await asyncio.gather(*(double(2) for _ in range(10))) == [4] * 10
            assert calls == [2]
            with pytest.raises(ConfigurationError, match="is no coroutine function: use Flight for it"):
                cache.cached(ttl=60)(lambda: 1)  # type: ignore[arg-type, return-value]

    calls: list[int] = []
    asyncio.run(main())


def test_refused_when_it_is_written(cache: Flight) -> None:
    def plain(a: int) -> int:
        return a

    async def coroutine() -> None: ...

    with pytest.raises(ConfigurationError, match=r"key='x:\{b\}' does not fit .*plain\(a: 'int'\)"):
        cache.cached(ttl=60, key="x:{b}")(plain)
    with pytest.raises(ConfigurationError, match=r"key='x:\{' is no template"):
        cache.cached(ttl=60, key="x:{")(plain)
    with pytest.raises(ConfigurationError, match="key=7 makes no key"):
        cache.cached(ttl=60, key=7)(plain)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="is no blocking function: use AsyncFlight for it"):
        cache.cached(ttl=60)(coroutine)
    with pytest.raises(ConfigurationError, match="ttl=0 is no time at all"):
        cache.cached(ttl=0)
    with pytest.raises(ConfigurationError, match="is a coroutine function: use AsyncFlight"):
        cache.get("coroutine", coroutine, 60)
    with pytest.raises(ConfigurationError, match="compute=7 is not a function"):
        cache.get("k", 7, 60)  # type: ignore[arg-type]


def test_locks_of_the_wrong_flavour() -> None:
    with Client("memory://") as locks, pytest.raises(ConfigurationError, match="is no AsyncClient"):
        AsyncFlight(locks)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="is no Client: give one, or use AsyncFlight"):
        Flight(AsyncClient("memory://"))  # type: ignore[arg-type]


def test_clients_of_redis_py_that_cannot_be_used() -> None:
    import redis
    import redis.asyncio

    with Client("memory://") as locks:
        with (
            redis.Redis() as client,
            pytest.raises(ConfigurationError, match="is a pipeline: give the client itself"),
        ):
            Flight(locks, client.pipeline())
        with pytest.raises(ConfigurationError, match=r"is of the other flavour: give Flight a redis\.Redis"):
            Flight(locks, redis.asyncio.Redis())
