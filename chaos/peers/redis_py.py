"""redis-py's own Lock, in both flavours: no renewal, no queue, no token.

Settings: `timeout` is the ttl; `blocking_timeout` the time to wait; `sleep` a tenth of the default, which is
meant for longer ttls than those of the workload; a Lock for each acquisition, as its documentation shows; an
answer has a second, or one that is swallowed would hang a thread for ever.
"""

from __future__ import annotations

import uuid
from typing import Any, Literal

from chaos.peers import ANSWER, Claim, library
from chaos.subject import Ask, Traits
from holdfast.testing import boottime

__all__ = ["asyncio", "blocking"]

SLEEP = 0.01
redis = library("redis-py", "redis")
library("redis-py", "redis.asyncio")


class Blocking:
    flavour: Literal["blocking", "asyncio"] = "blocking"
    traits = Traits()

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url, socket_timeout=ANSWER, socket_connect_timeout=ANSWER)

    def acquire(self, ask: Ask) -> Claim | None:
        lock = self._client.lock(ask.name, timeout=ask.ttl, blocking_timeout=ask.timeout, sleep=SLEEP)
        began = boottime()
        if not lock.acquire():
            return None
        return Claim(uuid.uuid4().hex, began + ask.ttl, lock.release)

    def close(self) -> None:
        self._client.close()


class Asyncio:
    flavour: Literal["blocking", "asyncio"] = "asyncio"
    traits = Traits()

    def __init__(self, url: str) -> None:
        self._client = redis.asyncio.Redis.from_url(url, socket_timeout=ANSWER, socket_connect_timeout=ANSWER)

    async def acquire(self, ask: Ask) -> Claim | None:
        lock = self._client.lock(ask.name, timeout=ask.ttl, blocking_timeout=ask.timeout, sleep=SLEEP)
        began = boottime()
        if not await lock.acquire():
            return None
        return Claim(uuid.uuid4().hex, began + ask.ttl, lock.release)

    async def close(self) -> None:
        await self._client.aclose()


def blocking(url: str, client: str) -> Any:
    """Make a subject of the blocking flavour."""
    return Blocking(url)


def asyncio(url: str, client: str) -> Any:
    """Make a subject of the asyncio flavour."""
    return Asyncio(url)
