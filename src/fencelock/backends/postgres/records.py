"""Places and rows: how a name is stored, and how what is stored is shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from fencelock.core.ports import Busy, Origin, Request
from fencelock.core.queue import Mode, Queued, admitted
from fencelock.state import Entry, LockState

__all__ = ["ROW", "Place", "Places", "Standing", "Waiting", "details", "entry", "states"]

REMEMBERED = 1024

ROW = (
    "place, owner, token, mode, slots, extract(epoch FROM since), "
    "extract(epoch FROM clock_timestamp() - since), extract(epoch FROM deadline - clock_timestamp()), details"
)
"""The columns that `entry` reads."""


class Place(NamedTuple):
    """Where a name's queue is: its key, and its bucket as the server takes it."""

    key: bytes
    bucket: bytes


class Places:
    """The places of a namespace's names."""

    def __init__(self, namespace: str, buckets: int) -> None:
        self._prefix = namespace.encode() + b"\0"
        self._buckets = buckets
        self._known: dict[str, Place] = {}

    def find(self, name: str) -> Place:
        """Return the place of a name."""
        place = self._known.get(name)
        if place is None:
            key = self._prefix + name.encode()
            digest = blake2b(key, digest_size=8).digest()
            place = Place(key, b"%d" % (int.from_bytes(digest, "big") % self._buckets))
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[name] = place
        return place

    def range_of(self, prefix: str) -> tuple[bytes, bytes]:
        """Return between which keys all names with this prefix lie. No UTF-8 has a byte 0xff."""
        start = self._prefix + prefix.encode()
        return start, start + b"\xff"

    def name_of(self, key: bytes) -> str:
        """Return the name of a place."""
        return key[len(self._prefix) :].decode()


def details(request: Request) -> bytes:
    """Return what people may want to know of a request, as ASCII whatever the server's encoding is."""
    return _details(request.origin, request.metadata)


@lru_cache(256)
def _details(origin: Origin, metadata: str | None) -> bytes:
    told = json.dumps(origin._asdict())
    if metadata is not None:
        told = f'{told[:-1]}, "metadata": {json.dumps(json.loads(metadata))}}}'
    return told.encode()


def entry(words: Sequence[bytes | str]) -> Entry:
    """Return a request as people read it: from owner, token, mode, slots, since, age, expiry and details."""
    owner, token, mode, slots, since, age, expires_in, told = (
        word.decode() if isinstance(word, bytes) else word for word in words
    )
    said: dict[str, Any] = json.loads(told)
    return Entry(
        owner=owner,
        token=int(token),
        mode=cast(Mode, mode),
        client=said["client"],
        host=said["host"],
        pid=said["pid"],
        since=float(since),
        age=max(0.0, float(age)),
        expires_in=max(0.0, float(expires_in)),
        metadata=said.get("metadata"),
        limit=int(slots),
    )


def states(result: Any, places: Places) -> list[LockState]:
    """Return the locks in a result whose columns are `ROW`, ordered by place and token."""
    queues: dict[bytes, list[Entry]] = {}
    for row in range(result.ntuples):
        words = [result.get_value(row, column) for column in range(1, 9)]
        key = bytes.fromhex(result.get_value(row, 0)[2:].decode())
        queues.setdefault(key, []).append(entry(words))
    found = []
    for key, entries in queues.items():
        holders = admitted(cast(Sequence[Queued], entries))
        name = places.name_of(key)
        found.append(LockState(name=name, holders=tuple(entries[:holders]), waiters=tuple(entries[holders:])))
    return found


class Standing(NamedTuple):
    """What a client knows of where its request stands in the queue."""

    token: bytes | None
    """`None`: a step got no reply, so the request may stand there with any token."""
    is_sure: bool
    """Every step got its reply: the client knows each token that the request ever had."""


class Waiting(Busy):
    """`Busy`, with the holder read from the reply only if somebody asks: most waiters never do."""

    __slots__ = ("_words", "is_sure", "token")

    def __init__(self, reply: str, *, is_sure: bool) -> None:
        _, token, recheck, *self._words = reply.split(" ", 10)
        self.token = int(token)
        self.is_sure = is_sure
        self.recheck = float(recheck)

    @property
    def holder(self) -> Entry | None:  # type: ignore[override]
        """Who holds the lock."""
        return entry(self._words)
