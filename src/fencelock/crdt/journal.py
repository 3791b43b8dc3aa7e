"""What a replica knows between two runs, in one file.

    magic | version | check | size | whole state      frame  frame  frame …

The file begins with a whole state: written beside it, synced, renamed over it, so after a crash it is the old
file or the new one. Each change is then one frame at its end (see `tail.py`) and one sync. When the
frames outgrow the state, it is written whole again. A change costs what it changes, not what there is.

A file that is damaged is refused and left as it is. A frame that a crash has torn is left out: nobody was
told that it was kept. If the file is not as it was left here (an error in the middle, another file in its
place), the next change writes it whole.

A lock on a second file, `….lock`, keeps other processes away: two programs with one id would use the same
dots for different changes.
"""

from __future__ import annotations

import fcntl
import os
import struct
import weakref
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from fencelock.crdt import shape, tail
from fencelock.crdt.base import Crdt
from fencelock.crdt.codec import MAX_BYTES
from fencelock.crdt.exchange.directory import write_file
from fencelock.crdt.memory import Memory, Step
from fencelock.crdt.messages import CHECK, check_version, checked, seal
from fencelock.crdt.packing import Wrong, pack, unpack
from fencelock.errors import BackendUnavailable, ConfigurationError
from fencelock.names import shown

__all__ = ["Journal"]

C = TypeVar("C", bound=Crdt)
MAGIC = b"HFR"
VERSION = 1
SIZE = struct.Struct(">Q")
HEAD = len(MAGIC) + 1 + CHECK + SIZE.size
SHORT_TAIL = 2**16
"""Frames of so many bytes may always follow, however small the state is."""


@dataclass(frozen=True)
class End:
    """Where the next frame goes, if the file still is as it was left."""

    mark: bytes
    number: int
    inode: int
    size: int
    limit: int
    """The size that no frame may pass."""


class Journal(Generic[C]):
    """The file of one replica, and its lock."""

    def __init__(self, path: str | os.PathLike[str], name: str, kind: type[C]) -> None:
        """Take the lock; raise `BackendUnavailable` if another process has it."""
        try:
            self._path = Path(path).expanduser().absolute()
        except TypeError:
            raise ConfigurationError(f"path={shown(path)} is not a path") from None
        self._name, self._kind = name, kind
        self._end: End | None = None
        try:
            self._lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._failed(error) from error
        self.close = weakref.finalize(self, os.close, self._lock)
        """Give the lock back. In a forked child it stays with the parent."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise BackendUnavailable(
                backend="replica", detail=f"{self._path} is in use: give each process a file of its own"
            ) from error

    def load(self) -> Memory[C]:
        """Return what the file has; a new memory if there is none."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return Memory(self._kind(), self._kind())
        except OSError as error:
            raise self._failed(error) from error
        return checked(f"{self._path} is not the file of a replica", lambda: self._memory(data))

    def save(self, memory: Memory[C]) -> None:
        """Put a memory in the file's place."""
        tree = memory.tree()
        for part in tree:
            if type(part) is bytes and len(part) > MAX_BYTES:
                raise ConfigurationError(f"the value has {len(part)} bytes, {MAX_BYTES} are possible")
        body = pack((self._name, *tree))
        sized = SIZE.pack(len(body)) + body
        mark = seal(sized)
        data = MAGIC + bytes([VERSION]) + mark + sized
        self._end = None
        try:
            write_file(self._path, data, f".{self._path.name}.part")
            inode = self._path.stat().st_ino
        except OSError as error:
            raise self._failed(error) from error
        # Half of what can be read: the value that all frames make is then never too large to be written.
        limit = min(len(data) + max(len(data), SHORT_TAIL), MAX_BYTES // 2)
        self._end = End(mark, 0, inode, len(data), limit)

    def keep(self, memory: Memory[C], step: Step[C]) -> None:
        """Write the step that led to a memory, or the memory."""
        try:
            kept = self._append(pack(step.tree()))
        except OSError as error:
            raise self._failed(error) from error
        if not kept:
            self.save(memory)

    def _append(self, body: bytes) -> bool:
        """Add a frame to the file; return whether that was possible."""
        end = self._end
        if end is None:
            return False
        data = tail.frame(end.mark, end.number + 1, body)
        size = end.size + len(data)
        if size > end.limit:
            return False
        self._end = None  # until it is known that all of it is there
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            found = os.fstat(file)
            if (found.st_ino, found.st_size) != (end.inode, end.size):
                return False
            _write(file, data, end.size)
        finally:
            os.close(file)
        self._end = replace(end, number=end.number + 1, size=size)
        return True

    def _memory(self, data: bytes) -> Memory[C]:
        check_version(data, MAGIC, VERSION, HEAD)
        (size,) = SIZE.unpack(data[HEAD - SIZE.size : HEAD])
        mark = data[len(MAGIC) + 1 : len(MAGIC) + 1 + CHECK]
        if seal(data[HEAD - SIZE.size : HEAD + size]) != mark:
            raise Wrong("it is damaged: the check does not fit")
        name, *parts = shape.sequence(unpack(data[HEAD : HEAD + size]), 6)
        if name != self._name:
            raise Wrong(f"it belongs to {shown(name)}, not to {shown(self._name)}")
        memory = Memory.from_tree(tuple(parts), self._kind)
        changes = tail.bodies(mark, data[HEAD + size :])
        return memory.after(*(Step.from_tree(unpack(body), self._kind) for body in changes))

    def _failed(self, error: OSError) -> BackendUnavailable:
        detail = f"{self._path}: {(error.strerror or str(error)).lower()}"
        return BackendUnavailable(backend="replica", detail=detail, transient=False)


def _write(file: int, data: bytes, end: int) -> None:
    """Put data at the end of a file, and on the disk; what cannot be kept is cut off again."""
    try:
        while data:
            data = data[os.write(file, data) :]
        os.fsync(file)
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell
            os.ftruncate(file, end)
        raise
