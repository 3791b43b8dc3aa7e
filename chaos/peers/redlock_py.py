"""redlock-py, on one server or several: asks them one after the other; no renewal, no queue, no token.

Settings: it gives the validity that is left when `lock` returns, and is believed for that long. It waits by
counting retries; here one each, repeated until the time is over, with a pause of its own that fits the small
ttl of the workload. An answer has a second.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Literal

from chaos.peers import PAUSE, Claim, attempts, connect, library, nodes
from chaos.subject import Ask, Traits
from fencelock.testing import boottime

__all__ = ["blocking"]

redis = library("redlock-py", "redis")
library("redlock-py", "redis.sentinel")
redlock = library("redlock-py", "redlock")


class Blocking:
    flavour: Literal["blocking", "asyncio"] = "blocking"
    traits = Traits()

    def __init__(self, url: str) -> None:
        logging.getLogger().setLevel(logging.CRITICAL)  # it logs to the root
        self._servers = [connect(redis, node) for node in nodes(url)]
        self._manager = redlock.Redlock(self._servers, retry_count=1, retry_delay=PAUSE)

    def acquire(self, ask: Ask) -> Claim | None:
        for _ in attempts(ask):
            lock = self._manager.lock(ask.name, int(ask.ttl * 1000))
            if lock:
                until = boottime() + lock.validity / 1000
                return Claim(lock.key.decode(), until, partial(self._manager.unlock, lock))
        return None

    def close(self) -> None:
        for server in self._servers:
            server.close()


def blocking(url: str, client: str) -> Any:
    """Make a subject of the blocking flavour."""
    return Blocking(url)
