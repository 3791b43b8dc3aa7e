"""What a lock says to etcd, as bytes: the few messages it needs, put together by hand.

    grant, named    a lease, with an id of our own choice, and what keeps it alive or revokes it
    take, give      a key is put into the lease if it is not there, and deleted if it is ours, by transactions
    enter, look     a key is put into a queue, and the queue is read: in one call, or later
    watch, delete   somebody's key is watched for its deletion, and the own one deleted
    lock, unlock    the same by the lock service that is part of the server, which queues those who wait

No library is needed, so that everybody who speaks gRPC says exactly the same.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit

__all__ = [
    "DELETE",
    "GRANT",
    "KEEP_ALIVE",
    "LOCK",
    "RANGE",
    "REVOKE",
    "TXN",
    "UNLOCK",
    "WATCH",
    "delete",
    "enter",
    "fields",
    "give",
    "grant",
    "is_done",
    "key_in",
    "lock",
    "look",
    "named",
    "new_id",
    "place_of",
    "take",
    "unlock",
    "watch",
]

TXN = "/etcdserverpb.KV/Txn"
GRANT = "/etcdserverpb.Lease/LeaseGrant"
KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"
REVOKE = "/etcdserverpb.Lease/LeaseRevoke"
LOCK = "/v3lockpb.Lock/Lock"
RANGE = "/etcdserverpb.KV/Range"
DELETE = "/etcdserverpb.KV/DeleteRange"
WATCH = "/etcdserverpb.Watch/Watch"
UNLOCK = "/v3lockpb.Lock/Unlock"
CREATE, VALUE = 1, 3
"""What a comparison compares: the revision a key was made at, or what it holds."""
ASCENDING, BY_CREATION, KEYS_ONLY, NO_PUTS = 1, 2, 1, 0


def place_of(url: str) -> tuple[str, int]:
    place = urlsplit(url)
    return place.hostname or "localhost", place.port or 2379


def new_id() -> int:
    return secrets.randbits(62) + 1


def grant(ident: int, seconds: int) -> bytes:
    return _number(1, seconds) + _number(2, ident)


def named(ident: int) -> bytes:
    """What is said of a lease to revoke it, and to keep it alive."""
    return _number(1, ident)


def take(key: bytes, owner: bytes, lease: int) -> bytes:
    compare = _number(2, CREATE) + _bytes(3, key) + _number(5, 0)
    put = _bytes(1, key) + _bytes(2, owner) + _number(3, lease)
    return _bytes(1, compare) + _bytes(2, _bytes(2, put))


def give(key: bytes, owner: bytes) -> bytes:
    compare = _number(2, VALUE) + _bytes(3, key) + _bytes(7, owner)
    return _bytes(1, compare) + _bytes(2, _bytes(3, _bytes(1, key)))


def enter(key: bytes, prefix: bytes, lease: int) -> bytes:
    compare = _number(2, CREATE) + _bytes(3, key) + _number(5, 0)
    put = _bytes(1, key) + _number(3, lease)
    return _bytes(1, compare) + _bytes(2, _bytes(2, put)) + _bytes(2, _bytes(1, look(prefix)))


def look(prefix: bytes) -> bytes:
    """The keys that begin so, in the order of their creation."""
    end = prefix[:-1] + bytes([prefix[-1] + 1])
    order = _number(5, ASCENDING) + _number(6, BY_CREATION)
    return _bytes(1, prefix) + _bytes(2, end) + order + _number(8, KEYS_ONLY)


def watch(key: bytes) -> bytes:
    """From now on. Of what is past already, etcd tells ten times a second only."""
    return _bytes(1, _bytes(1, key) + _bytes(5, bytes([NO_PUTS])))


def delete(key: bytes) -> bytes:
    return _bytes(1, key)


def lock(name: bytes, lease: int) -> bytes:
    return _bytes(1, name) + _number(2, lease)


def unlock(key: bytes) -> bytes:
    return _bytes(1, key)


def is_done(answer: bytes) -> bool:
    """Whether a transaction's comparisons held: the field after the header."""
    return _rest(answer)[:2] == b"\x10\x01"


def key_in(answer: bytes) -> bytes:
    """The key that the lock service made: the field after the header."""
    rest = _rest(answer)
    if rest[:1] != b"\x12":
        raise RuntimeError("the lock service gave no key")
    return rest[2 : 2 + rest[1]]


def fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """What is in a message: numbers and bytes, each with the number of its field."""
    at = 0
    while at < len(message):
        tag, at = _read(message, at)
        value, at = _read(message, at)
        if tag & 7 == 0:
            yield tag >> 3, value
        else:
            yield tag >> 3, message[at : at + value]
            at += value


def _read(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while message[at] > 0x7F:
        value |= (message[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | message[at] << shift, at + 1


def _rest(answer: bytes) -> bytes:
    """What follows the header, which is the first field of every answer and shorter than 128 bytes."""
    return answer[2 + answer[1] :]


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
