"""The disk of `make chaos`: after its power has failed a file is what it was when it was last synced."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.disk import Disk, Disks

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disks]:
    assert os.geteuid() == 0, "these tests mount a file system: run the tests as root"
    with contextlib.closing(Disks(tmp_path_factory.mktemp("run"))) as disks:
        yield disks


@pytest.fixture
def place(disks: Disks) -> Path:
    return disks.place("one")


@pytest.fixture
def disk(disks: Disks, place: Path) -> Iterator[Disk]:
    disk = disks.by_name["one"]
    yield disk
    disk.fill(False)
    disk.settle()


def write(file: Path, data: bytes, at: int = 0, *, sync: bool = False, flags: int = 0) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    try:
        assert os.pwrite(fd, data, at) == len(data)
        if sync:
            os.fdatasync(fd)
    finally:
        os.close(fd)


def lose(disk: Disk) -> dict[str, int]:
    """How much each file lost, by its last name."""
    return {Path(path).name: lost for path, lost in disk.lose().items()}


def test_what_was_written_after_the_sync_is_lost(disk: Disk, place: Path) -> None:
    file = place / "log"
    write(file, b"first", sync=True)
    write(file, b"other")
    assert file.read_bytes() == b"other"
    assert lose(disk) == {"log": 5}
    assert file.read_bytes() == b"first"


def test_what_was_synced_is_never_lost(disk: Disk, place: Path) -> None:
    write(place / "log", b"first")
    write(place / "log", b" second", 5, sync=True)
    assert lose(disk) == {}
    assert (place / "log").read_bytes() == b"first second"


def test_appended_bytes_are_lost_and_the_length_with_them(disk: Disk, place: Path) -> None:
    write(place / "log", b"a" * 5000, sync=True)
    write(place / "log", b"b" * 9000, 5000)
    write(place / "log", b"c" * 10, 4995)
    assert lose(disk) == {"log": 9005}
    assert (place / "log").read_bytes() == b"a" * 5000


def test_only_the_blocks_since_the_last_sync_are_put_back(disk: Disk, place: Path) -> None:
    file = place / "log"
    write(file, b"a" * 20000, sync=True)
    write(file, b"b" * 100, 4090, sync=True)
    write(file, b"c" * 100, 4090)
    write(file, b"d" * 100, 12000)
    write(file, b"e" * 100, 4090)
    assert lose(disk) == {"log": 200}
    assert file.read_bytes() == b"a" * 4090 + b"b" * 100 + b"a" * 15810


@pytest.mark.parametrize("how", ["truncate", "open", "cut and grown"])
def test_what_was_cut_off_comes_back(disk: Disk, place: Path, how: str) -> None:
    file = place / "log"
    content = bytes(range(256)) * 40
    write(file, content, sync=True)
    if how == "open":
        file.write_bytes(b"")
    else:
        os.truncate(file, 100)
    if how == "cut and grown":
        os.truncate(file, 20000)
        write(file, b"new", 5000)
    assert lose(disk)["log"] > 0
    assert file.read_bytes() == content


def test_room_that_was_allocated_is_lost(disk: Disk, place: Path) -> None:
    write(place / "log", b"first", sync=True)
    with (place / "log").open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 20)
    assert (place / "log").stat().st_size == 1 << 20
    assert lose(disk) == {"log": (1 << 20) - 5}
    assert (place / "log").read_bytes() == b"first"


def test_a_new_file_keeps_its_name_only(disk: Disk, place: Path) -> None:
    write(place / "new", b"never synced")
    assert lose(disk) == {"new": 12}
    assert (place / "new").read_bytes() == b""


@pytest.mark.parametrize("sync", [True, False])
def test_replaced_by_a_rename(disk: Disk, place: Path, sync: bool) -> None:
    """The usual way to replace a file needs its fsync: without, neither content is left."""
    write(place / "file", b"old", sync=True)
    write(place / "draft", b"new", sync=sync)
    (place / "draft").rename(place / "file")
    assert lose(disk) == ({} if sync else {"file": 3})
    assert [one.name for one in place.iterdir()] == ["file"]
    assert (place / "file").read_bytes() == (b"new" if sync else b"")


def test_a_file_that_was_removed_stays_away(disk: Disk, place: Path) -> None:
    """Also while somebody writes to it still; and its number may be that of another file afterwards."""
    write(place / "old", b"old", sync=True)
    with (place / "old").open("r+b", buffering=0) as file:
        (place / "old").unlink()
        file.write(b"NEW")
        write(place / "next", b"next", sync=True)
    assert lose(disk) == {}
    assert [one.name for one in place.iterdir()] == ["next"]
    assert (place / "next").read_bytes() == b"next"


@pytest.mark.parametrize("flag", [os.O_SYNC, os.O_DSYNC])
def test_written_in_step(disk: Disk, place: Path, flag: int) -> None:
    write(place / "log", b"durable at once", flags=flag)
    assert lose(disk) == {}
    assert (place / "log").read_bytes() == b"durable at once"


def test_written_past_the_cache(disk: Disk, place: Path) -> None:
    page = mmap.mmap(-1, 4096)
    page[:] = b"x" * 4096
    for wanted in ({}, {"log": 4096}):
        fd = os.open(place / "log", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        os.pwrite(fd, page, 4096 if wanted else 0)
        if not wanted:
            os.fsync(fd)
        os.close(fd)
        assert lose(disk) == wanted
    assert (place / "log").read_bytes() == b"x" * 4096


def test_appended_in_turn(disk: Disk, place: Path) -> None:
    for number in range(3):
        write(place / "log", f"{number}".encode(), flags=os.O_APPEND, sync=number < 2)
    assert (place / "log").read_bytes() == b"012"
    assert lose(disk) == {"log": 1}
    assert (place / "log").read_bytes() == b"01"


def test_mapped(disk: Disk, place: Path) -> None:
    """A map sees what is written, msync makes it durable, and what was only mapped is lost."""
    write(place / "log", b"a" * 8192, sync=True)
    with (place / "log").open("r+b") as file, mmap.mmap(file.fileno(), 8192) as view:
        write(place / "log", b"written", 10, sync=True)
        assert view[10:17] == b"written"
        view[100:106] = b"mapped"
        view.flush()
        view[4100:4104] = b"lost"
    assert lose(disk) == {"log": 4}
    kept = (place / "log").read_bytes()
    assert (kept[10:17], kept[100:106], kept[4100:4104]) == (b"written", b"mapped", b"aaaa")


def test_settled_is_durable(disk: Disk, disks: Disks, place: Path) -> None:
    write(place / "log", b"by and by")
    disks.settle()
    assert lose(disk) == {}
    assert (place / "log").read_bytes() == b"by and by"


def test_an_fsync_of_a_folder_is_none_of_its_files(disk: Disk, place: Path) -> None:
    write(place / "log", b"first")
    fd = os.open(place, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    assert lose(disk) == {"log": 5}


def test_a_disk_that_fails_takes_writes_and_syncs_none(disk: Disk, place: Path) -> None:
    write(place / "log", b"first", sync=True)
    errors: list[int | None] = []

    def work() -> None:
        try:
            write(place / "log", b"later", sync=True)
        except OSError as error:
            errors.append(error.errno)

    worker = threading.Thread(target=work)
    with disk.failing():
        worker.start()
        worker.join(0.2)
        assert worker.is_alive()
        assert (place / "log").read_bytes() == b"later"
    worker.join(10)
    assert errors == [errno.EIO]
    assert lose(disk) == {"log": 5}
    assert (place / "log").read_bytes() == b"first"
    write(place / "log", b"again", sync=True)
    assert lose(disk) == {}


def test_nobody_waits_for_ever(disk: Disk, place: Path) -> None:
    """Whoever waits in the kernel cannot be killed: it must go on although nobody ever says so."""
    with disk.failing(), pytest.raises(OSError) as caught:
        write(place / "log", b"first", sync=True)
    assert caught.value.errno == errno.EIO
    assert lose(disk) == {"log": 5}


def test_full(disk: Disk, place: Path) -> None:
    write(place / "log", b"first", sync=True)
    (place / "away").touch()
    disk.fill(True)
    for harm in (
        lambda: write(place / "log", b"second"),
        lambda: write(place / "new", b"x"),
        (place / "folder").mkdir,
        lambda: os.truncate(place / "log", 100),
    ):
        with pytest.raises(OSError) as caught:
            harm()
        assert caught.value.errno == errno.ENOSPC
    (place / "away").unlink()
    assert (place / "log").read_bytes() == b"first"
    assert os.statvfs(place).f_bavail == 0
    disk.fill(False)
    write(place / "log", b"second")
    assert sorted(one.name for one in place.iterdir()) == ["log"]
    assert (place / "log").read_bytes() == b"second"


def test_a_file_belongs_to_its_maker(disk: Disk, place: Path) -> None:
    place.chmod(0o777)
    # In a shell: this account may not be able to read the Python that runs the tests.
    script = "umask 027 && mkdir theirs && : > theirs/f"
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script]
    subprocess.run(command, check=True, cwd=place)
    about = (place / "theirs" / "f").stat()
    assert (about.st_uid, about.st_gid, about.st_mode & 0o777) == (65534, 65534, 0o640)
    assert lose(disk) == {}


WRITER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode = WAL")
db.execute(f"PRAGMA synchronous = {sys.argv[2]}")
db.execute("CREATE TABLE t (n INTEGER)")
number = 0
while True:
    db.execute("INSERT INTO t VALUES (?)", (number,))
    print(number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("level", ["FULL", "OFF"])
def test_a_database_keeps_what_it_has_synced(disk: Disk, place: Path, level: str) -> None:
    """A commit that was told survives with `synchronous = FULL`; that it is lost without shows the teeth."""
    file = place / "t.db"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, file, level], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    told = [int(writer.stdout.readline()) for _ in range(50)]
    with disk.failing():
        os.kill(writer.pid, signal.SIGKILL)
    told += [int(line) for line in writer.communicate()[0].splitlines()]
    lost = lose(disk)
    with contextlib.closing(sqlite3.connect(file)) as db:
        try:
            kept = [number for (number,) in db.execute("SELECT n FROM t ORDER BY n")]
        except sqlite3.DatabaseError:  # not even the table
            kept = []
    if level == "FULL":
        assert set(told) <= set(kept)
    else:
        assert lost["t.db-wal"] > 0
        assert not set(told) <= set(kept)
