"""Which shelf: that of the locks' own store, of a URL, a client of redis-py, or a function that connects."""

from __future__ import annotations

from typing import Any

from fencelock.backends import backend_from_url
from fencelock.connections import has, is_redis_client
from fencelock.connections.steps import steps_for
from fencelock.errors import ConfigurationError
from fencelock.names import shown
from fencelock.optimistic.cells import cells_of
from fencelock.schedule.shelves.base import MemoryShelf, Shelf

__all__ = ["shelf_for"]


def shelf_for(backend: Any, record: Any, *, is_async: bool, threads: bool = False) -> Shelf:
    """Return the shelf that `record` stands for; `None` is the backend's own store. No I/O."""
    if record is None:
        return _of_backend(backend, is_async)
    if isinstance(record, str):
        return _of_backend(backend_from_url(record), is_async, is_own=True)
    wanted, other = ("redis.asyncio", "redis") if is_async else ("redis", "redis.asyncio")
    if is_redis_client(record, wanted):
        from fencelock.schedule.shelves.redis import RedisClientShelf

        return RedisClientShelf(record)
    if is_redis_client(record, other):
        raise ConfigurationError(
            f"record={shown(record)} is of the other flavour: give Schedule a redis.Redis, and "
            "AsyncSchedule a redis.asyncio.Redis"
        )
    if not callable(record):
        raise ConfigurationError(
            f"record={shown(record)} is no URL, no client of redis-py and no function that makes a connection"
        )
    from fencelock.schedule.shelves.sql import SQLShelf

    return SQLShelf("record", steps_for(record, is_async=is_async, threads=threads))


def _of_backend(backend: Any, is_async: bool, *, is_own: bool = False) -> Shelf:
    if has(backend, "store", "fencelock.backends.memory", "Store"):
        return MemoryShelf(backend.store)
    if has(backend, "_topology", "fencelock.backends.redis.topology", "Topology"):
        from fencelock.schedule.shelves.redis import RedisShelf

        return RedisShelf(backend._topology, is_async=is_async)
    from fencelock.schedule.shelves.registers import RegisterShelf
    from fencelock.schedule.shelves.sql import SQLShelf, closer, connector

    make = cells_of(backend, is_async=is_async)
    if make is not None:
        return RegisterShelf(backend.name, make)
    found = connector(backend)
    if found is None:
        raise ConfigurationError(
            f"the {backend.name} backend has no one place for the record of a schedule: give record=, a URL "
            "or a function that makes a connection"
        )
    connect, table = found
    steps = steps_for(connect, is_async=is_async, threads=True)
    return SQLShelf(backend.name, steps, table, closer(backend) if is_own else None)
