"""Where a lock lives: names become keys, and no two names meet.

    fencelock/NAMESPACE/NAME/e1-OWNER      one request: its mode, its limit and its owner
    fencelock/NAMESPACE/~/SESSION          the sign of life of a client that waits

Consul's HTTP server refuses paths with signs that cannot be printed and rewrites those with dots or empty
parts. So all but letters, digits and a few harmless signs is written as %XX, and an empty namespace as ~. A
name's keys are just those that begin with its own path and a slash; and what a name begins with, its path
begins with.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

from fencelock.core.ports import Request
from fencelock.core.queue import Mode

__all__ = ["Keys", "Parts"]

LETTERS: dict[Mode, str] = {"exclusive": "e", "shared": "s", "permit": "p"}
MODES: dict[str, Mode] = {letter: mode for mode, letter in LETTERS.items()}
HARMLESS = ":@,=+"
NONE = "~"


class Parts(NamedTuple):
    """What a key says."""

    name: str
    mode: Mode
    limit: int
    owner: str


class Keys:
    """The keys of one namespace."""

    def __init__(self, root: str, namespace: str) -> None:
        self._root = f"{root}/{_escaped(namespace) or NONE}/"

    def queue(self, name: str) -> str:
        """Return what the keys of a name begin with."""
        return f"{self._root}{_escaped(name)}/"

    def beginning(self, prefix: str) -> str:
        """Return what the keys of all names begin with that begin so."""
        return self._root + _escaped(prefix)

    def of(self, request: Request) -> str:
        """Return the key of a request."""
        return f"{self.queue(request.name)}{LETTERS[request.mode]}{request.limit}-{request.owner}"

    def life(self, session: str) -> str:
        """Return the key that a client which waits in a session puts again and again."""
        return f"{self._root}{NONE}/{session}"

    def parts(self, key: str) -> Parts | None:
        """Return what a key says; `None` if it is no request's."""
        if not key.startswith(self._root):
            return None
        path, slash, last = key[len(self._root) :].rpartition("/")
        count, dash, owner = last[1:].partition("-")
        if not (slash and dash and path and last[0] in MODES and count.isdigit()) or "/" in path:
            return None
        if _escaped(name := unquote(path, errors="replace")) != path:
            return None  # somebody else made it
        return Parts(name, MODES[last[0]], int(count), owner)


def _escaped(text: str) -> str:
    return quote(text, safe=HARMLESS).replace(".", "%2E").replace("~", "%7E")
