"""What a replica knows between two runs, in one file; and what it sends, in one message.

Both are sealed: magic, version, check sum, then plain values (see `packing.py`). A file that is
damaged is refused and left as it is.

The file is written anew with each change: beside it, synced, renamed over it. After a crash it is the
old one or the new one. A lock on a second file, `….lock`, keeps other processes away: two programs
with one id would use the same dots for different changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from holdfast.crdt import shape
from holdfast.crdt.base import Crdt
from holdfast.crdt.clocks import counts_from_tree, counts_tree
from holdfast.crdt.codec import MAX_BYTES, from_bytes
from holdfast.crdt.exchange.base import Record, record_from
from holdfast.crdt.exchange.directory import write_file
from holdfast.crdt.packing import DecodeError, Tree, Wrong, pack, unpack
from holdfast.errors import BackendUnavailable, ConfigurationError
from holdfast.names import shown
from holdfast.runtime.ids import new_id

__all__ = ["Journal", "Memory", "message", "opened"]

C = TypeVar("C", bound=Crdt)
T = TypeVar("T")
FILE, MESSAGE = b"HFR", b"HFM"
VERSION = 1
CHECK = 16


@dataclass(frozen=True)
class Memory(Generic[C]):
    """All that a replica must not forget."""

    value: C
    """The value, with all that was merged."""
    outgoing: C
    """What was changed here and may not have been sent yet."""
    id: str = field(default_factory=new_id)
    """Who this replica is: drawn when the file was made."""
    seq: int = 0
    """The last number that a record was, or was about to be, written under."""
    seen: dict[str, int] = field(default_factory=dict)
    """Up to which record of each other replica all is merged."""


class Journal(Generic[C]):
    """The file of one replica, and its lock."""

    def __init__(self, path: str | os.PathLike[str], name: str, kind: type[C]) -> None:
        """Take the lock; raise `BackendUnavailable` if another process has it."""
        try:
            self._path = Path(path).expanduser().absolute()
        except TypeError:
            raise ConfigurationError(f"path={shown(path)} is not a path") from None
        self._name, self._kind = name, kind
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
            with self._path.open("rb") as file:
                data = file.read(2 * MAX_BYTES)
        except FileNotFoundError:
            return Memory(self._kind(), self._kind())
        except OSError as error:
            raise self._failed(error) from error
        return _read(data, FILE, f"{self._path} is not the file of a replica", self._memory)

    def save(self, memory: Memory[C]) -> None:
        """Put a memory in the file's place."""
        tree = (
            *(self._name, memory.id, memory.seq, counts_tree(memory.seen)),
            *(memory.value.to_bytes(), memory.outgoing.to_bytes()),
        )
        try:
            write_file(self._path, _sealed(FILE, tree), f".{self._path.name}.part")
        except OSError as error:
            raise self._failed(error) from error

    def _memory(self, tree: Tree) -> Memory[C]:
        name, own, seq, seen, value, outgoing = shape.sequence(tree, 6)
        if name != self._name:
            raise Wrong(f"it belongs to {shown(name)}, not to {shown(self._name)}")
        if type(value) is not bytes or type(outgoing) is not bytes or record_from(f"{own}-0.whole") is None:
            raise Wrong("a part has the wrong shape")
        kept = from_bytes(value, self._kind), from_bytes(outgoing, self._kind)
        return Memory(*kept, own, shape.number(seq, 0), counts_from_tree(seen))

    def _failed(self, error: OSError) -> BackendUnavailable:
        detail = f"{self._path}: {(error.strerror or str(error)).lower()}"
        return BackendUnavailable(backend="replica", detail=detail, transient=False)


def message(name: str, record: Record, value: Crdt) -> bytes:
    """Return the body of a record."""
    return _sealed(MESSAGE, (name, record.label(), value.to_bytes()))


def opened(body: bytes, name: str, record: Record, kind: type[C]) -> C:
    """Return the value of a record's body; raise `DecodeError` for any other body."""

    def value_of(tree: Tree) -> C:
        named, label, value = shape.sequence(tree, 3)
        if (named, label) != (name, record.label()) or type(value) is not bytes:
            raise Wrong("it is that of another record")
        return from_bytes(value, kind)

    return _read(body, MESSAGE, f"record {record.label()} of {shown(name)} cannot be read", value_of)


def _sealed(magic: bytes, tree: Tree) -> bytes:
    body = pack(tree)
    return magic + bytes([VERSION]) + hashlib.blake2b(body, digest_size=CHECK).digest() + body


def _read(data: bytes, magic: bytes, what: str, made: Callable[[Tree], T]) -> T:
    head = len(magic) + 1 + CHECK
    try:
        if data[: len(magic)] != magic or len(data) < head:
            raise Wrong(f"it does not begin with {magic!r}")
        if data[len(magic)] > VERSION:
            raise Wrong(f"it is of version {data[len(magic)]}, this holdfast reads up to {VERSION}: upgrade")
        body = data[head:]
        if hashlib.blake2b(body, digest_size=CHECK).digest() != data[head - CHECK : head]:
            raise Wrong("it is damaged: the check does not fit")
        return made(unpack(body))
    except (Wrong, DecodeError) as error:
        raise DecodeError(what=what, detail=str(error)) from None
