"""A file that refuses old tokens: written as a whole, among processes of one host, whatever crashes when.

    fenced_write("report.csv", data, token=lease.token)      # StaleToken if a newer one was seen

Beside the file stands its fence, `.report.csv.fence`: a lock (`flock`) and the newest token in one. A write
takes the lock, compares, writes the token down, writes the data to a draft beside the file, and renames the
draft over it. Each step is on disk (`fsync`, of the folder too) before the next begins:

- a crash before the rename leaves the old data, with a mark that has risen: an older token is refused all
  the same;
- a reader sees the old data or the new, never a part;
- the token has two places with a checksum each, written in turn, so a write that was torn spoils the older
  one;
- a draft that a crash left is overwritten by the next write.

`fenced_read` compares and raises the mark before it reads. Begin with it: from then on nobody older can
write, so what was read stays true until you write.

Not promised: anything on a file system without a true `flock` or `rename` (some network file systems), and
anything against those who write the file themselves or delete its fence. A process that is stopped in the few
milliseconds of a write keeps the lock until it goes on or dies.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fencelock.errors import BackendError, ConfigurationError
from fencelock.fencing.rule import DIGITS, check_token, judge, padded
from fencelock.names import shown

__all__ = ["fenced_read", "fenced_read_async", "fenced_write", "fenced_write_async"]

RECORD = DIGITS + 10
"""The token, a space, its checksum in eight digits, the end of the line."""


def fenced_write(path: str | os.PathLike[str], data: bytes, token: int) -> None:
    """Replace a file as a whole and for good, or raise `StaleToken`. The folder must be there.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "report.csv")
        >>> fenced_write(path, b"new", token=1794966437913934)
        >>> fenced_write(path, b"old", token=1794966437913933)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        fencelock.errors.StaleToken: token 1794966437913933 for '...report.csv' is stale: ...934 was seen...
        >>> path.read_bytes()
        b'new'
    """
    check_token(token)
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ConfigurationError(f"data={shown(data)} is not bytes: encode it")
    target = _target(path)
    with _admitted(target, token):
        _replace(target, data)


def fenced_read(path: str | os.PathLike[str], token: int) -> bytes:
    """Return what the file has, and let no older token write from now on; or raise `StaleToken`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "report.csv")
        >>> fenced_write(path, b"new", token=1794966437913934)
        >>> fenced_read(path, token=1794966437913935)
        b'new'
    """
    check_token(token)
    target = _target(path)
    with _admitted(target, token):
        return target.read_bytes()


async def fenced_write_async(path: str | os.PathLike[str], data: bytes, token: int) -> None:
    """Do the same as `fenced_write`, on a thread. A cancelled call goes on there to its end."""
    await asyncio.to_thread(fenced_write, path, data, token)


async def fenced_read_async(path: str | os.PathLike[str], token: int) -> bytes:
    """Do the same as `fenced_read`, on a thread. A cancelled call goes on there to its end."""
    return await asyncio.to_thread(fenced_read, path, token)


# The steps ----------------------------------------------------------------------------------


def _target(path: str | os.PathLike[str]) -> Path:
    """Return the file itself: a link stays a link, and whoever comes by it meets the same fence."""
    try:
        target = Path(path).resolve()
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"path={shown(path)} is not a path: {error}") from None
    if target.is_dir() or not target.name:
        raise ConfigurationError(f"path={shown(path)} is a folder: give a file")
    if not target.parent.is_dir():
        raise ConfigurationError(f"path={shown(path)} is in a folder that is not there: make it before")
    return target


@contextmanager
def _admitted(target: Path, token: int) -> Iterator[None]:
    fence = target.with_name(f".{target.name}.fence")
    fd = _locked(fence)
    try:
        marks = _marks(fd, fence)
        judge(str(target), token, max(marks))
        if token > max(marks):
            _write_mark(fd, marks.index(min(marks)), token)
        yield
    finally:
        os.close(fd)  # and with it goes the lock


def _locked(fence: Path) -> int:
    """Open a fence and lock it; make it if it is not there."""
    while True:
        fd = os.open(fence, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_at(fd, fence):
                if os.fstat(fd).st_size < 2 * RECORD:
                    # New, or its maker died over it: nothing was let through yet.
                    _write_mark(fd, 0, 0)
                    _write_mark(fd, 1, 0)
                    _sync_folder(fence.parent)
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # somebody deleted it while we waited: that lock is no use


def _is_at(fd: int, fence: Path) -> bool:
    try:
        there = fence.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), there)


def _marks(fd: int, fence: Path) -> list[int]:
    """Return the tokens in both places; -1 where a write was torn."""
    text = os.pread(fd, 2 * RECORD, 0)
    marks = [_understood(text[start : start + RECORD]) for start in (0, RECORD)]
    if max(marks) < 0:
        detail = f"{fence} is damaged: if no holder is at work, delete it"
        raise BackendError(backend="file", detail=detail)
    return marks


def _understood(record: bytes) -> int:
    digits = record[:DIGITS]
    return int(digits) if record == _record(digits) and digits.isdigit() else -1


def _record(digits: bytes) -> bytes:
    return digits + b" %08x\n" % zlib.crc32(digits)


def _write_mark(fd: int, place: int, token: int) -> None:
    os.pwrite(fd, _record(padded(token).encode()), place * RECORD)
    os.fsync(fd)


def _replace(target: Path, data: bytes) -> None:
    draft = target.with_name(f".{target.name}.draft")
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if target.exists():
                os.fchmod(fd, stat.S_IMODE(target.stat().st_mode))
            os.fsync(fd)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
