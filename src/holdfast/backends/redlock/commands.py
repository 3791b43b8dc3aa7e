"""The scripts, by name, and calls of them as bytes.

A script is called by its hash. A node that does not know it (it was restarted, or somebody said SCRIPT
FLUSH) is sent the same call with the whole text, which it keeps from then on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files

from holdfast.backends.redis.commands import pack

__all__ = [
    "ACQUIRE",
    "BREAK",
    "GREET",
    "JOIN",
    "LOOK",
    "RELEASE",
    "RENEW",
    "WRITE_BACK",
    "Script",
    "pack",
    "word",
]

LUA = files("holdfast.backends.redlock") / "lua"


def word(text: bytes) -> bytes:
    """Return one word of a command."""
    return b"$%d\r\n%b\r\n" % (len(text), text)


class Script:
    """A script, by its hash or as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = (LUA / f"{name}.lua").read_bytes()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()
        self._by_hash = word(b"EVALSHA") + word(self.sha)
        self._whole = word(b"EVAL") + word(self.text)

    def head(self, keys: Sequence[bytes], arguments: int) -> bytes:
        """Return the beginning of a call; so many packed arguments must follow."""
        count = b"*%d\r\n" % (3 + len(keys) + arguments)
        return b"".join([count, self._by_hash, word(b"%d" % len(keys)), *map(word, keys)])

    def call(self, keys: Sequence[bytes], *arguments: bytes) -> bytes:
        """Return a whole call."""
        return self.head(keys, len(arguments)) + b"".join(map(word, arguments))

    def in_full(self, call: bytes) -> bytes:
        """Return the same call with the script's text in it."""
        return call.replace(self._by_hash, self._whole, 1)


ACQUIRE, WRITE_BACK, RELEASE, RENEW, LOOK, BREAK, GREET, JOIN = map(
    Script, ("acquire", "write_back", "release", "renew", "look", "break", "greet", "join")
)
