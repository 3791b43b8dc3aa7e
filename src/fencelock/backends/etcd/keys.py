"""Where a lock lives: names become keys, and no two names meet.

    fencelock/namespace/name/e1-OWNER      one request: its mode, its limit and its owner

Slashes and percent signs in a namespace or a name are written %2F and %25, so a name's keys are just those
that begin with its own path and a slash; and what a name begins with, its path begins with.
"""

from __future__ import annotations

from typing import NamedTuple

from fencelock.core.ports import Request
from fencelock.core.queue import Mode

__all__ = ["Keys", "end_of", "suffix"]

LETTERS: dict[Mode, str] = {"exclusive": "e", "shared": "s", "permit": "p"}
MODES: dict[int, Mode] = {ord(letter): mode for mode, letter in LETTERS.items()}


class Parts(NamedTuple):
    """What a key says."""

    name: str
    mode: Mode
    limit: int
    owner: str


def suffix(request: Request) -> bytes:
    """Return the last part of a request's key."""
    return f"{LETTERS[request.mode]}{request.limit}-{request.owner}".encode()


def end_of(prefix: bytes) -> bytes:
    """Return the first key after all that begin so."""
    for position in range(len(prefix) - 1, -1, -1):
        if prefix[position] < 0xFF:
            return prefix[:position] + bytes([prefix[position] + 1])
    return b"\0"


class Keys:
    """The keys of one namespace."""

    def __init__(self, root: str, namespace: str) -> None:
        self._root = b"%b/%b/" % (root.encode(), _escaped(namespace))

    def queue(self, name: str) -> bytes:
        """Return what the keys of a name begin with."""
        return b"%b%b/" % (self._root, _escaped(name))

    def beginning(self, prefix: str) -> bytes:
        """Return what the keys of all names begin with that begin so."""
        return self._root + _escaped(prefix)

    def of(self, request: Request) -> bytes:
        """Return the key of a request."""
        return self.queue(request.name) + suffix(request)

    def parts(self, key: bytes) -> Parts | None:
        """Return what a key says; `None` if somebody else made it."""
        if not key.startswith(self._root):
            return None
        path, slash, last = key[len(self._root) :].rpartition(b"/")
        count, dash, owner = last[1:].partition(b"-")
        if not (slash and dash and path and last[0] in MODES and count.isdigit()) or b"/" in path:
            return None
        try:
            name = path.replace(b"%2F", b"/").replace(b"%25", b"%").decode()
            return Parts(name, MODES[last[0]], int(count), owner.decode("ascii"))
        except ValueError:  # no UTF-8, or a number that is too long
            return None


def _escaped(text: str) -> bytes:
    return text.replace("%", "%25").replace("/", "%2F").encode()
