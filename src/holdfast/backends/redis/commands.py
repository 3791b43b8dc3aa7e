"""Commands as bytes, and the scripts, by name.

A script is called by its hash. A server that does not know it (NOSCRIPT: it was restarted, or somebody
said SCRIPT FLUSH) is sent the same call with the whole text, which it keeps from then on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from importlib.resources import files

__all__ = ["ACQUIRE", "BREAK", "INSPECT", "LEAVE", "RENEW", "Script", "pack"]

LUA = files("holdfast.backends.redis") / "lua"


def pack(*words: str | bytes | int) -> bytes:
    """Return a command as the server reads it."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        text = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(parts)


def _text(name: str) -> str:
    text = (LUA / f"{name}.lua").read_text()
    return re.sub(r"^-- include (\w+)\.lua$", lambda match: _text(match[1]), text, flags=re.MULTILINE)


class Script:
    """A script, by its hash or as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = _text(name)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        self._by_hash = pack("EVALSHA", self.sha)[4:]
        self._whole = pack("EVAL", self.text)[4:]

    def head(self, keys: int, arguments: int) -> bytes:
        """Return the beginning of a call; the packed keys and arguments follow."""
        return b"*%d\r\n%b%b" % (3 + keys + arguments, self._by_hash, pack(keys)[4:])

    def call(self, keys: Iterable[bytes], arguments: Iterable[str | bytes | int]) -> bytes:
        """Return a whole call."""
        return pack("EVALSHA", self.sha, len(tuple(keys)), *keys, *arguments)

    def in_full(self, call: bytes) -> bytes:
        """Return the same call with the script's text in it."""
        return call.replace(self._by_hash, self._whole, 1)


ACQUIRE, LEAVE, RENEW, INSPECT, BREAK = map(Script, ("acquire", "leave", "renew", "inspect", "break"))
