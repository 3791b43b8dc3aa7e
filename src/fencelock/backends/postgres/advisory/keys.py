"""Names as PostgreSQL's advisory locks take them, and as the slots show them.

The key is a digest of the whole place, which is namespace, a zero byte, and name, in UTF-8 (`keys.py`). Two
names whose digests met would block each other, no more: that takes some billions of names in use at once.
"""

from __future__ import annotations

from typing import NamedTuple

from fencelock.backends.postgres.keys import advisory_key

__all__ = ["Key", "Keys"]

REMEMBERED = 1024


class Key(NamedTuple):
    """A name's key, as the server takes it, and its place."""

    number: bytes
    place: bytes


class Keys:
    """The keys of a namespace's names."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._prefix = namespace.encode() + b"\0"
        self._known: dict[str, Key] = {}

    def find(self, name: str) -> Key:
        """Return the key of a name."""
        key = self._known.get(name)
        if key is None:
            key = Key(b"%d" % advisory_key(self._namespace, name), self._prefix + name.encode())
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[name] = key
        return key

    def range_of(self, prefix: str) -> tuple[bytes, bytes]:
        """Return between which places all names with this prefix lie. No UTF-8 has a byte 0xff."""
        start = self._prefix + prefix.encode()
        return start, start + b"\xff"

    def name_of(self, place: bytes) -> str:
        """Return the name of a place."""
        return place[len(self._prefix) :].decode()
