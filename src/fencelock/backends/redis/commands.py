"""Commands as bytes, and scripts by name.

What only reads is a plain command: Redis runs a script only for users who may write its keys.

A script is called by its hash. A server that does not know it (NOSCRIPT: it was restarted, or somebody
said SCRIPT FLUSH) is sent the same call with the whole text, which it keeps from then on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable

__all__ = ["ACQUIRE", "BREAK", "LEAVE", "RENEW", "TIME", "Script", "micros", "pack", "word"]

LUA = files("fencelock.backends.redis") / "lua"


def word(text: bytes) -> bytes:
    """Return one word of a command."""
    return b"$%d\r\n%b\r\n" % (len(text), text)


def pack(*words: str | bytes | int) -> bytes:
    """Return a command as the server reads it."""
    texts = (each if isinstance(each, bytes) else str(each).encode() for each in words)
    return b"*%d\r\n%b" % (len(words), b"".join(map(word, texts)))


def _text(folder: Traversable, name: str) -> str:
    text = (folder / f"{name}.lua").read_text(encoding="utf-8")
    return re.sub(r"^-- include (\w+)\.lua$", lambda found: _text(folder, found[1]), text, flags=re.MULTILINE)


class Script:
    """A script, by its hash or as a whole."""

    def __init__(self, name: str, folder: Traversable = LUA) -> None:
        self.name = name
        self.text = _text(folder, name)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        self._by_hash = word(b"EVALSHA") + word(self.sha.encode())
        self._whole = word(b"EVAL") + word(self.text.encode())

    def head(self, keys: int, arguments: int) -> bytes:
        """Return the beginning of a call; so many packed keys and arguments must follow."""
        return b"*%d\r\n%b%b" % (3 + keys + arguments, self._by_hash, word(b"%d" % keys))

    def call(self, keys: Sequence[bytes], *arguments: bytes) -> bytes:
        """Return a whole call."""
        return b"".join([self.head(len(keys), len(arguments)), *map(word, keys), *map(word, arguments)])

    def in_full(self, call: bytes) -> bytes:
        """Return the same call with the script's text in it."""
        return call.replace(self._by_hash, self._whole, 1)


ACQUIRE, LEAVE, RENEW, BREAK = map(Script, ("acquire", "leave", "renew", "break"))
TIME = pack("TIME")


def micros(reply: Sequence[bytes]) -> int:
    """Return what TIME answers, in microseconds."""
    return int(reply[0]) * 1_000_000 + int(reply[1])
