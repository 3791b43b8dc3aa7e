"""`AsyncFlight`: single flight for asyncio. The logic is in `course.py`."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from fencelock.aio import AsyncClient
from fencelock.durations import Duration, optional_duration
from fencelock.errors import ConfigurationError
from fencelock.flight.codecs import Codec
from fencelock.flight.course import ERROR_TTL, LOCK_TTL, Base, Call
from fencelock.flight.keys import Key, key_maker
from fencelock.flight.records import Errors, make_terms
from fencelock.flight.sharing import SharedByTasks
from fencelock.names import shown

__all__ = ["AsyncFlight"]

P = ParamSpec("P")
T = TypeVar("T")


class AsyncFlight(Base):
    """The same as `Flight`, for asyncio. It belongs to the loop of its `locks`.

    A computation is a task of its own. It goes on while anybody waits for it, though whoever began it may
    have been cancelled, and is cancelled when nobody does.

    Example:
        >>> async def answer():
        ...     return 42
        >>> async def main():
        ...     async with AsyncClient("memory://") as locks, AsyncFlight(locks) as flight:
        ...         return await flight.get("answer", answer, ttl=60)
        >>> asyncio.run(main())
        42
    """

    _kind = SharedByTasks

    def __init__(
        self,
        locks: AsyncClient,
        store: Any = None,
        *,
        codec: str | Codec = "json",
        lock_ttl: Duration = LOCK_TTL,
        error_ttl: Duration = ERROR_TTL,
    ) -> None:
        if not isinstance(locks, AsyncClient):
            raise ConfigurationError(f"locks={shown(locks)} is no AsyncClient: give one, or use Flight")
        super().__init__(locks, store, codec, lock_ttl, error_ttl)

    async def get(
        self,
        key: str,
        compute: Callable[[], Awaitable[T]],
        ttl: Duration,
        *,
        stale: Duration = 0,
        early: float = 0,
        errors: Errors = "raise",
        timeout: Duration | None = None,
    ) -> T:
        """Return the value kept for a key, or compute it, once for all who ask, and keep it for `ttl`.

        See `Flight.get`; `compute` is a coroutine function.
        """
        terms = make_terms(key, ttl, stale, early, errors)
        seconds = optional_duration(timeout, "timeout")
        return await self._get(key, terms, _computing(compute), seconds)  # type: ignore[no-any-return]

    async def put(self, key: str, value: Any, ttl: Duration, *, stale: Duration = 0) -> None:
        """Keep a value, whatever was kept; a computation that is under way is not kept then."""
        await self._put(key, value, make_terms(key, ttl, stale, 0, "raise"))

    async def forget(self, key: str) -> bool:
        """Forget a value; a computation that is under way is not kept then. Say whether there was one."""
        return await self._forget(key)

    def cached(
        self,
        *,
        ttl: Duration,
        key: Key = None,
        stale: Duration = 0,
        early: float = 0,
        errors: Errors = "raise",
        timeout: Duration | None = None,
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
        """Decorate a coroutine function: its calls become `get`. See `Flight.cached`."""
        make_terms("-", ttl, stale, early, errors)

        def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
            if not inspect.iscoroutinefunction(function):
                raise ConfigurationError(f"{shown(function)} is no coroutine function: use Flight for it")
            make_key = key_maker(function, key)

            @functools.wraps(function)
            async def call(*args: P.args, **kwargs: P.kwargs) -> T:
                return await self.get(
                    make_key(*args, **kwargs),
                    lambda: function(*args, **kwargs),
                    ttl,
                    stale=stale,
                    early=early,
                    errors=errors,
                    timeout=timeout,
                )

            return call

        return decorate

    async def close(self) -> None:
        """Cancel what is under way, and close the store. The locks stay open. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._flights.is_off = True
        tasks = self._flights.tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks)
        finally:
            await self._shut()

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._flights.keep(asyncio.get_running_loop().create_task(work(), name="fencelock-flight refresh"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _computing(compute: Callable[[], Awaitable[Any]]) -> Call:
    if not callable(compute):
        raise ConfigurationError(f"compute={shown(compute)} is not a coroutine function")

    async def call() -> Any:
        value = compute()
        if not inspect.isawaitable(value):
            raise ConfigurationError(f"compute={shown(compute)} is no coroutine function: use Flight")
        return await value

    return call
