"""The public names of `fencelock.fencing`: documented, typed, the same in both flavours, light to import."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fencelock import fencing

FUNCTIONS = [name for name in fencing.__all__ if inspect.isfunction(getattr(fencing, name))]
CLASSES = [name for name in fencing.__all__ if inspect.isclass(getattr(fencing, name))]
PAIRS = [
    ("Gate", "AsyncGate"),
    ("SQLGate", "AsyncSQLGate"),
    ("RedisFence", "AsyncRedisFence"),
    ("FencedScript", "AsyncFencedScript"),
    ("WSGIFence", "ASGIFence"),
]


def methods(name: str) -> Iterator[tuple[str, Any]]:
    for member, value in inspect.getmembers(getattr(fencing, name), inspect.isfunction):
        if not member.startswith("_") or member in {"__init__", "__call__"}:
            yield member, value


def parameters(function: Any) -> list[tuple[str, Any]]:
    return [(name, p.default) for name, p in inspect.signature(function).parameters.items() if name != "conn"]


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if f"{name}_async" in FUNCTIONS])
def test_functions_are_the_same_in_both_flavours(name: str) -> None:
    assert parameters(getattr(fencing, name)) == parameters(getattr(fencing, f"{name}_async"))


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS[:4])
def test_classes_are_the_same_in_both_flavours(blocking: str, asynchronous: str) -> None:
    ours = {name: parameters(value) for name, value in methods(blocking)}
    assert ours == {name: parameters(value) for name, value in methods(asynchronous)}


def test_every_name_is_documented_and_typed() -> None:
    things = [(name, getattr(fencing, name)) for name in (*FUNCTIONS, *CLASSES)]
    things += [(f"{name}.{member}", value) for name in CLASSES for member, value in methods(name)]
    assert len(things) > 60
    for name, thing in things:
        if not name.endswith("__init__"):
            assert (thing.__doc__ or "").strip(), name
        if inspect.isfunction(thing) and "Admits.__init__" not in name:
            signature = inspect.signature(thing)
            assert signature.return_annotation is not signature.empty, name
            bare = [p for p in signature.parameters.values() if p.name != "self" and p.annotation is p.empty]
            assert bare == [], name


def test_no_driver_is_imported() -> None:
    drivers = ["redis", "psycopg", "pymysql", "asyncmy", "sqlalchemy", "kazoo", "httpx", "requests"]
    code = f"import sys, fencelock.fencing; print([name for name in {drivers} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
