"""Where a `Store` keeps its keys: in a table of SQL, or in hashes of Redis.

A place does one step at a time, in a transaction or a script of its own. For SQL see `connections/steps.py`;
clients of redis-py are used as they are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from importlib.resources import files
from typing import Any

from fencelock.connections import is_redis_client
from fencelock.connections.steps import Steps, steps_for
from fencelock.errors import ConfigurationError, LeaseLost, StaleToken
from fencelock.idempotency import table
from fencelock.idempotency.records import Attempt, Crashed, Done, FingerprintChanged, Key, decoded
from fencelock.names import shown

__all__ = ["Place", "RedisPlace", "SQLPlace", "place_for"]

LUA = files("fencelock.idempotency") / "lua"
CLAIM = (LUA / "claim.lua").read_text(encoding="utf-8")
CRASHED = (LUA / "crashed.lua").read_text(encoding="utf-8")
SETTLE = (LUA / "settle.lua").read_text(encoding="utf-8")
PREFIX = "fencelock:once:"


class Place(ABC):
    """Where keys are kept. The blocking ones never suspend."""

    @abstractmethod
    async def claim(self, key: Key, ttl: float) -> Attempt | Done | float:
        """Begin an attempt, or say that it was done, or for how many seconds somebody else has it."""

    @abstractmethod
    async def finish(self, key: Key, attempt: Attempt, result: str, retention: float) -> None:
        """Keep the result of an attempt. Raises `StaleToken` if another has begun since."""

    @abstractmethod
    async def extend(self, key: Key, attempt: Attempt, ttl: float) -> None:
        """Let an attempt end so many seconds from now: at once, with 0."""

    @abstractmethod
    async def crashed(self) -> list[Crashed]:
        """Return the attempts that did not end."""


def place_for(target: Any, *, is_async: bool, threads: bool = False) -> Place:
    """Return the place that a target stands for. Raises `ConfigurationError`."""
    wanted, other = ("redis.asyncio", "redis") if is_async else ("redis", "redis.asyncio")
    if is_redis_client(target, wanted):
        return RedisPlace(target, is_async=is_async)
    if is_redis_client(target, other):
        raise ConfigurationError(
            f"target={shown(target)} is of the other flavour: give Store a redis.Redis and AsyncStore a "
            "redis.asyncio.Redis"
        )
    if not callable(target):
        raise ConfigurationError(
            f"target={shown(target)} is neither a client of redis-py nor a function that makes a connection"
        )
    return SQLPlace(steps_for(target, is_async=is_async, threads=threads))


# SQL ------------------------------------------------------------------------------------------


class SQLPlace(Place):
    """A table, a step at a time."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def claim(self, key: Key, ttl: float) -> Attempt | Done | float:
        return await self._steps.do(
            lambda door: table.claim(door, key, ttl),
            lambda door: table.peek(door, key),  # those who wait look often: they shall not write
        )

    async def finish(self, key: Key, attempt: Attempt, result: str, retention: float) -> None:
        await self._steps.do(lambda door: table.finish(door, key, attempt, result, retention))

    async def extend(self, key: Key, attempt: Attempt, ttl: float) -> None:
        await self._steps.do(lambda door: table.extend(door, key, attempt, ttl))

    async def crashed(self) -> list[Crashed]:
        return await self._steps.do(table.crashed)


# Redis ----------------------------------------------------------------------------------------


class RedisPlace(Place):
    """Hashes on Redis or Valkey, by a client of redis-py.

    What a server forgets (eviction, a crash, a failover) may be done again: see the how-to.
    """

    def __init__(self, client: Any, *, is_async: bool) -> None:
        self._client = client
        self._is_async = is_async

    async def _eval(self, script: str, key: Any, *values: str | int) -> Any:
        from redis.exceptions import RedisError

        from fencelock.backends.redis.failures import of_client

        try:
            found = self._client.eval(script, 1, key, *values)
            if self._is_async:
                found = await found
        except RedisError as error:
            raise of_client(error) from error
        return found

    async def claim(self, key: Key, ttl: float) -> Attempt | Done | float:
        found = await self._eval(
            CLAIM, PREFIX + key.id, key.name, key.print, _ms(ttl), _ms(table.KEPT_CRASHED)
        )
        kind, *rest = map(_text, found)
        if kind == "attempt":
            return Attempt(key.name, int(rest[0]), int(rest[1]))
        if kind == "done":
            return Done(decoded(rest[0]))
        if kind == "busy":
            return int(rest[0]) / 1000
        raise FingerprintChanged(key=key.name)

    async def finish(self, key: Key, attempt: Attempt, result: str, retention: float) -> None:
        await self._settle(key, attempt, _ms(retention), max(1, _ms(retention)), result)

    async def extend(self, key: Key, attempt: Attempt, ttl: float) -> None:
        await self._settle(key, attempt, _ms(ttl), _ms(ttl + table.KEPT_CRASHED), "")

    async def _settle(self, key: Key, attempt: Attempt, ms: int, kept: int, result: str) -> None:
        told = _text(await self._eval(SETTLE, PREFIX + key.id, attempt.token, ms, kept, result))
        if told == "ok":
            return
        if told in REASONS:
            raise LeaseLost(name=key.name, token=attempt.token, reason=REASONS[told])
        raise StaleToken(resource=key.name, token=attempt.token, newest=int(told))

    async def crashed(self) -> list[Crashed]:
        scan = self._client.scan_iter(match=f"{PREFIX}*", count=1000)
        keys = [key async for key in scan] if self._is_async else list(scan)
        found = []
        for key in keys:
            row = await self._eval(CRASHED, key)
            if row:
                found.append(Crashed(_text(row[0]), int(row[1]), int(row[2]) / 1000))
        return sorted(found, key=lambda one: -one.since)


REASONS = {"gone": "its key was deleted", "ended": "it has ended already"}


def _ms(seconds: float) -> int:
    return math.ceil(seconds * 1000)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
