"""What a replica sends: one value, sealed, with the record that it is the body of.

Sealed is: magic, version, check sum, then plain values (see `packing.py`). A body that is damaged, or that
stands under another record than its own, is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeVar

from fencelock.crdt import shape
from fencelock.crdt.base import Crdt
from fencelock.crdt.codec import from_bytes
from fencelock.crdt.exchange.base import Record
from fencelock.crdt.packing import DecodeError, Wrong, pack, unpack
from fencelock.names import shown

__all__ = ["CHECK", "check_version", "checked", "message", "opened", "seal"]

C = TypeVar("C", bound=Crdt)
T = TypeVar("T")
MAGIC = b"HFM"
VERSION = 1
CHECK = 16


def message(name: str, record: Record, value: Crdt) -> bytes:
    """Return the body of a record."""
    body = pack((name, record.label(), value.to_bytes()))
    return MAGIC + bytes([VERSION]) + seal(body) + body


def opened(body: bytes, name: str, record: Record, kind: type[C]) -> C:
    """Return the value of a record's body; raise `DecodeError` for any other body."""
    head = len(MAGIC) + 1 + CHECK

    def value_of() -> C:
        check_version(body, MAGIC, VERSION, head)
        if seal(body[head:]) != body[head - CHECK : head]:
            raise Wrong("it is damaged: the check does not fit")
        named, label, value = shape.sequence(unpack(body[head:]), 3)
        if (named, label) != (name, record.label()) or type(value) is not bytes:
            raise Wrong("it is that of another record")
        return from_bytes(value, kind)

    return checked(f"record {record.label()} of {shown(name)} cannot be read", value_of)


def seal(body: bytes) -> bytes:
    """Return the check sum of something."""
    return hashlib.blake2b(body, digest_size=CHECK).digest()


def check_version(data: bytes, magic: bytes, newest: int, head: int) -> None:
    """Raise `Wrong` unless this is the head of something that can be read."""
    if data[: len(magic)] != magic or len(data) < head:
        raise Wrong(f"it does not begin with {magic!r}")
    version = data[len(magic)]
    if version > newest:
        raise Wrong(f"it is of version {version}, this fencelock reads up to {newest}: upgrade")


def checked(what: str, made: Callable[[], T]) -> T:
    """Return what was read; raise `DecodeError`, with what it was to be, if it is wrong."""
    try:
        return made()
    except (Wrong, DecodeError) as error:
        raise DecodeError(what=what, detail=str(error)) from None
