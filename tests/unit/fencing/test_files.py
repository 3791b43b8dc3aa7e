"""`fenced_write` and `fenced_read`: whole files, and what a crash at any step leaves."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from fencelock import BackendError, ConfigurationError, StaleToken
from fencelock.fencing import fenced_read, fenced_read_async, fenced_write, fenced_write_async, files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "report.csv"


def fence(path: Path) -> Path:
    return path.with_name(".report.csv.fence")


def test_the_rule(path: Path) -> None:
    for token in (5, 5, 2**63 - 1):
        fenced_write(path, f"by {token}".encode(), token)
    with pytest.raises(StaleToken) as raised:
        fenced_write(path, b"late", 7)
    assert (raised.value.resource, raised.value.newest) == (str(path), 2**63 - 1)
    assert path.read_bytes() == b"by 9223372036854775807"
    assert {entry.name for entry in path.parent.iterdir()} == {"report.csv", ".report.csv.fence"}


def test_reading_raises_the_mark(path: Path) -> None:
    fenced_write(path, b"first", 5)
    assert fenced_read(path, 7) == b"first"
    with pytest.raises(StaleToken):
        fenced_write(path, b"late", 6)
    with pytest.raises(StaleToken):
        fenced_read(path, 6)
    fenced_write(path, b"second", 7)
    assert path.read_bytes() == b"second"


def test_asyncio(path: Path) -> None:
    async def main() -> bytes:
        await fenced_write_async(path, b"first", 5)
        with pytest.raises(StaleToken):
            await fenced_write_async(path, b"late", 4)
        return await fenced_read_async(path, 5)

    assert asyncio.run(main()) == b"first"


def test_a_link_and_its_file_have_one_fence(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    fenced_write(link, b"first", 5)
    assert link.is_symlink()
    with pytest.raises(StaleToken):
        fenced_write(path, b"late", 4)
    assert path.read_bytes() == b"first"


def test_the_mode_stays(path: Path) -> None:
    path.write_bytes(b"old")
    path.chmod(0o640)
    fenced_write(path, b"new", 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("where", "data", "token", "words"),
    [
        ("report.csv", "text", 1, "data='text' is not bytes"),
        ("report.csv", b"", 0, "token=0 is out of range"),
        ("report.csv", b"", True, "token=True is not a whole number"),
        (".", b"", 1, "is a folder"),
        ("missing/report.csv", b"", 1, "is in a folder that is not there"),
        ("a\0b", b"", 1, "is not a path"),
        (None, b"", 1, "is not a path"),
    ],
)
def test_bad_input_changes_nothing(tmp_path: Path, where: Any, data: Any, token: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        fenced_write(os.path.join(tmp_path, where) if where else where, data, token)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there_cannot_be_read(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fenced_read(path, 1)


# Crashes ------------------------------------------------------------------------------------


class Crash(BaseException):
    pass


STEPS = ("open", "pwrite", "fsync", "rename")


def crash_at(monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Let the power go before step `number` that touches the disk; return the steps that were done."""
    done: list[str] = []

    def counting(name: str, original: Any) -> Any:
        def call(*args: Any, **terms: Any) -> Any:
            if len(done) == number:
                raise Crash
            done.append(name)
            return original(*args, **terms)

        return call

    for owner, name in ((os, "pwrite"), (os, "fsync"), (Path, "replace")):
        monkeypatch.setattr(owner, name, counting(name, getattr(owner, name)))
    return done


def test_a_crash_at_any_step_leaves_old_or_new_and_never_an_older_mark(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    for number in range(20):
        for leftover in path.parent.iterdir():
            leftover.unlink()
        fenced_write(path, b"old", 5)
        with monkeypatch.context() as patch:
            done = crash_at(patch, number)
            try:
                fenced_write(path, b"new", 6)
            except Crash:
                pass
            else:
                break
        found = path.read_bytes()
        seen.add(found)
        assert found == (b"new" if "replace" in done else b"old")
        if "pwrite" in done:
            with pytest.raises(StaleToken):
                fenced_write(path, b"late", 5)
        assert fenced_read(path, 6) == found
        fenced_write(path, b"next", 6)
        assert path.read_bytes() == b"next"
    assert done == ["pwrite", "fsync", "fsync", "replace", "fsync"], (
        "mark, draft and folder, each on disk in turn"
    )
    assert seen == {b"old", b"new"}


def test_a_mark_that_was_torn_leaves_the_one_before(path: Path) -> None:
    fenced_write(path, b"first", 5)
    fenced_write(path, b"second", 7)
    whole = fence(path).read_bytes()
    for place in (0, 1):
        for cut in range(files.RECORD):
            start = place * files.RECORD + cut
            torn = bytearray(whole)
            torn[start : (place + 1) * files.RECORD] = b"x" * (files.RECORD - cut)
            fence(path).write_bytes(torn)
            with pytest.raises(StaleToken) as raised:
                fenced_write(path, b"late", 4)
            assert raised.value.newest in {5, 7}


def test_a_mark_of_old_and_new_digits_is_not_believed(path: Path) -> None:
    fenced_write(path, b"first", 5)
    whole = fence(path).read_bytes()
    assert whole.count(b"0000000000000000005") == 1
    fence(path).write_bytes(whole.replace(b"0000000000000000005", b"0000000000000000945"))
    fenced_write(path, b"second", 6)
    assert path.read_bytes() == b"second"


def test_a_fence_that_is_damaged_lets_nothing_through(path: Path) -> None:
    fenced_write(path, b"first", 5)
    fence(path).write_bytes(b"x" * 2 * files.RECORD)
    with pytest.raises(BackendError, match=r"^file: .*\.report\.csv\.fence is damaged"):
        fenced_write(path, b"late", 9)
    assert path.read_bytes() == b"first"


def test_a_fence_whose_maker_died_over_it(path: Path) -> None:
    fence(path).write_bytes(b"00000")
    fenced_write(path, b"first", 5)
    with pytest.raises(StaleToken):
        fenced_write(path, b"late", 4)


def test_a_draft_that_a_crash_left_is_no_obstacle(path: Path) -> None:
    path.with_name(".report.csv.draft").write_bytes(b"half of it")
    fenced_write(path, b"whole", 5)
    assert path.read_bytes() == b"whole"
    assert not path.with_name(".report.csv.draft").exists()


def test_a_fence_that_was_deleted_while_somebody_waited(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fenced_write(path, b"first", 5)
    flock = files.fcntl.flock
    deleted = []

    def late(fd: int, how: int) -> None:
        if not deleted:
            deleted.append(fence(path).unlink())
        flock(fd, how)

    monkeypatch.setattr(files.fcntl, "flock", late)
    fenced_write(path, b"second", 6)
    assert fence(path).exists(), "it locked a file that nobody else can find"
    with pytest.raises(StaleToken):
        fenced_write(path, b"late", 5)
