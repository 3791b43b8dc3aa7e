"""python-redis-lock: a list wakes one waiter, which then competes; renewal by a thread; no token.

Settings: `auto_renewal`, which is documented for sections that may outlast the expiry; so its lock is
believed until it is released: it offers no other word, and a renewal that fails ends its thread in silence.
`expire` counts in whole seconds, and 0 would be no expiry at all, so it is rounded up. It waits by trying
without blocking: its own timeouts are whole seconds, 0.5 would be for ever.
"""

from __future__ import annotations

import logging
import math
import threading
from typing import Any, Literal

from chaos.peers import Believed, attempts, connect, library, mine
from chaos.subject import Ask, Traits

__all__ = ["blocking"]

redis_lock = library("python-redis-lock", "redis_lock")
redis = library("python-redis-lock", "redis")
library("python-redis-lock", "redis.sentinel")


class Blocking:
    flavour: Literal["blocking", "asyncio"] = "blocking"
    traits = Traits()

    def __init__(self, url: str) -> None:
        threading.excepthook = _renewal_ended
        logging.getLogger("redis_lock").setLevel(logging.CRITICAL)
        self._client = connect(redis, url)

    def acquire(self, ask: Ask) -> Believed | None:
        lock = redis_lock.Lock(self._client, ask.name, expire=math.ceil(ask.ttl), auto_renewal=True)
        for _ in attempts(ask):
            if lock.acquire(blocking=False):
                return Believed(lock.id, mine(), lock.release)
        return None

    def close(self) -> None:
        self._client.close()


def _renewal_ended(how: Any) -> None:
    """A renewal that fails ends its thread; nobody is told, and nobody needs to see the traceback."""


def blocking(url: str, client: str) -> Any:
    """Make a subject of the blocking flavour."""
    return Blocking(url)
