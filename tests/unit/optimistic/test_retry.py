"""Trying again: how often, how long, and what is called."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any

import pytest

from fencelock import ConfigurationError, Conflict
from fencelock.optimistic import Conflicted, Updated, retry
from fencelock.optimistic.retrying import Plan, Tries

FLAVOURS = ["blocking", "asyncio"]


def called(flavour: str, outcomes: list[Any], **options: Any) -> tuple[Any, list[tuple[Any, ...]]]:
    """Call a function that has these outcomes, one after the other."""
    calls: list[tuple[Any, ...]] = []
    left = iter(outcomes)

    def outcome(*args: Any) -> Any:
        calls.append(args)
        found = next(left)
        if isinstance(found, Exception):
            raise found
        return found

    def function(*args: Any) -> Any:
        return outcome("function", *args)

    def merge(*args: Any) -> Any:
        return outcome("merge", *args)

    async def function_async(*args: Any) -> Any:
        return outcome("function", *args)

    async def merge_async(*args: Any) -> Any:
        return outcome("merge", *args)

    is_async = flavour == "asyncio"
    if options.pop("merging", False):
        options["merge"] = merge_async if is_async else merge
    made = retry(**{"base": 0, **options})(function_async if is_async else function)
    assert inspect.iscoroutinefunction(made) == is_async
    result = made("x")
    return (asyncio.run(result) if is_async else result), calls


def conflicts(count: int) -> list[Any]:
    both = [Conflicted({"version": n}, "t") if n % 2 else None for n in range(count)]
    return [one or Conflict(resource="t", current={"version": n}) for n, one in enumerate(both)]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_it_goes_on_until_there_is_no_conflict(flavour: str) -> None:
    result, calls = called(flavour, [*conflicts(5), Updated("row")])
    assert result == Updated("row")
    assert calls == [("function", "x")] * 6


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_merge_is_given_the_row_that_won(flavour: str) -> None:
    result, calls = called(flavour, [*conflicts(2), "merged"], merging=True)
    assert result == "merged"
    assert calls == [("function", "x"), ("merge", {"version": 0}, "x"), ("merge", {"version": 1}, "x")]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_attempts_are_counted(flavour: str) -> None:
    with pytest.raises(Conflict) as caught:
        called(flavour, conflicts(9), attempts=3)
    assert caught.value.current == {"version": 2}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_deadline_holds(flavour: str) -> None:
    began = time.monotonic()
    with pytest.raises(Conflict):
        called(flavour, conflicts(100_000), timeout=0.2, base=0.01, cap=0.05)
    assert 0.19 <= time.monotonic() - began < 20  # 100,000 tries would take an hour


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_other_errors_pass(flavour: str) -> None:
    with pytest.raises(ZeroDivisionError):
        called(flavour, [*conflicts(1), ZeroDivisionError()])


def test_waits_are_jittered_and_capped() -> None:
    tries = Tries(Plan(None, None, 0.01, 0.1))
    waits = [tries.pause(Conflict(resource="t", current=None)) for _ in range(2000)]
    assert max(waits[:2]) <= 0.04
    assert 0.095 < max(waits) <= 0.1
    assert min(waits) < 0.005
    assert len(set(waits)) > 1900


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attempts": 0}, "attempts=0"),
        ({"attempts": 1.5}, "attempts=1.5"),
        ({"timeout": -1}, "timeout=-1"),
        ({"base": "x"}, "base='x'"),
        ({"cap": float("nan")}, "cap=nan"),
        ({"merge": 5}, "merge=5 is not callable"),
    ],
)
def test_bad_input(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        retry(**options)


def test_flavours_are_not_mixed() -> None:
    async def merge(row: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="two flavours"):
        retry(merge=merge)(lambda: None)
    with pytest.raises(ConfigurationError, match="with its brackets"):
        retry()(5)  # type: ignore[type-var]
