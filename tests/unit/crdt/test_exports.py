"""The public names of fencelock.crdt: documented, typed, with an example that is run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
from typing import Any

import pytest

from fencelock import crdt

NAMES = {
    *(
        "AsyncReplica",
        "Change",
        "ClockAhead",
        "Crdt",
        "DecodeError",
        "DirectoryExchange",
        "Element",
        "Exchange",
    ),
    *(
        "GCounter",
        "GSet",
        "HybridLogicalClock",
        "LWWElementSet",
        "LWWRegister",
        "MVRegister",
        "ORMap",
        "ORSet",
    ),
    *("Order", "PNCounter", "Record", "RedisExchange", "Replica", "SQLExchange", "Synced", "Timestamp"),
    *("TwoPhaseSet", "VectorClock"),
}
CLASSES = sorted(NAMES - {"Element"})


def test_the_names_are_these() -> None:
    assert set(crdt.__all__) == NAMES
    assert list(crdt.__all__) == sorted(crdt.__all__)


@pytest.mark.parametrize("name", CLASSES)
def test_each_has_a_docstring_with_an_example(name: str) -> None:
    text = getattr(crdt, name).__doc__ or ""
    assert "Example:\n" in text
    assert ">>> " in text


def functions() -> list[Any]:
    found = []
    for name in CLASSES:
        for member in dir(getattr(crdt, name)):
            raw = inspect.getattr_static(getattr(crdt, name), member)
            raw = raw.fget if isinstance(raw, property) else getattr(raw, "__func__", raw)
            if (
                inspect.isfunction(raw)
                and not member.startswith("_")
                and raw.__module__.startswith("fencelock")
            ):
                found.append(pytest.param(getattr(crdt, name), member, raw, id=f"{name}.{member}"))
    return found


@pytest.mark.parametrize(("cls", "member", "function"), functions())
def test_each_method_is_documented_and_typed(cls: type, member: str, function: Any) -> None:
    assert inspect.getdoc(getattr(cls, member)) or function.__doc__
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in list(signature.parameters.values())[1:]:
        assert parameter.annotation is not inspect.Parameter.empty, parameter


def test_the_examples_say_what_is() -> None:
    attempted = 0
    for module in pkgutil.walk_packages(crdt.__path__, "fencelock.crdt."):
        result = doctest.testmod(importlib.import_module(module.name))
        assert result.failed == 0, module.name
        attempted += result.attempted
    assert attempted > 60


def test_no_driver_is_loaded_and_fencelock_does_not_load_it() -> None:
    code = (
        "import sys, fencelock; assert 'fencelock.crdt' not in sys.modules; import fencelock.crdt; "
        "found = {'redis', 'psycopg', 'pymysql'} & set(sys.modules); assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
