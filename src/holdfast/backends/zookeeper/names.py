"""Where a lock lives: 256 fixed parents, and a znode for each request.

    /holdfast/5c/HASH-e1-OWNER-0000000042       a request, as it was made: sequential and ephemeral
    /holdfast/5c/HASH-e1-OWNER-0000000042.w     the same while it waits, in the session of those who wait
    /holdfast/5c/HASH-e1-OWNER-0000000042.h     and once its turn has come, in the session that it holds in

HASH is of the namespace and the name, 160 bits of it, and its first two digits are the parent's name. So
there are no parents to be made and removed with each lock, and none that a newcomer could lose under its
feet. The number orders the requests of one parent; it is 32 bits and wraps around, so numbers are
compared by which is ahead of the other.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.backends.base import Request
from holdfast.core.queue import Mode

__all__ = ["BUCKETS", "ROOT", "Node", "by_place", "hash_of", "nodes_of", "parent_of", "stem"]

ROOT = "/holdfast"
BUCKETS = [f"{number:02x}" for number in range(256)]
LETTERS: dict[Mode, str] = {"exclusive": "e", "shared": "s", "permit": "p"}
MODES: dict[str, Mode] = {letter: mode for mode, letter in LETTERS.items()}
DIGITS = 40
HALF = 1 << 31


class Node(NamedTuple):
    """What a znode's name says."""

    hash: str
    mode: Mode
    limit: int
    owner: str
    number: int
    state: str
    """Empty, `w` or `h`."""
    name: str


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


def node(name: str) -> Node | None:
    """Return what a znode's name says; `None` if somebody else made it."""
    hash_, _, rest = name.partition("-")
    kind, _, rest = rest.partition("-")
    owner, _, rest = rest.partition("-")
    number, _, state = rest.partition(".")
    try:
        return Node(hash_, MODES[kind[0]], int(kind[1:]), owner, int(number), state, name)
    except (KeyError, ValueError, IndexError):
        return None


def nodes_of(hash_: str, children: Iterable[str]) -> list[Node]:
    """Return the znodes of one lock."""
    found = [node(child) for child in children if child.startswith(hash_)]
    return [each for each in found if each is not None]


def _ahead(one: int, other: int) -> int:
    """Compare two numbers that wrap around: negative if `one` was given out first."""
    return ((one - other + HALF) % (2 * HALF)) - HALF


by_place = functools.cmp_to_key(_ahead)
"""A key to sort numbers by."""
