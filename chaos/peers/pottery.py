"""pottery's Redlock, on one server or several: no renewal of its own, no queue, no token.

Settings: `auto_release_time` is the ttl; a Redlock for each acquisition, since a second `acquire` on one that
is held destroys it; `raise_on_redis_errors`, as it documents for those who want to know that too few masters
are up from a lock that is held; an answer has a second. It waits by attempts, and does not say when the last
one began, so each is made here: it is believed for the ttl, counted from before the one that got the lock.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any, Literal

from chaos.peers import Claim, attempts, connect, library, nodes
from chaos.subject import Ask, Traits

__all__ = ["blocking"]

peer = library("pottery", "pottery")
redis = library("pottery", "redis")
library("pottery", "redis.sentinel")


class Blocking:
    flavour: Literal["blocking", "asyncio"] = "blocking"
    traits = Traits()

    def __init__(self, url: str) -> None:
        logging.getLogger("pottery").setLevel(logging.CRITICAL)
        self._masters = {connect(redis, node) for node in nodes(url)}

    def acquire(self, ask: Ask) -> Claim | None:
        lock = peer.Redlock(
            key=ask.name, masters=self._masters, auto_release_time=ask.ttl, raise_on_redis_errors=True
        )
        for began in attempts(ask):
            if lock.acquire(blocking=False):
                return Claim(uuid.uuid4().hex, began + ask.ttl, lock.release)
        return None

    def close(self) -> None:
        for master in self._masters:
            master.close()


def blocking(url: str, client: str) -> Any:
    """Make a subject of the blocking flavour."""
    return Blocking(url)
