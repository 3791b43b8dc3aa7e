"""Files that cannot be used: each is a `BackendError` that says what is wrong, and nothing is changed."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fencelock import (
    AcquireTimeout,
    AsyncClient,
    BackendError,
    BackendUnavailable,
    Client,
    ConfigurationError,
    FencelockError,
)
from fencelock.backends.sqlite import place
from fencelock.testing.conformance.expect import took
from unit.support import in_fork, until

NOBODY = 65534


def fails(url: str | Path, error: type[FencelockError], *words: str) -> None:
    """Every call on this file raises the error, at once, in one line."""
    with Client(f"sqlite://{url}") as client:
        lock = client.lock("x", timeout=30)
        calls: list[Callable[[], object]] = [
            lock.acquire,
            lock.try_acquire,
            lambda: client.inspect("x"),
            client.list,
            lambda: client.force_release("x"),
        ]
        before = time.monotonic()
        for call in calls:
            with pytest.raises(error) as caught:
                call()
            message = str(caught.value)
            assert "\n" not in message
            assert not isinstance(caught.value, AcquireTimeout)
            for word in words:
                assert word in message
        assert time.monotonic() - before < 10


# Not ours --------------------------------------------------------------------------------


def test_a_file_that_is_not_a_database(path: Path) -> None:
    path.write_bytes(b"just some text, long enough to have a header" * 100)
    before = path.read_bytes()
    fails(path, BackendError, str(path), "not a sound SQLite database")
    assert path.read_bytes() == before
    assert sorted(p.name for p in path.parent.iterdir()) == ["locks.db"]


def test_a_database_that_is_cut_off(path: Path, client: Client) -> None:
    with client.lock("x"):
        pass
    client.close()
    path.write_bytes(path.read_bytes()[:5000])
    fails(path, BackendError, str(path))


def test_the_database_of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE customers (name)")
        db.execute("INSERT INTO customers VALUES ('Ada')")
        db.commit()
    before = path.read_bytes()
    fails(path, BackendError, str(path), "another program")
    assert path.read_bytes() == before


def test_a_file_of_a_newer_fencelock(path: Path, client: Client, operator: Callable[[str], Any]) -> None:
    with client.lock("x"):
        pass
    client.close()
    operator("PRAGMA user_version = 99")
    before = path.read_bytes()
    fails(path, BackendError, "newer fencelock", "99", "upgrade")
    assert path.read_bytes() == before


def test_an_empty_file_is_taken_over(path: Path, client: Client) -> None:
    path.touch()
    with client.lock("x"):
        pass


# Not there -------------------------------------------------------------------------------


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    fails(tmp_path / "none" / "locks.db", BackendUnavailable, "does not exist", "make it")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing_and_may_be_made(tmp_path: Path) -> None:
    with Client(f"sqlite://{tmp_path}/a/b/locks.db?mkdir=yes") as client, client.lock("x"):
        pass
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    fails(tmp_path, BackendUnavailable, "is a folder")


@pytest.mark.parametrize("mkdir", ["no", "yes"])
def test_a_folder_that_is_a_file(tmp_path: Path, mkdir: str) -> None:
    (tmp_path / "file").touch()
    fails(f"{tmp_path}/file/locks.db?mkdir={mkdir}", BackendUnavailable, "file")
    fails(f"{tmp_path}/file/sub/locks.db?mkdir={mkdir}", BackendUnavailable, "file")


def test_a_path_that_is_too_long(tmp_path: Path) -> None:
    fails(tmp_path / ("x" * 300), BackendUnavailable)


def test_a_file_on_a_network_file_system(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "file_system", lambda folder: "nfs4")
    with Client(f"sqlite://{path}") as client, pytest.raises(ConfigurationError) as caught:
        client.lock("x").acquire()
    for word in (str(path), "network file system (nfs4)", "local path"):
        assert word in str(caught.value)
    assert not path.exists()


# Not allowed -----------------------------------------------------------------------------


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that nobody may enter, unlike pytest's."""
    assert os.geteuid() == 0, "this test changes its user: run the tests as root"
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_nobody(call: Callable[[], object]) -> tuple[str, str]:
    def child() -> list[str]:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            call()
        except Exception as error:
            return [type(error).__name__, str(error)]
        return ["nothing", ""]

    kind, message = in_fork(child)
    return kind, message


def use(url: str) -> Callable[[], object]:
    def go() -> None:
        with Client(url) as client, client.lock("x", timeout=5):
            pass

    return go


@pytest.mark.root
def test_a_file_that_may_not_be_written(open_folder: Path) -> None:
    url = f"sqlite://{open_folder}/locks.db"
    use(url)()
    before = (open_folder / "locks.db").read_bytes()
    kind, message = as_nobody(use(url))
    assert kind == "BackendUnavailable"
    assert "permissions" in message
    assert (open_folder / "locks.db").read_bytes() == before


@pytest.mark.root
def test_a_folder_in_which_no_file_may_be_made(open_folder: Path) -> None:
    kind, message = as_nobody(use(f"sqlite://{open_folder}/locks.db"))
    assert kind == "BackendUnavailable"
    assert "permissions" in message


