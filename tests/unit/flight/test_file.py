"""Values in a file: its own, purged by the way, thrown away after a boot; and forks."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencelock import BackendError, Client
from fencelock.flight import Flight
from fencelock.runtime import clock


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[Client]:
    with Client(f"sqlite://{tmp_path}/locks.db") as locks:
        yield locks


def rows(path: Path, table: str) -> int:
    db = sqlite3.connect(path)
    try:
        return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    finally:
        db.close()


def test_beside_the_locks(locks: Client, tmp_path: Path) -> None:
    with Flight(locks) as flight:
        flight.put("k", 1, 60)
    assert rows(tmp_path / "locks-flight.db", "kept") == 1
    with Flight(locks, f"sqlite://{tmp_path}/own.db") as flight:
        flight.put("k", 2, 60)
        assert flight.get("k", lambda: 3, 60) == 2
    with Flight(locks) as flight:
        assert flight.get("k", lambda: 3, 60) == 1


def test_not_in_a_file_of_something_else(locks: Client, tmp_path: Path) -> None:
    assert locks.list() == []  # the file is made
    with (
        Flight(locks, f"sqlite://{tmp_path}/locks.db") as flight,
        pytest.raises(BackendError, match="another kind"),
    ):
        flight.get("k", lambda: 1, 60)


def test_what_is_over_goes_by_the_way(locks: Client, tmp_path: Path) -> None:
    path = tmp_path / "locks-flight.db"
    with Flight(locks) as flight:
        for number in range(20):
            flight.get(f"k{number}", lambda: 1, 0.001)
        time.sleep(0.002)
        for _ in range(3):
            flight.put("a", 1, 60)
        assert rows(path, "kept") == 1
        assert rows(path, "claims") == 0


def test_an_error_leaves_no_claim(locks: Client, tmp_path: Path) -> None:
    with Flight(locks) as flight:
        with pytest.raises(ZeroDivisionError):
            flight.get("k", lambda: 1 // 0, 60)
        assert rows(tmp_path / "locks-flight.db", "claims") == 0


def test_an_interrupt_leaves_nothing(locks: Client, tmp_path: Path) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with Flight(locks) as flight:
        with pytest.raises(KeyboardInterrupt):
            flight.get("k", interrupted, 60)
        assert rows(tmp_path / "locks-flight.db", "claims") == 0
        assert locks.list() == []
        assert flight.get("k", lambda: 1, 60, timeout=0) == 1


def test_after_a_boot_nothing_is_left(locks: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Flight(locks) as flight:
        flight.put("k", "before", 60)
    monkeypatch.setattr(clock, "boot_id", lambda: "another")
    with Client(f"sqlite://{tmp_path}/locks.db") as anew, Flight(anew) as flight:
        assert flight.get("k", lambda: "after", 60) == "after"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_forked_child_goes_on_by_itself(tmp_path: Path, kind: str) -> None:
    url = "memory://forked" if kind == "memory" else f"sqlite://{tmp_path}/locks.db"
    with Client(url) as locks, Flight(locks) as flight:
        flight.put("k", "parent", 60)
        flight._quiet["q"] = float("inf")
        child = os.fork()
        if not child:
            status = 1
            try:
                expected = "child" if kind == "memory" else "parent"
                is_right = flight.get("k", lambda: "child", 60) == expected
                is_right = is_right and flight.get("own", lambda: 1, 60) == 1 and not flight._quiet
                flight.close()
                status = 0 if is_right else 2
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert flight.get("k", lambda: "again", 60) == "parent"


def test_a_flight_that_nobody_closed(locks: Client) -> None:
    flight = Flight(locks)
    assert flight.get("k", lambda: 1, 60) == 1
    del flight  # warnings are errors: an open connection would be one
    with Flight(locks) as flight:
        assert flight.get("k", lambda: 2, 60) == 1
