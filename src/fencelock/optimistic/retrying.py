"""Trying again after a conflict: full jitter, capped, until a deadline.

The waits grow from `base` by doubling up to `cap`, and each is drawn from nothing to that: those who met
once do not meet again in step. After the last one the `Conflict` is raised, with the row that won.

NOT promised: fairness. Under steady contention somebody may lose every time; that is when a lock is better.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from fencelock.durations import Duration, duration, optional_duration
from fencelock.errors import ConfigurationError, Conflict
from fencelock.names import shown
from fencelock.optimistic.results import Conflicted
from fencelock.runtime import clock

__all__ = ["retry"]

F = TypeVar("F", bound=Callable[..., Any])


def retry(
    *,
    timeout: Duration | None = 10.0,
    attempts: int | None = None,
    base: Duration = 0.002,
    cap: Duration = 0.25,
    merge: Callable[..., Any] | None = None,
) -> Callable[[F], F]:
    """Call a function, blocking or asynchronous, again while it ends in a conflict.

    A conflict is `Conflicted` as its result, or `Conflict` raised. After one, `merge(row, *args, **kwargs)`
    is called instead, if it is given: with the row that won and the function's own arguments, so that it
    need not read. When `timeout` or the number of `attempts` is used up, `Conflict` is raised.

    Example:
        >>> rows = iter([Conflicted("theirs", "page"), "done"])
        >>> retry(base=0)(lambda: next(rows))()
        'done'
    """
    plan = Plan(timeout, attempts, base, cap)
    if merge is not None and not callable(merge):
        raise ConfigurationError(f"merge={shown(merge)} is not callable: give a function that takes the row")

    def decorate(function: F) -> F:
        if not callable(function):
            raise ConfigurationError(f"{shown(function)} is not a function: write @retry() with its brackets")
        is_async = inspect.iscoroutinefunction(function)
        if merge is not None and inspect.iscoroutinefunction(merge) != is_async:
            raise ConfigurationError("merge and the function are of two flavours: make both async or neither")
        made = _tasks(function, merge, plan) if is_async else _threads(function, merge, plan)
        return cast("F", functools.wraps(function)(made))

    return decorate


class Plan:
    """How often and for how long."""

    def __init__(self, timeout: Duration | None, attempts: int | None, base: Duration, cap: Duration) -> None:
        if attempts is not None and (
            isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1
        ):
            raise ConfigurationError(
                f"attempts={shown(attempts)} is out of range: give a whole number from 1 on"
            )
        self.timeout = optional_duration(timeout, "timeout")
        self.attempts = attempts
        self.base = duration(base, "base")
        self.cap = duration(cap, "cap")


class Tries:
    """The tries of one call."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._made = 0
        self._deadline = clock.now() + plan.timeout

    def pause(self, conflict: Conflict) -> float:
        """Return how long to wait before the next try. Raises the conflict if there is to be none."""
        plan = self._plan
        self._made += 1
        left = self._deadline - clock.now()
        if left <= 0 or (plan.attempts is not None and self._made >= plan.attempts):
            raise conflict
        return min(left, random.random() * min(plan.cap, plan.base * 2.0 ** min(self._made, 60)))


def _threads(
    function: Callable[..., Any], merge: Callable[..., Any] | None, plan: Plan
) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        tries = Tries(plan)
        step = functools.partial(function, *args, **kwargs)
        while True:
            try:
                result = step()
            except Conflict as error:
                conflict = error
            else:
                if not isinstance(result, Conflicted):
                    return result
                conflict = Conflict(resource=result.resource, current=result.row)
            time.sleep(tries.pause(conflict))
            if merge is not None:
                step = functools.partial(merge, conflict.current, *args, **kwargs)

    return call


def _tasks(function: Callable[..., Any], merge: Callable[..., Any] | None, plan: Plan) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        tries = Tries(plan)
        step = functools.partial(function, *args, **kwargs)
        while True:
            try:
                result = await step()
            except Conflict as error:
                conflict = error
            else:
                if not isinstance(result, Conflicted):
                    return result
                conflict = Conflict(resource=result.resource, current=result.row)
            await asyncio.sleep(tries.pause(conflict))
            if merge is not None:
                step = functools.partial(merge, conflict.current, *args, **kwargs)

    return call
