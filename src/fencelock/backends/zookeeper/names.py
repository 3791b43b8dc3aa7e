"""Where a lock lives: 256 fixed parents, and a znode or two for each request.

    /fencelock/5c/HASH-e1-OWNER-0000000042           a request, as it was made: sequential and ephemeral
    /fencelock/5c/HASH-e1-OWNER-0000000042.wSESSION  the same while it waits, in the session of those who wait
    /fencelock/5c/HASH-e1-OWNER-0000000042.hSESSION  and once its turn has come, in the one that it holds in

HASH is of the namespace and the name, 160 bits of it, and its first two digits are the parent's name. So
there are no parents to be made and removed with each lock, and none that a newcomer could lose under its
feet. The number orders the requests of one parent; it is 32 bits and wraps around, so numbers are
compared by which is ahead of the other.
"""

from __future__ import annotations

import functools
import hashlib
import operator
import re
from collections.abc import Collection, Iterable, Sequence

from fencelock.backends.ordered.places import Place, Record
from fencelock.core.ports import Request
from fencelock.core.queue import EXCLUSIVE, Mode

__all__ = [
    "BUCKETS",
    "ROOT",
    "base_in",
    "base_of",
    "hash_in",
    "hash_of",
    "holding",
    "is_waiting",
    "parent_of",
    "records_of",
    "standing_of",
    "stem",
    "waiting",
]

ROOT = "/fencelock"
BUCKETS = [f"{number:02x}" for number in range(256)]
LETTERS: dict[Mode, str] = {"exclusive": "e", "shared": "s", "permit": "p"}
MODES: dict[str, Mode] = {letter: mode for mode, letter in LETTERS.items()}
DIGITS = 40
HALF = 1 << 31
DIGITS_OF_NUMBER = 10
PLAIN = re.compile(r"(?:[^-\n]+-[esp]\d+-[^-.\n]+-\d{10}(?:\.[^\n]*)?\n)+").fullmatch
"""All of these are names of ours whose numbers are in order as they are written: none is negative."""
NUMBER = re.compile(r"-(\d{10})(?:\.[^\n]*)?\n")


@functools.lru_cache(1024)
def hash_of(namespace: str, name: str) -> str:
    """Return the hash of a lock."""
    text = f"{len(namespace)}:{namespace}{name}".encode()
    return hashlib.blake2b(text, digest_size=DIGITS // 2).hexdigest()


def parent_of(hash_: str) -> str:
    """Return the path of a lock's parent."""
    return f"{ROOT}/{hash_[:2]}"


def stem(hash_: str, request: Request) -> str:
    """Return the path of a request's znode up to its number."""
    return f"{parent_of(hash_)}/{hash_}-{LETTERS[request.mode]}{request.limit}-{request.owner}-"


def base_of(path: str) -> str:
    """Return the path without what says where it lives."""
    return path.partition(".")[0]


def base_in(key: Sequence[str]) -> str:
    """Return what the znodes of one place share, wherever they live: the owner and its number."""
    return base_of(key[0])


def waiting(path: str, session: int) -> str:
    """Return the path of a request while it waits in a session."""
    return f"{base_of(path)}.w{session:x}"


def holding(path: str, session: int) -> str:
    """Return the path of a request that has come to hold in a session."""
    return f"{base_of(path)}.h{session:x}"


def is_waiting(path: str) -> bool:
    """Whether it is the path of a request that waits."""
    return path.partition(".")[2].startswith("w")


def hash_in(path: str) -> str:
    """Return the hash that a path is of."""
    return path.rpartition("/")[2].partition("-")[0]


def records_of(hash_: str, children: Iterable[str]) -> list[Record]:
    """Return the queue of one lock: a record for each number, in order. The znode that waits comes last.

    An owner may have several: whoever lost its session stands in line anew, and what it left behind goes
    when the server finds that session at its end. Until then it is in the way like anybody's.
    """
    parent = parent_of(hash_)
    found: dict[str, tuple[int, Record]] = {}
    for child in children:
        if not child.startswith(hash_):
            continue
        base = child.partition(".")[0]
        path = f"{parent}/{child}"
        if base in found:
            number, record = found[base]
            found[base] = number, record._replace(key=tuple(sorted((*record.key, path), key=_rank)))
            continue
        try:
            _, kind, owner, digits = base.split("-", 3)
            record = Record((path,), owner, 0, MODES[kind[0]], int(kind[1:]), None, b"")
            found[base] = int(digits), record
        except (KeyError, ValueError, IndexError):
            continue  # somebody else made it
    return [record for _, record in _in_order(found.values())]


def standing_of(hash_: str, children: Iterable[str], place: Place) -> list[Record]:
    """Return the queue as far as it says how a place stands.

    For whoever wants the lock alone that is the first, the one right before it, and itself. A queue is read
    twice for each lease, and is as long as there are waiters: to make a record of each would take longer than
    everything else that is done for the lease.
    """
    names = [child for child in children if child.startswith(hash_)]
    text = "\n".join([*names, ""])
    own = base_in(place.key)[-DIGITS_OF_NUMBER:]
    numbers = NUMBER.findall(text) if place.request.mode == EXCLUSIVE and PLAIN(text) else ()
    if own not in numbers or text.count(f"-{place.request.owner}-") > 1:
        return records_of(hash_, names)
    before = [number for number in numbers if number < own]
    wanted = {own, min(before), max(before)} if before else {own}
    chosen = [name for name, number in zip(names, numbers, strict=True) if number in wanted]
    return records_of(hash_, chosen)


def _rank(path: str) -> tuple[bool, str]:
    return is_waiting(path), path  # the same for everybody, in whatever order they were listed


def _in_order(numbered: Collection[tuple[int, Record]]) -> list[tuple[int, Record]]:
    numbers = [number for number, _ in numbered]
    if not numbers or max(numbers) - min(numbers) < HALF:
        return sorted(numbered, key=_number)
    return sorted(numbered, key=_by_place)  # they have wrapped around


_number = operator.itemgetter(0)


def _ahead(one: tuple[int, Record], other: tuple[int, Record]) -> int:
    """Compare two numbers that wrap around: negative if `one` was given out first."""
    return ((one[0] - other[0] + HALF) % (2 * HALF)) - HALF


_by_place = functools.cmp_to_key(_ahead)
