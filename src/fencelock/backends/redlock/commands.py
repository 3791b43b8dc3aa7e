"""The scripts of Redlock, by name."""

from __future__ import annotations

from importlib.resources import files

from fencelock.backends.redis.commands import Script, pack, word

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

LUA = files("fencelock.backends.redlock") / "lua"

ACQUIRE, WRITE_BACK, RELEASE, RENEW, LOOK, BREAK, GREET, JOIN = (
    Script(name, LUA)
    for name in ("acquire", "write_back", "release", "renew", "look", "break", "greet", "join")
)
