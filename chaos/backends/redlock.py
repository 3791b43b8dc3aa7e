"""Redlock: five Redis servers that know nothing of each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from chaos.backends.store import Shape, Store
from fencelock.backends.redlock.commands import ACQUIRE, RENEW
from fencelock.backends.redlock.keys import MEMORY

__all__ = ["Redlock"]


class Redlock(Store):
    """Five Redis servers. A node that lost its memory is left out for `max_ttl`, which is short here."""

    word = "redlock"
    kind = "redlock"
    shape = Shape(0.5, players=4)
    spared: ClassVar[Mapping[str, str]] = {
        "leader": "nobody leads",
        "powerloss": "its nodes keep nothing here: `restart` loses all of it",
        "failover": "nothing fails over: the other nodes go on",
        "session": "no sessions: every node's key has its own expiry",
        "pooler": "a pooler is PostgreSQL's",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.max_ttl = 2 * self.shape.ttl

    @property
    def url(self) -> str:
        return f"{self.group.url}?max_ttl={self.max_ttl:g}"

    def residue(self) -> list[str]:
        return [
            f"{server.name}: {key}"
            for server in self.group.members
            for key in server.ask("KEYS", "*")
            if key != MEMORY.decode()
        ]

    def delete(self) -> None:
        """The locks of every node; its memory is another matter, and `restart` is about that."""
        for server in self.group.members:
            for key in server.ask("KEYS", "fencelock:redlock:*"):
                server.ask("DEL", key)

    def is_acquire(self, data: bytes) -> bool:
        return ACQUIRE.sha.encode() in data

    def is_renewal(self, data: bytes) -> bool:
        return RENEW.sha.encode() in data

    def refuse(self) -> None:
        self._set_memory("1")

    def accept(self) -> None:
        self._set_memory("0")

    def _set_memory(self, size: str) -> None:
        servers: list[Any] = self.group.members
        for server in servers:
            server.ask("CONFIG", "SET", "maxmemory", size)
