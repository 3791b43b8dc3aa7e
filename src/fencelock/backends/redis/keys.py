"""Where a lock lives: names become keys, and no two names meet.

    fencelock:{17}                   the last token of bucket 17
    fencelock:{17}:namespace:name    a lock in use, while it is

A name belongs to one of 256 buckets by its hash. What is in braces decides the slot of a Cluster, so a
lock and its counter are always on the same node; and there are no more counters than buckets,
however many names are ever used. The namespace has no colon in it (it is written %3A), so the
first colon after it ends it, and the name is whatever follows.
"""

from __future__ import annotations

import re
from zlib import crc32

from fencelock.backends.redis.commands import word

__all__ = ["BUCKETS", "Place", "Places", "counter"]

BUCKETS = 256
CACHED = 20_000


class Place:
    """The bucket of a name and its key, packed too, as a key of its own and with the counter's."""

    __slots__ = ("bucket", "key", "packed", "with_counter")

    def __init__(self, bucket: int, key: bytes) -> None:
        self.bucket = bucket
        self.key = key
        self.packed = word(key)
        self.with_counter = self.packed + word(counter(bucket))


def counter(bucket: int) -> bytes:
    """Return the key of a bucket's counter."""
    return b"fencelock:{%d}" % bucket


class Places:
    """The places of all names of a namespace; those used lately are remembered."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace.replace("%", "%25").replace(":", "%3A").encode()
        self._known: dict[str, Place] = {}

    def find(self, name: str) -> Place:
        """Return the place of a name."""
        place = self._known.get(name)
        if place is None:
            raw = name.encode()
            bucket = crc32(raw) % BUCKETS
            place = Place(bucket, self._key(bucket, raw))
            if len(self._known) >= CACHED:
                self._known.clear()
            self._known[name] = place
        return place

    def packed(self, name: str) -> bytes:
        """Return the key of a name, packed: of one of so many names that it need not be remembered."""
        place = self._known.get(name)
        if place is not None:
            return place.packed
        raw = name.encode()
        return word(self._key(crc32(raw) % BUCKETS, raw))

    def _key(self, bucket: int, raw: bytes) -> bytes:
        return b"fencelock:{%d}:%b:%b" % (bucket, self._namespace, raw)

    def pattern(self, prefix: str) -> bytes:
        """Return what SCAN is to look for: all keys of names that begin so."""
        told = re.sub(rb"([*?\[\]\\^])", rb"\\\1", b"%b:%b" % (self._namespace, prefix.encode()))
        return b"fencelock:{*}:%b*" % told

    def name_of(self, key: bytes) -> str | None:
        """Return the name that a key belongs to; `None` if it is not of this namespace."""
        parts = key.split(b":", 3)
        if len(parts) != 4 or not parts[3] or parts[2] != self._namespace:
            return None
        try:
            return parts[3].decode()
        except UnicodeDecodeError:
            return None  # somebody else's
