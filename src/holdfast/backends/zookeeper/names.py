"""Where a lock lives: 256 fixed parents, and a znode or two for each request.

    /holdfast/5c/HASH-e1-OWNER-0000000042           a request, as it was made: sequential and ephemeral
    /holdfast/5c/HASH-e1-OWNER-0000000042.wSESSION  the same while it waits, in the session of those who wait
    /holdfast/5c/HASH-e1-OWNER-0000000042.hSESSION  and once its turn has come, in the one that it holds in

HASH is of the namespace and the name, 160 bits of it, and its first two digits are the parent's name. So
there are no parents to be made and removed with each lock, and none that a newcomer could lose under its
feet. The number orders the requests of one parent; it is 32 bits and wraps around, so numbers are
compared by which is ahead of the other.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.backends.base import Request
from holdfast.backends.ordered.places import Record
from holdfast.core.queue import Mode

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
    "stem",
    "waiting",
]

ROOT = "/holdfast"
BUCKETS = [f"{number:02x}" for number in range(256)]
LETTERS: dict[Mode, str] = {"exclusive": "e", "shared": "s", "permit": "p"}
MODES: dict[str, Mode] = {letter: mode for mode, letter in LETTERS.items()}
DIGITS = 40
HALF = 1 << 31


class Node(NamedTuple):
    """What a znode's name says."""

    mode: Mode
    limit: int
    owner: str
    number: int
    waits: bool
    path: str


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


def _node(parent: str, name: str) -> Node | None:
    """Return what a znode's name says; `None` if somebody else made it."""
    _, _, rest = name.partition("-")
    kind, _, rest = rest.partition("-")
    owner, _, rest = rest.partition("-")
    number, _, state = rest.partition(".")
    try:
        return Node(
            MODES[kind[0]], int(kind[1:]), owner, int(number), state.startswith("w"), f"{parent}/{name}"
        )
    except (KeyError, ValueError, IndexError):
        return None


def records_of(hash_: str, children: Iterable[str]) -> list[Record]:
    """Return the queue of one lock: a record for each number, in order. The znode that waits comes last.

    An owner may have several: whoever lost its session stands in line anew, and what it left behind goes
    when the server finds that session at its end. Until then it is in the way like anybody's.
    """
    parent = parent_of(hash_)
    numbers: dict[tuple[str, int], list[Node]] = {}
    for child in children:
        if child.startswith(hash_):
            node = _node(parent, child)
            if node is not None:
                numbers.setdefault((node.owner, node.number), []).append(node)
    records = []
    for nodes in sorted(numbers.values(), key=_by_place):
        nodes.sort(key=_rank)
        first = nodes[0]
        key = tuple(node.path for node in nodes)
        records.append(Record(key, first.owner, 0, first.mode, first.limit, None, b""))
    return records


def _rank(node: Node) -> tuple[bool, str]:
    return node.waits, node.path  # the same for everybody, in whatever order they were listed


def _ahead(one: Sequence[Node], other: Sequence[Node]) -> int:
    """Compare two numbers that wrap around: negative if `one` was given out first."""
    return ((one[0].number - other[0].number + HALF) % (2 * HALF)) - HALF


_by_place = functools.cmp_to_key(_ahead)
