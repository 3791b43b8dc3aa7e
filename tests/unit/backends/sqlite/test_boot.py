"""Across boots and power cuts: those who held are dead, and no token is given twice."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fencelock import Client, ConfigurationError
from fencelock.backends.sqlite import file
from fencelock.backends.sqlite.file import BLOCK, LockFile
from fencelock.runtime import clock
from unit.support import in_forks

Operator = Callable[[str], list[tuple[Any, ...]]]


def boot(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(clock, "boot_id", lambda: name)


def test_after_a_boot_old_requests_are_dropped_and_tokens_begin_above_what_was_reserved(
    path: Path, monkeypatch: pytest.MonkeyPatch, operator: Operator
) -> None:
    with Client(f"sqlite://{path}") as before:
        lease = before.lock("x", ttl=3600).acquire()
        ((reserved,),) = operator("SELECT reserved FROM meta")
        assert lease.token < reserved
        boot(monkeypatch, "the next boot")
        with Client(f"sqlite://{path}") as after, after.lock("x", timeout=0) as anew:
            assert anew.token > reserved
            assert [entry.owner for entry in after.inspect("x").holders] == [anew.owner]
    assert operator("SELECT boot FROM meta") == [("the next boot",)]


def test_within_one_boot_nothing_is_dropped(path: Path) -> None:
    with Client(f"sqlite://{path}") as first:
        lease = first.lock("x", ttl=3600).acquire()
        with Client(f"sqlite://{path}") as second:
            assert second.lock("x").try_acquire() is None
        assert lease.verify()


def test_many_boots_in_a_row(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = []
    for number in range(10):
        boot(monkeypatch, f"boot {number}")
        with Client(f"sqlite://{path}") as client, client.lock("x", timeout=0) as lease:
            tokens.append(lease.token)
    assert tokens == sorted(set(tokens))
    assert all(later - earlier >= BLOCK for earlier, later in pairwise(tokens))


def test_a_system_without_boots_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "boot_id", lambda: None)
    backend_client = Client(f"sqlite://{path}")
    with pytest.raises(ConfigurationError, match="names its boots"):
        backend_client.inspect("x")
    backend_client.close()


# Power cuts ------------------------------------------------------------------------------


class Disk:
    """Remembers what was on the disk when SQLite last waited for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.synced: dict[str, bytes] = {}
        self.syncs = 0

    def sync(self) -> None:
        self.syncs += 1
        for suffix in ("", "-wal"):
            file = Path(f"{self.path}{suffix}")
            if file.exists():
                self.synced[suffix] = file.read_bytes()

    def after_power_loss(self, folder: Path) -> Path:
        folder.mkdir()
        for suffix, content in self.synced.items():
            Path(f"{folder / self.path.name}{suffix}").write_bytes(content)
        return folder / self.path.name


@pytest.fixture
def disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(path)
    durably = LockFile._durably

    @contextlib.contextmanager
    def watched(self: LockFile, db: sqlite3.Connection) -> Iterator[None]:
        with durably(self, db):
            yield
        disk.sync()

    monkeypatch.setattr(LockFile, "_durably", watched)
    return disk


def small_blocks(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("fencelock.backends.sqlite.file.BLOCK", size)


@pytest.mark.parametrize("block", [1, 2, 7, BLOCK])
@pytest.mark.parametrize("grants", [1, 5, 40])
def test_no_token_is_given_again_after_a_power_cut(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk, block: int, grants: int
) -> None:
    small_blocks(monkeypatch, block)
    monkeypatch.setattr(file.time, "time", lambda: 1_000_000.0)  # no help from the clock
    with Client(f"sqlite://{path}") as client:
        tokens = []
        for number in range(grants):
            with client.lock(f"n{number % 3}") as lease:
                tokens.append(lease.token)
        assert len(set(tokens)) == grants
        restored = disk.after_power_loss(tmp_path / "restored")
    boot(monkeypatch, "after the power cut")
    with Client(f"sqlite://{restored}") as client:
        for name in ("n0", "n1", "n2"):
            with client.lock(name, timeout=0) as lease:
                assert lease.token > max(tokens)
    if block < grants:
        assert disk.syncs > 2


def test_a_grant_that_waits_in_the_queue_reserves_as_well(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk
) -> None:
    small_blocks(monkeypatch, 3)
    monkeypatch.setattr(file.time, "time", lambda: 1_000_000.0)
    with Client(f"sqlite://{path}") as client:
        readers = client.rwlock("x").read()
        leases = [readers.acquire() for _ in range(20)]
        tokens = [lease.token for lease in leases]
        assert tokens == sorted(set(tokens))
        restored = disk.after_power_loss(tmp_path / "restored")
    boot(monkeypatch, "after the power cut")
    with Client(f"sqlite://{restored}") as client, client.lock("x", timeout=0) as lease:
        assert lease.token > max(tokens)


def test_a_file_restored_from_an_old_copy_goes_on_above_the_time_of_day(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(f"sqlite://{path}") as client, client.lock("x"):
        pass
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    with Client(f"sqlite://{path}") as client, client.lock("x") as lease:
        newest = lease.token
    shutil.copy(copy, path)
    boot(monkeypatch, "after the restore")
    with Client(f"sqlite://{path}") as client, client.lock("x") as lease:
        assert lease.token > newest


# The first moment ------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", range(3))
def test_any_number_of_processes_may_make_the_file_at_once(path: Path, attempt: int) -> None:
    def child(number: int) -> list[int]:
        tokens = []
        with Client(f"sqlite://{path}") as client:
            for name in ("x", f"mine-{number}"):
                with client.lock(name, timeout=60) as lease:
                    tokens.append(lease.token)
        return tokens

    tokens = [token for pair in in_forks(16, child) for token in pair]
    assert len(set(tokens)) == 32


def test_any_number_of_processes_may_come_first_after_a_boot(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(f"sqlite://{path}") as client, client.lock("x", ttl=3600) as lease:
        held = lease.token
    boot(monkeypatch, "the next boot")

    def child(number: int) -> int:
        with Client(f"sqlite://{path}") as client, client.lock("x", timeout=60) as lease:
            return lease.token

    tokens = in_forks(8, child)
    assert len(set(tokens)) == 8
    assert min(tokens) > held
