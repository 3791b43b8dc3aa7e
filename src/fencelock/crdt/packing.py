"""Plain values as bytes and as JSON: the ground both encodings stand on.

A *tree* is None, a bool, a whole number of 64 bits, a finite float, a string, bytes, or a tuple of
trees. Each tree has exactly one binary form, and reading refuses every other, so equal bytes are
equal trees and the other way round:

    0x80 + n            the numbers 0 to 127
    0 1 2               None, False, True
    3 varint            other numbers, zigzag
    4 8 bytes           a float, big-endian
    5 varint, UTF-8     a string          6 varint, bytes      bytes
    7 varint, items     a tuple
    8 varint            a string of 3 to 64 bytes that stood before: the how-many-eth of those

In JSON a tuple is a list, and bytes are {"b": "base64"}; the rest is as JSON has it.

Reading is bounded: no more items than bytes, no deeper than `MAX_DEPTH`, so hostile input costs
little and ends in a `DecodeError`.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from typing import Any

from fencelock.errors import ConfigurationError
from fencelock.names import shown

__all__ = [
    "MAX_DEPTH",
    "MAX_ELEMENT_BYTES",
    "MAX_INTEGER",
    "DecodeError",
    "Tree",
    "from_plain",
    "pack",
    "to_plain",
    "unpack",
]

Tree = Any
MAX_DEPTH = 64
MAX_ELEMENT_BYTES = 2**20
MAX_INTEGER = 2**63 - 1
SHORTEST, LONGEST = 3, 64
"""Strings of so many bytes are written once: replica names, mostly."""
INLINE = 0x80
NONE, FALSE, TRUE, INTEGER, FLOAT, STRING, BYTES, TUPLE, AGAIN = range(9)


class DecodeError(ConfigurationError):
    """What was read is not an encoding of this, is damaged, or is of a newer version.

    Example:
        >>> from fencelock.crdt import GCounter
        >>> GCounter.from_bytes(b"garbage")
        Traceback (most recent call last):
        fencelock.crdt.packing.DecodeError: not the encoding of a GCounter: it does not begin with b'HFC'
    """

    def __init__(self, *, what: str, detail: str) -> None:
        super().__init__(f"{what}: {detail}")
        self.what = what
        self.detail = detail


class Wrong(Exception):
    """A form that cannot be; the message says why."""


# Writing ------------------------------------------------------------------------------------


def pack(tree: Tree) -> bytes:
    """Return the binary form of a tree; raise `ConfigurationError` for what is none."""
    out = bytearray()
    _put(out, tree, {}, 0)
    return bytes(out)


def _put(out: bytearray, tree: Tree, seen: dict[bytes, int], depth: int) -> None:
    kind = type(tree)
    if kind is int:
        _put_integer(out, tree)
    elif kind is str:
        _put_string(out, tree, seen)
    elif kind is tuple:
        if depth == MAX_DEPTH:
            raise ConfigurationError(
                f"value={shown(tree)} is nested too deeply: {MAX_DEPTH} levels are possible"
            )
        out.append(TUPLE)
        _put_size(out, len(tree))
        for item in tree:
            _put(out, item, seen, depth + 1)
    elif kind is bytes:
        out.append(BYTES)
        _put_size(out, len(tree))
        out += tree
    elif tree is None:
        out.append(NONE)
    elif kind is bool:
        out.append(TRUE if tree else FALSE)
    elif kind is float and math.isfinite(tree):
        out.append(FLOAT)
        out += struct.pack(">d", tree)
    else:
        raise ConfigurationError(
            f"value={shown(tree)} cannot be held: give None, a bool, a finite number, "
            "a string, bytes or a tuple of these"
        )


def _put_integer(out: bytearray, number: int) -> None:
    if 0 <= number < INLINE:
        out.append(INLINE | number)
    elif -MAX_INTEGER - 1 <= number <= MAX_INTEGER:
        out.append(INTEGER)
        _put_size(out, (number << 1) ^ (number >> 63))
    else:
        raise ConfigurationError(f"value={shown(number)} is out of range: give a whole number of 64 bits")


def _put_string(out: bytearray, text: str, seen: dict[bytes, int]) -> None:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(
            f"value={shown(text)} is not valid Unicode: it has a lone surrogate"
        ) from None
    if SHORTEST <= len(data) <= LONGEST:
        before = seen.get(data)
        if before is not None:
            out.append(AGAIN)
            _put_size(out, before)
            return
        seen[data] = len(seen)
    out.append(STRING)
    _put_size(out, len(data))
    out += data


def _put_size(out: bytearray, size: int) -> None:
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    out.append(size)


# Reading ------------------------------------------------------------------------------------


def unpack(data: bytes) -> Tree:
    """Return the tree of a binary form; raise `Wrong` for what is none."""
    reader = Reader(data)
    try:
        tree = reader.tree(0)
    except IndexError:
        raise Wrong("it ends too early") from None
    if reader.place != len(data):
        raise Wrong("something follows its end")
    return tree


class Reader:
    """Reads one tree; an `IndexError` means that the bytes have come to their end."""

    __slots__ = ("_data", "_strings", "_texts", "place")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._strings: list[str] = []
        self._texts: set[str] = set()
        self.place = 0

    def tree(self, depth: int) -> Tree:
        tag = self._data[self.place]
        self.place += 1
        if tag >= INLINE:
            return tag - INLINE
        if tag == STRING:
            return self._string()
        if tag == AGAIN:
            return self._again()
        if tag == TUPLE:
            return self._tuple(depth)
        if tag == INTEGER:
            return self._integer()
        if tag == BYTES:
            return self._take(self._size())
        if tag == FLOAT:
            return self._float()
        if tag <= TRUE:
            return (None, False, True)[tag]
        raise Wrong(f"{tag} is no sort of value")

    def _tuple(self, depth: int) -> Tree:
        size = self._size()
        if depth == MAX_DEPTH:
            raise Wrong(f"it is nested deeper than {MAX_DEPTH} levels")
        if size > len(self._data) - self.place:
            raise Wrong("it ends too early")
        return tuple([self.tree(depth + 1) for _ in range(size)])

    def _string(self) -> str:
        data = self._take(self._size())
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise Wrong("a string is not UTF-8") from None
        if SHORTEST <= len(data) <= LONGEST:
            if text in self._texts:
                raise Wrong("a string is written out twice")
            self._texts.add(text)
            self._strings.append(text)
        return text

    def _again(self) -> str:
        place = self._size()
        if place >= len(self._strings):
            raise Wrong("it refers to a string that it does not have")
        return self._strings[place]

    def _integer(self) -> int:
        size = self._size()
        number = (size >> 1) ^ -(size & 1)
        if 0 <= number < INLINE:
            raise Wrong("a number is not in its shortest form")
        return number

    def _float(self) -> float:
        (number,) = struct.unpack(">d", self._take(8))
        if not math.isfinite(number):
            raise Wrong("a number is not finite")
        return float(number)

    def _take(self, size: int) -> bytes:
        end = self.place + size
        if end > len(self._data):
            raise Wrong("it ends too early")
        taken = self._data[self.place : end]
        self.place = end
        return taken

    def _size(self) -> int:
        size = shift = 0
        while True:
            byte = self._data[self.place]
            self.place += 1
            size |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 63:
                raise Wrong("a number has more than 64 bits")
        if (not byte and shift) or size >> 64:
            raise Wrong("a number is not in its shortest form")
        return size


# JSON ---------------------------------------------------------------------------------------


def to_plain(tree: Tree) -> Any:
    """Return a tree as `json.dumps` takes it."""
    if type(tree) is tuple:
        return [to_plain(item) for item in tree]
    if type(tree) is bytes:
        return {"b": base64.b64encode(tree).decode()}
    return tree


def from_plain(plain: Any, depth: int = 0) -> Tree:
    """Return the tree of what `json.loads` gave; raise `Wrong` for what is none."""
    kind = type(plain)
    if kind is list:
        if depth == MAX_DEPTH:
            raise Wrong(f"it is nested deeper than {MAX_DEPTH} levels")
        return tuple([from_plain(item, depth + 1) for item in plain])
    if kind is not dict:
        return plain
    if plain.keys() != {"b"} or type(plain["b"]) is not str:
        raise Wrong('an object is not {"b": …}')
    try:
        found = base64.b64decode(plain["b"].encode(), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise Wrong("bytes are not base64") from None
    if to_plain(found) != plain:  # the last character has bits to spare
        raise Wrong("bytes are not base64 in its usual form")
    return found
