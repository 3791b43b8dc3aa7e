"""Where records are kept: one small class for each store.

A place knows two things of a key: its record, and the claim of whoever computes it. A claim says which
computation may be kept: the one that began last. It is made after the lock was granted and before anything
is computed, so a process that was paused and overtaken finds another's claim there, or none after `forget`
or `put`, and keeps nothing. A claim outlives its lock: a computation may take long. It goes when the value is
written, when the computation fails, and, after a crash, after a day.

Each step is one round trip, and happens as a whole or not at all. Those of blocking places never suspend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from fencelock.backends import backend_from_url
from fencelock.connections import has, is_redis_client
from fencelock.core.ports import Backend
from fencelock.errors import ConfigurationError
from fencelock.flight.records import Kept
from fencelock.names import shown

if TYPE_CHECKING:
    from fencelock.runtime.base import Runtime

__all__ = ["CLAIM_KEPT", "Place", "place_for"]

CLAIM_KEPT = 86400.0
"""Seconds for which a claim is kept that nobody gives back. A computation that takes longer is not kept."""
WANTED = "give store= a URL of redis:// or sqlite://, or a client of redis-py"


class Place(ABC):
    """Records and claims in one store."""

    @abstractmethod
    async def look(self, key: str) -> Kept | None:
        """Return the record."""

    @abstractmethod
    async def claim(self, key: str, seen: bytes, owner: bytes) -> Kept | None:
        """Claim the key, or return its record if it is not the one of the owner `seen`."""

    @abstractmethod
    async def write(self, key: str, owner: bytes, record: bytes, seconds: float) -> bool:
        """Keep a record, if the claim is still that of `owner`; say whether it is."""

    @abstractmethod
    async def drop(self, key: str, owner: bytes) -> None:
        """Give a claim up."""

    @abstractmethod
    async def put(self, key: str, record: bytes, seconds: float) -> None:
        """Keep a record, and let no computation that is under way be kept."""

    @abstractmethod
    async def forget(self, key: str) -> bool:
        """Take the record away, and let no computation that is under way be kept; say if there was one."""

    async def close(self) -> None:
        """Close what is open."""

    def leave(self) -> None:
        """Let go of everything, without a word: in a forked child, or as garbage."""


def place_for(store: Any, locks: Backend, runtime: Runtime) -> Place:
    """Return the place that `store` stands for, or that goes with the locks. Raises `ConfigurationError`."""
    is_async = runtime.flavour == "asyncio"
    if is_redis_client(store, "redis") or is_redis_client(store, "redis.asyncio"):
        return _redis_py(store, locks.namespace, is_async)
    if store is not None and not isinstance(store, str):
        raise ConfigurationError(f"store={shown(store)} cannot keep values: {WANTED}")
    backend = locks if store is None else backend_from_url(store)
    if has(backend, "store", "fencelock.backends.memory", "Store"):
        from fencelock.flight.places.memory import MemoryPlace

        return MemoryPlace(backend.store, locks.namespace)  # type: ignore[attr-defined]
    if has(backend, "_store", "fencelock.backends.sqlite.store", "Store"):
        from fencelock.flight.places.sqlite import SQLitePlace

        return SQLitePlace(backend, locks.namespace, runtime, is_own=store is not None)  # type: ignore[arg-type]
    if has(backend, "_topology", "fencelock.backends.redis.topology", "Topology"):
        from fencelock.flight.places.redis import WirePlace

        return WirePlace(backend._topology, locks.namespace, is_async=is_async)  # type: ignore[attr-defined]
    raise ConfigurationError(f"{backend.name} keeps no values: {WANTED}")


def _redis_py(client: Any, namespace: str, is_async: bool) -> Place:
    if hasattr(client, "command_stack"):
        raise ConfigurationError(f"store={shown(client)} is a pipeline: give the client itself")
    if is_redis_client(client, "redis.asyncio") != is_async:
        raise ConfigurationError(
            f"store={shown(client)} is of the other flavour: give Flight a redis.Redis and AsyncFlight a "
            "redis.asyncio.Redis"
        )
    try:
        from fencelock.flight.places.redis import ClientPlace
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"a store on Redis needs the package {error.name!r}: pip install 'fencelock[redis]'"
        ) from error
    return ClientPlace(client, namespace, is_async=is_async)
