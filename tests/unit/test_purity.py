"""What may import what: the core is pure, and `import fencelock` is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fencelock
import fencelock.core

CORE = Path(fencelock.core.__file__).parent
MODULES = sorted(CORE.glob("**/*.py"))

ALLOWED = {
    "__future__",
    "collections",
    "collections.abc",
    "abc",
    "dataclasses",
    "enum",
    "logging",
    "math",
    "typing",
    "fencelock.core",
    "fencelock.errors",
    "fencelock.findings",
    "fencelock.names",
    "fencelock.durations",
    "fencelock.guarantees",
    "fencelock.state",
    "fencelock.runtime.base",
}


FLOORS_BELOW = ("fencelock.net.", "fencelock.runtime", "fencelock.errors")


def imported(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: a relative import"
            assert node.module is not None
            found.add(node.module)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"__import__", "import_module", "exec", "eval"}, path.name
    return found


def allowed(module: str) -> bool:
    return module in ALLOWED or module.startswith("fencelock.core.")


def test_there_is_a_core_to_look_at() -> None:
    assert {path.name for path in MODULES} >= {"acquire.py", "renew.py", "session.py", "queue.py"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_core_has_effects_only_through_the_runtime(path: Path) -> None:
    assert {module for module in imported(path) if not allowed(module)} == set()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_core_imports_nothing_from_backends(path: Path) -> None:
    """Not for its types either: what both need is in `core/ports.py`."""
    assert {module for module in imported(path) if module.startswith("fencelock.backends")} == set()


def test_what_the_core_stands_on_is_as_pure() -> None:
    """The contract of a runtime, and what the core imports from the package, have no effects either."""
    for name in ("runtime/base.py", "state.py", "errors.py", "guarantees.py", "findings.py"):
        effects = {module for module in imported(CORE.parent / name) if not allowed(module)}
        assert effects == set(), name


def test_our_own_code_imports_the_contract_from_one_place() -> None:
    """`fencelock.backends.base` is the name for those who write a backend elsewhere."""
    paths = CORE.parent.glob("**/*.py")
    assert [path for path in paths if "fencelock.backends.base import" in path.read_text()] == []


@pytest.mark.parametrize("path", sorted((CORE.parent / "net").glob("*.py")), ids=lambda path: path.stem)
def test_what_backends_stand_on_knows_none_of_them(path: Path) -> None:
    ours = {module for module in imported(path) if module.startswith("fencelock.")}
    assert not {module for module in ours if not module.startswith(FLOORS_BELOW)}


def test_the_walk_sees_what_it_should(tmp_path: Path) -> None:
    impure = tmp_path / "impure.py"
    impure.write_text(
        "def f():\n    import time\n    from socket import socket\nif TYPE_CHECKING:\n    import asyncio\n"
    )
    assert imported(impure) == {"time", "socket", "asyncio"}
    assert not any(map(allowed, imported(impure)))


def test_importing_fencelock_imports_no_driver_and_no_command_line() -> None:
    heavy = ["redis", "psycopg", "pymysql", "asyncmy", "kazoo", "grpc", "httpx"]
    heavy += ["rich", "click", "sqlite3", "_sqlite3", "hypothesis", "pytest"]
    heavy += ["importlib.metadata", "fencelock.cli", "fencelock.testing", "fencelock.backends.sqlite"]
    code = f"import sys, fencelock; print(*[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_backend_is_imported_when_it_is_asked_for() -> None:
    code = (
        "import sys, fencelock; c = fencelock.Client('memory://'); print('_sqlite3' in sys.modules);"
        "fencelock.Client('sqlite:////nowhere/x.db'); print('_sqlite3' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(fencelock.__file__).parent / "py.typed").exists()
