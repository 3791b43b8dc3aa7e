"""Where a lock is kept: its place in the table and its bucket.

A place is namespace, NUL, name, as bytes: neither contains NUL, so no two locks share one, and bytes
are compared as they are, whatever the collation of the database. A bucket is one of 256 rows: it
is the latch of the places in it, and has the last token that was given to one of them.
"""

from __future__ import annotations

from zlib import crc32

__all__ = ["BUCKETS", "Place", "Places"]

BUCKETS = 256
CACHED = 1024


class Place:
    """A lock's place, also as it is written in a statement."""

    __slots__ = ("bucket", "raw", "word")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.bucket = crc32(raw) % BUCKETS
        self.word = literal(raw)


def literal(raw: bytes) -> str:
    """Return bytes as SQL reads them, whatever the session's character set and sql_mode."""
    return f"x'{raw.hex()}'"


class Places:
    """The places of all names of a namespace; those used lately are remembered."""

    def __init__(self, namespace: str) -> None:
        self._head = namespace.encode() + b"\0"
        self._known: dict[str, Place] = {}

    def find(self, name: str) -> Place:
        """Return the place of a name."""
        place = self._known.get(name)
        if place is None:
            place = Place(self._head + name.encode())
            if len(self._known) >= CACHED:
                self._known.clear()
            self._known[name] = place
        return place

    def between(self, prefix: str) -> tuple[str, str]:
        """Return the first place of names that begin with `prefix`, and the first one behind them."""
        start = self._head + prefix.encode()
        return literal(start), literal(start[:-1] + bytes([start[-1] + 1]))  # 255 is not in UTF-8

    def name_of(self, raw: bytes) -> str:
        """Return the name that a place of this namespace belongs to."""
        return raw[len(self._head) :].decode()
