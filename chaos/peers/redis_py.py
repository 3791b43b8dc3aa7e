"""redis-py's own Lock, in both flavours: no renewal, no queue, no token.

Settings: `timeout` is the ttl; `blocking_timeout` the time to wait; `sleep` a tenth of the default, which is
meant for longer ttls than those of the workload; a Lock for each acquisition, as its documentation shows; an
answer has a second. It documents `timeout` as the most that a lock lives: so it is believed for the ttl,
counted from before the attempt that got it, which a `lock_class` notes.
"""

from __future__ import annotations

import uuid
from typing import Any, Literal

from chaos.peers import Claim, connect, library
from chaos.subject import Ask, Traits
from fencelock.testing import boottime

__all__ = ["asyncio", "blocking"]

SLEEP = 0.01
redis = library("redis-py", "redis")
tasks = library("redis-py", "redis.asyncio")
library("redis-py", "redis.asyncio.sentinel")
threads_lock, tasks_lock = library("redis-py", "redis.lock"), library("redis-py", "redis.asyncio.lock")


class Lock(threads_lock.Lock):  # type: ignore[misc, name-defined]
    """One that notes when its last attempt began; both flavours attempt by `do_acquire`."""

    def do_acquire(self, token: Any) -> Any:
        self.began = boottime()
        return super().do_acquire(token)


class TaskLock(tasks_lock.Lock):  # type: ignore[misc, name-defined]
    """The same for tasks."""

    async def do_acquire(self, token: Any) -> Any:
        self.began = boottime()
        return await super().do_acquire(token)


def terms(ask: Ask) -> dict[str, Any]:
    """How a lock is asked for."""
    return {"timeout": ask.ttl, "blocking_timeout": ask.timeout, "sleep": SLEEP}


class Blocking:
    flavour: Literal["blocking", "asyncio"] = "blocking"
    traits = Traits()

    def __init__(self, url: str) -> None:
        self._client = connect(redis, url)

    def acquire(self, ask: Ask) -> Claim | None:
        lock = self._client.lock(ask.name, lock_class=Lock, **terms(ask))
        if not lock.acquire():
            return None
        return Claim(uuid.uuid4().hex, lock.began + ask.ttl, lock.release)

    def close(self) -> None:
        self._client.close()


class Asyncio:
    flavour: Literal["blocking", "asyncio"] = "asyncio"
    traits = Traits()

    def __init__(self, url: str) -> None:
        self._client = connect(tasks, url)

    async def acquire(self, ask: Ask) -> Claim | None:
        lock = self._client.lock(ask.name, lock_class=TaskLock, **terms(ask))
        if not await lock.acquire():
            return None
        return Claim(uuid.uuid4().hex, lock.began + ask.ttl, lock.release)

    async def close(self) -> None:
        await self._client.aclose()


def blocking(url: str, client: str) -> Any:
    """Make a subject of the blocking flavour."""
    return Blocking(url)


def asyncio(url: str, client: str) -> Any:
    """Make a subject of the asyncio flavour."""
    return Asyncio(url)
