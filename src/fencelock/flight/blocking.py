"""`Flight`: single flight for blocking code. The logic is in `course.py`."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from fencelock.client import Client
from fencelock.durations import Duration, optional_duration
from fencelock.errors import ConfigurationError
from fencelock.flight.codecs import Codec
from fencelock.flight.course import ERROR_TTL, LOCK_TTL, Base, Call
from fencelock.flight.keys import Key, key_maker
from fencelock.flight.records import Errors, make_terms
from fencelock.flight.sharing import SharedByThreads
from fencelock.names import shown
from fencelock.runtime.blocking import run

__all__ = ["Flight"]

P = ParamSpec("P")
T = TypeVar("T")
REFRESHERS = 4
"""Threads that refresh, at most. What finds none is refreshed later, or computed when it has expired."""


class Flight(Base):
    """Values that are computed once, however many ask. Any number of threads may share one.

    `locks` decides who computes. Values are kept where the locks are, if that is Redis, SQLite (in a file
    beside) or memory; else, or by choice, in `store`: a URL of one of these, or a `redis.Redis`. A
    computing process that dies delays the others by `lock_ttl` at most; an error that is shared is kept for
    `error_ttl`. `codec` is json, bytes, pickle, or one of your own.

    Example:
        >>> with Client("memory://") as locks, Flight(locks) as flight:
        ...     flight.get("answer", lambda: 42, ttl=60)
        42
    """

    _kind = SharedByThreads
    _finalizer: weakref.finalize[Any, Any] | None = None

    def __init__(
        self,
        locks: Client,
        store: Any = None,
        *,
        codec: str | Codec = "json",
        lock_ttl: Duration = LOCK_TTL,
        error_ttl: Duration = ERROR_TTL,
    ) -> None:
        if not isinstance(locks, Client):
            raise ConfigurationError(f"locks={shown(locks)} is no Client: give one, or use AsyncFlight")
        super().__init__(locks, store, codec, lock_ttl, error_ttl)

    def _start(self) -> None:
        super()._start()
        self._refreshers = ThreadPoolExecutor(REFRESHERS, thread_name_prefix="fencelock-flight")
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = weakref.finalize(self, self._place.leave)

    def get(
        self,
        key: str,
        compute: Callable[[], T],
        ttl: Duration,
        *,
        stale: Duration = 0,
        early: float = 0,
        errors: Errors = "raise",
        timeout: Duration | None = None,
    ) -> T:
        """Return the value kept for a key, or compute it, once for all who ask, and keep it for `ttl`.

        For `stale` seconds after that it is still returned, at once, while one caller's `compute` refreshes
        it in the background. With `early` (1.0 is usual) that may begin before it has expired, the sooner the
        longer it takes to compute. `timeout` is how long to wait while somebody else computes; then
        `AcquireTimeout`. An error of `compute` is raised for all who wait in this process, and others try in
        turn; with `errors="share"` everybody everywhere gets it, for a moment, as `ComputeFailed`; with
        `errors="retry"` only its own caller, and the next one tries.
        """
        terms = make_terms(key, ttl, stale, early, errors)
        return run(self._get(key, terms, _computing(compute), optional_duration(timeout, "timeout")))  # type: ignore[no-any-return]

    def put(self, key: str, value: Any, ttl: Duration, *, stale: Duration = 0) -> None:
        """Keep a value, whatever was kept; a computation that is under way is not kept then."""
        run(self._put(key, value, make_terms(key, ttl, stale, 0, "raise")))

    def forget(self, key: str) -> bool:
        """Forget a value; a computation that is under way is not kept then. Say whether there was one."""
        return run(self._forget(key))

    def cached(
        self,
        *,
        ttl: Duration,
        key: Key = None,
        stale: Duration = 0,
        early: float = 0,
        errors: Errors = "raise",
        timeout: Duration | None = None,
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Decorate a function: its calls become `get`.

        `key` is a pattern over the function's parameters (`"user:{id}"`), or a function of its
        arguments. By default it is made of the function's name and its arguments, if JSON can carry them.
        """
        make_terms("-", ttl, stale, early, errors)

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            if not callable(function) or inspect.iscoroutinefunction(function):
                raise ConfigurationError(f"{shown(function)} is no blocking function: use AsyncFlight for it")
            make_key = key_maker(function, key)

            @functools.wraps(function)
            def call(*args: P.args, **kwargs: P.kwargs) -> T:
                return self.get(
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

    def close(self) -> None:
        """Wait for refreshes that are under way, and close the store. The locks stay open. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._finalizer is not None:
            self._finalizer.detach()
        self._refreshers.shutdown(wait=True, cancel_futures=True)
        run(self._shut())

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with suppress(RuntimeError):  # closed meanwhile
            self._refreshers.submit(lambda: run(work()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _computing(compute: Callable[[], Any]) -> Call:
    if not callable(compute):
        raise ConfigurationError(f"compute={shown(compute)} is not a function")

    async def call() -> Any:
        value = compute()
        if inspect.iscoroutine(value):
            value.close()
            raise ConfigurationError(f"compute={shown(compute)} is a coroutine function: use AsyncFlight")
        return value

    return call
