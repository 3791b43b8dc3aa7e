from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fencelock import Client


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


@pytest.fixture
def client(path: Path) -> Iterator[Client]:
    with Client(f"sqlite://{path}") as client:
        yield client


@pytest.fixture
def operator(path: Path) -> Callable[[str], list[tuple[Any, ...]]]:
    """Somebody with the sqlite3 shell, who runs one statement on the lock file."""

    def execute(statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as db:
            return db.execute(statement).fetchall()

    return execute


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts things for one test. Needs root, and says so."""
    assert os.geteuid() == 0, "this test mounts a file system: run the tests as root"
    mounts: list[Path] = []

    def mount(*arguments: str, at: str = "mount") -> Path:
        point = tmp_path / at
        point.mkdir(exist_ok=True)
        subprocess.run(["mount", *arguments, str(point)], check=True)
        if point not in mounts:
            mounts.append(point)
        return point

    yield mount
    for point in reversed(mounts):
        subprocess.run(["umount", "--lazy", str(point)], check=True)
