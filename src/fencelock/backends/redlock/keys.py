"""Where a lock lives on a node, and what stands in its record.

    fencelock:redlock                    the node's memory: a hash that never expires
    fencelock:redlock:namespace:name     a lock in use, while it is

A name belongs to one of 1,024 buckets by its hash, and the memory has one counter and its writer for
each, so it does not grow with the number of names. The namespace has no colon in it (it is
written %3A), so the first colon after it ends it, and the name is whatever follows.

A record is the owner (32 characters), the token (16), the server's time in microseconds when it was taken
(16), the attempt that took it (16), and JSON: [client, host, pid, metadata]. The widths are fixed, so
that a script can overwrite the token in place.

Attempts are numbered by the client, upwards. An undo names the attempt that failed: should it arrive when a
later attempt of the same request has the lock, by way of another connection, it changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from zlib import crc32

from fencelock.backends.redlock.commands import ACQUIRE, RELEASE, WRITE_BACK, word
from fencelock.core.ports import Request
from fencelock.core.queue import EXCLUSIVE
from fencelock.core.quorum import kept
from fencelock.state import Entry

__all__ = ["BUCKETS", "MEMORY", "Place", "Places", "Record", "about", "milliseconds"]

MEMORY = b"fencelock:redlock"
BUCKETS = 1024
CACHED = 4096
ANY = 10**15
"""Later than every attempt."""

ACQUIRE_FORM = b"%b%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
RELEASE_FORM = b"%b%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"


class Place:
    """The key of a name, and the beginnings of the calls that are made again and again."""

    __slots__ = ("acquire", "bucket", "highest", "key", "release", "write_back")

    def __init__(self, key: bytes, bucket: int) -> None:
        self.key = key
        self.bucket = b"%d" % bucket
        self.highest = 0
        """The largest counter that any node told of: who releases teaches it those that lag behind."""
        then = word(MEMORY) + word(key) + word(self.bucket) + b"$32\r\n"
        self.acquire = ACQUIRE.head(2, 5) + then
        self.write_back = WRITE_BACK.head(2, 3) + then
        self.release = RELEASE.head(2, 4) + then

    def acquiring(self, owner: str, ttl: float, attempt: int, about: bytes) -> bytes:
        """Return the call that takes the lock."""
        keep, number = milliseconds(ttl), b"%d" % attempt
        return ACQUIRE_FORM % (
            self.acquire,
            owner.encode(),
            len(keep),
            keep,
            len(number),
            number,
            len(about),
            about,
        )

    def writing(self, owner: str, token: int) -> bytes:
        """Return the call that writes a token back."""
        number = b"%d" % token
        return b"%b%b\r\n$%d\r\n%b\r\n" % (self.write_back, owner.encode(), len(number), number)

    def releasing(self, owner: str, token: int, attempt: int = ANY) -> bytes:
        """Return the call that gives the lock back, if this attempt took it, or one before."""
        number, last = b"%d" % token, b"%d" % attempt
        return RELEASE_FORM % (self.release, owner.encode(), len(number), number, len(last), last)


class Places:
    """The places of all names of a namespace; those used lately are remembered."""

    def __init__(self, namespace: str) -> None:
        self._head = MEMORY + b":%b:" % namespace.replace("%", "%25").replace(":", "%3A").encode()
        self._known: dict[str, Place] = {}

    def find(self, name: str) -> Place:
        """Return the place of a name."""
        place = self._known.get(name)
        if place is None:
            key = self._head + name.encode()
            place = Place(key, crc32(key) % BUCKETS)
            if len(self._known) >= CACHED:
                self._known.clear()
            self._known[name] = place
        return place

    def pattern(self, prefix: str) -> bytes:
        """Return what SCAN is to look for: all keys of names that begin so."""
        return re.sub(rb"([*?\[\]\\^])", rb"\\\1", self._head + prefix.encode()) + b"*"

    def name_of(self, key: bytes) -> str:
        """Return the name that a key of this namespace belongs to."""
        return key.removeprefix(self._head).decode()


def milliseconds(ttl: float) -> bytes:
    """Return for how long the nodes are to keep a lock: a drift longer than its holder believes in it."""
    return b"%d" % (kept(ttl) * 1000 + 0.999)


def about(request: Request) -> bytes:
    """Return what people may want to know of a request, as JSON."""
    origin = json.dumps(request.origin, separators=(",", ":"))[:-1]
    return f"{origin},{request.metadata or 'null'}]".encode()


class Told(NamedTuple):
    """What a request tells people of itself."""

    client: str
    host: str
    pid: int
    metadata: Any


class Record(NamedTuple):
    """What a node has of a lock."""

    owner: str
    token: int
    since: int
    told: Told
    left: float

    @classmethod
    def read(cls, answer: Sequence[Any]) -> Record | None:
        """Make one of what the scripts answer: the text and the milliseconds that are left.

        `None` if there is none, or if it is not ours to read: somebody else wrote it.
        """
        if not answer:
            return None
        text: bytes = answer[0]
        try:
            client, host, pid, metadata = json.loads(text[80:])
            told = Told(str(client), str(host), int(pid), metadata)
            return cls(text[:32].decode(), int(text[32:48]), int(text[48:64]), told, answer[1] / 1000)
        except (ValueError, TypeError):
            return None

    def entry(self, now: int, left: float | None = None) -> Entry:
        """Return it as people see it; `now` is the server's time in microseconds."""
        return Entry(
            owner=self.owner,
            token=self.token,
            mode=EXCLUSIVE,
            client=self.told.client,
            host=self.told.host,
            pid=self.told.pid,
            metadata=self.told.metadata,
            since=self.since / 1e6,
            expires_in=max(0.0, self.left if left is None else left),
            age=max(0.0, (now - self.since) / 1e6),
        )
