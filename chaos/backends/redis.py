"""One Redis, or one Valkey."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tools.servers import NotReady, Server

from chaos.backends.store import Store
from fencelock.backends.redis.commands import ACQUIRE, RENEW

__all__ = ["Redis", "Valkey", "is_counter", "is_primary"]

ONE_SERVER = "one server: nothing to partition, nobody to lead"


class Redis(Store):
    """One Redis."""

    word = "redis"
    kind = "redis"
    spared: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("partition", "leader"), ONE_SERVER),
        "session": "no sessions: every request has its own deadline",
        "pooler": "a pooler is PostgreSQL's",
    }

    @property
    def server(self) -> Any:
        """The server to ask: the primary of the moment."""
        return next((one for one in self.servers if is_primary(one)), self.servers[0])

    @property
    def servers(self) -> list[Server]:
        """Those with data; where there are Sentinels, the others are these."""
        return [one for one in super().servers if not one.name.startswith("sentinel")]

    def residue(self) -> list[str]:
        return [key for key in self.server.ask("KEYS", "*") if not is_counter(key)]

    def delete(self) -> None:
        self.server.ask("FLUSHALL")

    log = "/appendonlydir/"

    def persist(self) -> None:
        self.options |= {"appendonly": "yes", "appendfsync": "everysec"}

    def is_acquire(self, data: bytes) -> bool:
        return ACQUIRE.sha.encode() in data

    def is_renewal(self, data: bytes) -> bool:
        return RENEW.sha.encode() in data

    def refuse(self) -> None:
        self.server.ask("CONFIG", "SET", "maxmemory", "1")

    def accept(self) -> None:
        self.server.ask("CONFIG", "SET", "maxmemory", "0")


class Valkey(Redis):
    """One Valkey."""

    word = "valkey"
    kind = "valkey"


def is_primary(server: Any) -> bool:
    """Whether it takes itself for the primary."""
    try:
        return bool(server.is_alive() and server.is_primary())
    except (OSError, NotReady):
        return False


def is_counter(key: str) -> bool:
    """Whether a key is one of the fixed number of counters."""
    return key.startswith("fencelock:{") and key.endswith("}") and key[len("fencelock:{") : -1].isdigit()