@pytest.mark.parametrize("mkdir", ["no", "yes"])
@pytest.mark.root
def test_a_folder_that_may_not_be_entered(open_folder: Path, mkdir: str) -> None:
    (open_folder / "private").mkdir(mode=0o700)
    kind, _ = as_nobody(use(f"sqlite://{open_folder}/private/locks.db?mkdir={mkdir}"))
    assert kind == "BackendUnavailable"
    kind, _ = as_nobody(use(f"sqlite://{open_folder}/private/sub/locks.db?mkdir={mkdir}"))
    assert kind == "BackendUnavailable"


@pytest.mark.root
def test_a_file_system_that_is_mounted_read_only(mounted: Callable[..., Path]) -> None:
    folder = mounted("-t", "tmpfs", "tmpfs")
    use(f"sqlite://{folder}/locks.db")()
    before = (folder / "locks.db").read_bytes()
    mounted("-o", "remount,ro")
    fails(folder / "locks.db", BackendUnavailable, "locks.db")
    fails(folder / "new.db", BackendUnavailable, "new.db")
    assert (folder / "locks.db").read_bytes() == before
    assert not (folder / "new.db").exists()


# Full ------------------------------------------------------------------------------------


def fill(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 4096, 512, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue
    return filler


@pytest.mark.root
def test_a_full_disk(mounted: Callable[..., Path]) -> None:
    folder = mounted("-t", "tmpfs", "-o", "size=256k", "tmpfs")
    with Client(f"sqlite://{folder}/locks.db") as client, Client(f"sqlite://{folder}/new.db") as fresh:
        held = client.lock("held", ttl=60).acquire()
        given_back = client.lock("given back", ttl=60).acquire()
        filler = fill(folder)

        for call in (
            client.lock("x", timeout=30).acquire,
            client.lock("x").try_acquire,
            client.lock("held", timeout=30).acquire,
            fresh.lock("x").acquire,
        ):
            before = time.monotonic()
            with pytest.raises(BackendUnavailable, match=r"disk is full|cannot be opened|failed"):
                call()
            assert time.monotonic() - before < 10
        with pytest.raises(BackendUnavailable):
            given_back.release()
        assert held.is_held()
        assert not given_back.is_held()
        assert [entry.owner for entry in client.inspect("held").holders] == [held.owner]

        filler.unlink()
        assert held.verify()
        assert client.inspect("x").is_free
        assert until(lambda: client.inspect("given back").is_free)
        with client.lock("x") as lease:
            assert lease.token > given_back.token
        held.release()


# Busy ------------------------------------------------------------------------------------


@pytest.fixture
def stopped(path: Path, client: Client) -> Iterator[sqlite3.Connection]:
    """Another process that was stopped in the middle of a step: it has the write lock."""
    with client.lock("x"):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        yield db


@pytest.mark.timing
def test_a_locked_file_is_unavailable_by_the_deadline_and_not_a_timeout(
    client: Client, stopped: sqlite3.Connection
) -> None:
    before = time.monotonic()
    with pytest.raises(BackendUnavailable, match="locked by another process") as caught:
        client.lock("y", timeout=0.5).acquire()
    waited = time.monotonic() - before
    stopped.execute("ROLLBACK")
    assert caught.value.transient
    assert client.inspect("y").is_free
    took(0.4, waited, 2.0, "one deadline covers the whole call: it")


@pytest.mark.timing
def test_a_try_on_a_locked_file_ends_by_the_limit_of_one_step(
    client: Client, stopped: sqlite3.Connection
) -> None:
    before = time.monotonic()
    with pytest.raises(BackendUnavailable):
        client.lock("y").try_acquire()
    waited = time.monotonic() - before
    stopped.execute("ROLLBACK")
    took(0.0, waited, 7.0, "the try")


@pytest.mark.timing
def test_under_asyncio_a_locked_file_is_unavailable_by_the_deadline(
    path: Path, client: Client, stopped: sqlite3.Connection
) -> None:
    async def main() -> float:
        async with AsyncClient(f"sqlite://{path}") as aio:
            before = time.monotonic()
            with pytest.raises(BackendUnavailable):
                await aio.lock("y", timeout=0.5).acquire()
            waited = time.monotonic() - before
            stopped.execute("ROLLBACK")
            return waited

    took(0.4, asyncio.run(main()), 2.0, "the call")


def test_a_short_lock_is_waited_out(path: Path, client: Client) -> None:
    with client.lock("x"):
        pass
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as db:
        db.execute("BEGIN EXCLUSIVE")
        timer = threading.Timer(0.2, lambda: db.execute("ROLLBACK"))
        timer.start()
        with client.lock("y", timeout=20) as lease:
            assert lease.is_held()
        timer.join()


def test_readers_are_not_kept_by_a_locked_file(client: Client, stopped: sqlite3.Connection) -> None:
    assert client.inspect("x").is_free
