"""python-redis-lock: a list wakes one waiter, which then competes; renewal by a thread; no token.

Settings: `auto_renewal`, which is documented for sections that may outlast the expiry; so its lock is
believed until it is released: it offers no other word, and a renewal that fails ends its thread in silence.
`expire` counts in whole seconds, and 0 would be no expiry at all, so it is rounded up. It waits by trying
without blocking: its own timeouts are whole seconds, 0.5 would be for ever.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from typing import Any, Literal

from chaos.peers import ANSWER, Believed, library
from chaos.subject import Ask, Traits
from holdfast.testing import boottime

__all__ = ["blocking"]

PAUSE = 0.02
redis_lock = library("python-redis-lock", "redis_lock")
redis = library("python-redis-lock", "redis")


class Blocking:
    flavour: Literal["blocking", "asyncio"] = "blocking"
    traits = Traits()

    def __init__(self, url: str) -> None:
        threading.excepthook = _renewal_ended
        logging.getLogger("redis_lock").setLevel(logging.CRITICAL)
        self._client = redis.StrictRedis.from_url(url, socket_timeout=ANSWER, socket_connect_timeout=ANSWER)

    def acquire(self, ask: Ask) -> Believed | None:
        deadline = boottime() + ask.timeout
        lock = redis_lock.Lock(self._client, ask.name, expire=math.ceil(ask.ttl), auto_renewal=True)
        while not lock.acquire(blocking=False):
            left = deadline - boottime()
            if left <= 0:
                return None
            time.sleep(min(left, random.uniform(0.5, 1.5) * PAUSE))
        return Believed(lock.id, lambda: True, lock.release)

    def close(self) -> None:
        self._client.close()


def _renewal_ended(how: Any) -> None:
    """A renewal that fails ends its thread; nobody is told, and nobody needs to see the traceback."""


def blocking(url: str, client: str) -> Any:
    """Make a subject of the blocking flavour."""
    return Blocking(url)
