"""The public names, and that each is documented and typed."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import inspect
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fencelock
from fencelock.backends import GROUP, OWN, known_schemes

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

EXPORTS = {
    "AcquireCancelled",
    "AcquireTimeout",
    "AsyncClient",
    "AsyncElection",
    "AsyncLease",
    "AsyncLock",
    "AsyncMultiLease",
    "AsyncMultiLock",
    "AsyncRWLock",
    "BackendError",
    "BackendUnavailable",
    "Client",
    "ConfigurationError",
    "Conflict",
    "Election",
    "Entry",
    "Guarantees",
    "FencelockError",
    "Lease",
    "LeaseLost",
    "Lock",
    "LockState",
    "MultiLease",
    "MultiLock",
    "NotHeld",
    "QuorumNotReached",
    "RWLock",
    "StaleToken",
    "Unsupported",
    "__version__",
    "release_on_exit",
}

CLASSES = sorted(EXPORTS - {"__version__", "release_on_exit"})


def test_the_public_names_are_these_and_no_others() -> None:
    assert set(fencelock.__all__) == EXPORTS
    assert list(fencelock.__all__) == sorted(fencelock.__all__)
    assert len(fencelock.__all__) == len(EXPORTS)


def test_nothing_else_of_ours_is_in_sight() -> None:
    others = {n: v for n, v in vars(fencelock).items() if not n.startswith("_") and n not in EXPORTS}
    ours = {n for n, v in others.items() if getattr(v, "__module__", "").startswith("fencelock")}
    assert ours == set()


@pytest.mark.parametrize("name", CLASSES)
def test_each_public_name_has_a_docstring(name: str) -> None:
    assert (getattr(fencelock, name).__doc__ or "").strip()


def members(cls: type) -> Iterator[tuple[str, Any]]:
    for name in dir(cls):
        if name.startswith("_"):
            continue
        defined = next(base for base in cls.__mro__ if name in vars(base))
        if defined.__module__.startswith("fencelock"):
            yield name, inspect.getattr_static(cls, name)


PUBLIC_MEMBERS = [
    pytest.param(cls, member, value, id=f"{cls}.{member}")
    for cls in CLASSES
    for member, value in members(getattr(fencelock, cls))
    if inspect.isfunction(value) or isinstance(value, property)
]


@pytest.mark.parametrize(("cls", "member", "value"), PUBLIC_MEMBERS)
def test_each_public_method_is_documented_and_typed(cls: str, member: str, value: Any) -> None:
    function = value.fget if isinstance(value, property) else value
    assert (function.__doc__ or "").strip(), "no docstring"
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty, "no return type"
    untyped = [
        name
        for name, parameter in signature.parameters.items()
        if name != "self" and parameter.annotation is inspect.Parameter.empty
    ]
    assert untyped == []


def test_there_are_members_to_look_at() -> None:
    assert len(PUBLIC_MEMBERS) > 90


@pytest.mark.parametrize("name", [n for n in CLASSES if issubclass(getattr(fencelock, n), Exception)])
def test_each_error_says_what_its_fields_are(name: str) -> None:
    """Fields are keyword-only and required: no call site can forget one."""
    cls = getattr(fencelock, name)
    if "__init__" not in vars(cls):
        return
    for parameter in list(inspect.signature(cls.__init__).parameters.values())[1:]:
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY


# What is written down twice --------------------------------------------------------------


def test_the_version_is_one() -> None:
    assert fencelock.__version__ == importlib.metadata.version("fencelock")
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.?(a|b|rc|dev)\d+)?", fencelock.__version__)


def test_the_backends_known_here_are_those_of_the_entry_points() -> None:
    assert PYPROJECT["project"]["entry-points"][GROUP] == OWN


def test_the_installed_entry_points_are_those_of_the_project() -> None:
    installed = {point.name: point.value for point in importlib.metadata.entry_points(group=GROUP)}
    assert installed == PYPROJECT["project"]["entry-points"][GROUP]
    assert set(known_schemes()) == set(OWN)


def test_every_extra_of_an_entry_point_exists() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    for point in importlib.metadata.entry_points(group=GROUP):
        assert set(point.extras) <= set(extras)


# Examples in docstrings ------------------------------------------------------------------


MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(fencelock.__path__, "fencelock.")
    if not module.name.endswith("__main__")
)


def test_every_example_in_a_docstring_runs() -> None:
    attempted = 0
    for name in ["fencelock", *MODULES]:
        result = doctest.testmod(importlib.import_module(name), verbose=False, report=True)
        assert result.failed == 0, name
        attempted += result.attempted
    assert attempted >= 10
