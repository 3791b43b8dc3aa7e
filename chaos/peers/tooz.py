"""tooz on Redis, where it wraps redis-py's Lock: renewal by a heartbeat; no queue, no token.

Settings: a coordinator with `start_heart`, which its documentation asks for where locks are to be kept; so
its lock is believed for as long as `acquired` says so. `lock_timeout` counts in whole seconds and is rounded
up. Its documentation asks for a Redis in AOF mode, and gets it. Its `stop` keeps the connections, which are
closed by hand.
"""

from __future__ import annotations

import logging
import math
import threading
import uuid
from typing import Any, Literal

from chaos.peers import ANSWER, Believed, library, sentinels
from chaos.subject import Ask, Traits

__all__ = ["blocking"]

coordination = library("tooz", "tooz.coordination")
library("tooz", "tooz.drivers.redis")


class Blocking:
    flavour: Literal["blocking", "asyncio"] = "blocking"
    traits = Traits()

    def __init__(self, url: str, client: str) -> None:
        logging.getLogger("tooz").setLevel(logging.CRITICAL)
        self._url, self._name = address(url), client
        self._latch = threading.Lock()
        self._coordinator: Any = None

    def acquire(self, ask: Ask) -> Believed | None:
        lock = self._started(ask.ttl).get_lock(ask.name.encode())
        if not lock.acquire(blocking=ask.timeout):
            return None
        return Believed(uuid.uuid4().hex, lambda: lock.acquired, lock.release)

    def _started(self, ttl: float) -> Any:
        with self._latch:
            if self._coordinator is None:
                seconds = math.ceil(ttl)
                options = f"lock_timeout={seconds}&timeout={seconds}&socket_timeout={ANSWER:g}"
                made = coordination.get_coordinator(
                    f"{self._url}{options}&socket_connect_timeout={ANSWER:g}", self._name.encode()
                )
                made.start(start_heart=True)
                self._coordinator = made
            return self._coordinator

    def close(self) -> None:
        if self._coordinator is not None:
            pool = self._coordinator._client.connection_pool
            try:
                self._coordinator.stop()
            finally:
                pool.disconnect()


def address(url: str) -> str:
    """The URL as tooz wants it, up to its options."""
    places, service = sentinels(url)
    if not places:
        return f"{url}?"
    (host, port), *others = places
    fallback = "".join(f"&sentinel_fallback={other}:{number}" for other, number in others)
    return f"redis://{host}:{port}?sentinel={service}{fallback}&"


def blocking(url: str, client: str) -> Any:
    """Make a subject of the blocking flavour."""
    return Blocking(url, client)
