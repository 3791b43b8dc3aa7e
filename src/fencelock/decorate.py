"""Locks as decorators: the body of the function runs under the lock, all of it, or not at all.

A coroutine function, a generator function and an async generator function do not run when they are called. So
each gets a wrapper of its own kind, which holds the lock while the body runs. A function of another flavour
than the lock's is refused when it is decorated. Whether a plain function only *makes* a coroutine or a
generator shows when it is called: then what it made is closed before it has begun, and the call raises.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar, cast

from fencelock.errors import ConfigurationError

__all__ = ["locked", "locked_async"]

F = TypeVar("F", bound=Callable[..., Any])


def locked(lock: Any, function: F) -> F:
    """Return a function that holds a lock of a `Client` while the given one runs."""
    kind = _runs(function)
    if inspect.iscoroutinefunction(kind) or inspect.isasyncgenfunction(kind):
        raise ConfigurationError(f"{_name(function)} is an async function: use AsyncClient for its lock")
    if inspect.isgeneratorfunction(kind):

        @functools.wraps(function)
        def iterated(*args: Any, **options: Any) -> Generator[Any, Any, Any]:
            with lock:
                return (yield from function(*args, **options))

        return cast(F, iterated)

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        with lock:
            return _done(function(*args, **options), function)

    return cast(F, called)


def locked_async(lock: Any, function: F) -> F:
    """Return a function that holds a lock of an `AsyncClient` while the given one runs."""
    kind = _runs(function)
    if inspect.isasyncgenfunction(kind):

        @functools.wraps(function)
        async def iterated(*args: Any, **options: Any) -> AsyncGenerator[Any, Any]:
            async with lock:
                body = function(*args, **options)
                step = anext(body)
                try:
                    while True:
                        try:
                            item = await step
                        except StopAsyncIteration:
                            return
                        try:
                            sent = yield item
                        except GeneratorExit:
                            raise
                        except BaseException as error:  # noqa: BLE001 - the body decides what to do with it
                            step = body.athrow(error)
                        else:
                            step = body.asend(sent)
                finally:
                    await body.aclose()

        return cast(F, iterated)
    if not inspect.iscoroutinefunction(kind):
        raise ConfigurationError(f"{_name(function)} is not an async function: use Client for its lock")

    @functools.wraps(function)
    async def awaited(*args: Any, **options: Any) -> Any:
        async with lock:
            return _done(await function(*args, **options), function)

    return cast(F, awaited)


def _runs(function: Any) -> Any:
    """Return the function whose kind decides: that of a partial, or the `__call__` of an object."""
    if isinstance(function, staticmethod | classmethod):
        raise ConfigurationError(
            f"{_name(function)} is a {type(function).__name__}: put the lock below @{type(function).__name__}"
        )
    if isinstance(function, type) or not callable(function):
        raise ConfigurationError(f"{_name(function)} is not a function: decorate a function or a method")
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _done(result: Any, function: Any) -> Any:
    """Return the result of a call, unless it is something whose body has yet to run."""
    if not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return result
    give_up = getattr(result, "close", None) or getattr(result, "cancel", None)
    if give_up is not None:
        give_up()
    raise ConfigurationError(
        f"{_name(function)} returned {type(result).__name__!r}, which would run without the lock: "
        "decorate the async function or the generator function itself"
    )


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
