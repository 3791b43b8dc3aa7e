"""Expectations with messages. They raise `AssertionError` themselves: `python -O` disarms nothing.

One that only came too late raises `Late`. Everything else is a broken promise.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

__all__ = ["HANGING", "Late", "between", "fails", "quick", "refused", "same", "soon", "that", "took"]

E = TypeVar("E", bound=BaseException)
LOOK_EVERY = 0.02
HANGING = 15.0
"""Seconds after which what is not about time hangs: no machine is as busy as that."""


class Late(AssertionError):
    """What had to happen did not happen in time: a busy machine can cause that too."""


def that(condition: object, message: str) -> None:
    """Fail with `message` unless `condition` is true."""
    if not condition:
        raise AssertionError(message)


def same(actual: object, expected: object, what: str) -> None:
    """Fail unless the two are equal."""
    that(actual == expected, f"{what} is {actual!r}, expected {expected!r}")


def between(low: float, value: float, high: float, what: str) -> None:
    """Fail unless `low <= value <= high`."""
    that(low <= value <= high, f"{what} is {value:.3f}, expected {low:.3f} to {high:.3f}")


def took(low: float, seconds: float, high: float, what: str) -> None:
    """Fail unless something took `low` to `high` seconds. Too long is `Late`, too short is not."""
    if seconds > high:
        raise Late(f"{what} is {seconds:.3f}, expected {low:.3f} to {high:.3f}")
    between(low, seconds, high, what)


def refused(kind: type[E], function: Callable[..., Any], *args: Any, **options: Any) -> E:
    """Call a function that does no I/O and return the error of `kind` that it raises."""
    try:
        result = function(*args, **options)
    except kind as error:
        return error
    if inspect.iscoroutine(result):
        result.close()
    told = ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in options.items())])
    raise AssertionError(f"{function.__name__}({told[:200]}) did not raise {kind.__name__}")


async def fails(kind: type[E], call: Awaitable[Any], what: str = "the call") -> E:
    """Await a call and return the error of `kind` that it raises."""
    try:
        result = await call
    except kind as error:
        return error
    raise AssertionError(f"{what} returned {result!r}, expected {kind.__name__}")


async def quick(call: Awaitable[Any], within: float, what: str) -> Any:
    """Await a call that must end within so many seconds, and return its result."""
    started = time.monotonic()
    try:
        async with asyncio.timeout(within):
            return await call
    except TimeoutError:
        if time.monotonic() - started < within:  # the call's own timeout
            raise
        raise Late(f"{what} was not done within {within:.3g}s") from None


async def soon(look: Callable[[], Any], within: float, what: str) -> Any:
    """Call `look` (plain, or giving an awaitable) until it is true; return what it gave."""
    deadline = time.monotonic() + within
    while True:
        seen = look()
        if inspect.isawaitable(seen):
            seen = await seen
        if seen:
            return seen
        if time.monotonic() >= deadline:
            raise Late(f"{what}: not within {within:.3g}s")
        await asyncio.sleep(LOOK_EVERY)
