"""pottery's Redlock, on one server or several: no renewal of its own, no queue, no token.

Settings: `auto_release_time` is the ttl; a Redlock for each acquisition, since a second `acquire` on one that
is held destroys it; `raise_on_redis_errors`, as it documents for those who want to know that too few masters
are up from a lock that is held; an answer has a second.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any, Literal

from chaos.peers import ANSWER, Claim, library, nodes
from chaos.subject import Ask, Traits
from holdfast.testing import boottime

__all__ = ["blocking"]

peer = library("pottery", "pottery")
redis = library("pottery", "redis")


class Blocking:
    flavour: Literal["blocking", "asyncio"] = "blocking"
    traits = Traits()

    def __init__(self, url: str) -> None:
        logging.getLogger("pottery").setLevel(logging.CRITICAL)
        self._masters = {
            redis.Redis.from_url(node, socket_timeout=ANSWER, socket_connect_timeout=ANSWER)
            for node in nodes(url)
        }

    def acquire(self, ask: Ask) -> Claim | None:
        lock = peer.Redlock(
            key=ask.name, masters=self._masters, auto_release_time=ask.ttl, raise_on_redis_errors=True
        )
        began = boottime()
        if not lock.acquire(timeout=ask.timeout):
            return None
        return Claim(uuid.uuid4().hex, began + ask.ttl, lock.release)

    def close(self) -> None:
        for master in self._masters:
            master.close()


def blocking(url: str, client: str) -> Any:
    """Make a subject of the blocking flavour."""
    return Blocking(url)
