"""kazoo's locks on ZooKeeper: a fair queue of znodes, readers and writers; no token.

Settings: one started client for the process, with a session of the ttl. Its documentation asks for a listener
that takes the lock for lost when the connection is suspended or the session lost; so each lease listens, and
that is its word of a loss. Otherwise `is_acquired` is believed.
"""

from __future__ import annotations

import threading
import uuid
from importlib import import_module
from typing import Any, Literal
from weakref import WeakSet

from chaos.peers import Believed
from chaos.subject import Ask, Traits

__all__ = ["blocking"]

client, exceptions = import_module("kazoo.client"), import_module("kazoo.exceptions")


class Held(Believed):
    """A lease that hears of the connection."""

    def __init__(self, ask: Ask, lock: Any, give_back: Any) -> None:
        self._ask = ask
        self.lost = False
        super().__init__(uuid.uuid4().hex, lambda: not self.lost and lock.is_acquired, give_back)

    def hear(self, state: str) -> None:
        if state in {"SUSPENDED", "LOST"} and not self.lost and not self._released:
            self.lost = True
            self._ask.lost(f"the connection is {state.lower()}")


class Blocking:
    flavour: Literal["blocking", "asyncio"] = "blocking"
    traits = Traits(modes=frozenset({"exclusive", "shared"}), fifo=True, losses=True)

    def __init__(self, url: str) -> None:
        self._hosts = url.partition("://")[2].partition("?")[0]
        self._latch = threading.Lock()
        self._client: Any = None
        self._leases: WeakSet[Held] = WeakSet()

    def acquire(self, ask: Ask) -> Held | None:
        connected = self._started(ask.ttl)
        make = connected.WriteLock if ask.mode == "exclusive" else connected.ReadLock
        lock = make(f"/chaos-kazoo/{ask.name}", uuid.uuid4().hex)
        if not _acquired(lock, ask.timeout):
            return None
        lease = Held(ask, lock, lock.release)
        self._leases.add(lease)
        if connected.state != "CONNECTED":
            lease.hear(connected.state)
        return lease

    def _started(self, ttl: float) -> Any:
        with self._latch:
            if self._client is None:
                self._client = client.KazooClient(self._hosts, timeout=ttl)
                self._client.add_listener(self._changed)
                self._client.start(timeout=15)
            return self._client

    def _changed(self, state: str) -> None:
        for lease in [*self._leases]:
            lease.hear(str(state))

    def close(self) -> None:
        if self._client is not None:
            self._client.stop()
            self._client.close()


def _acquired(lock: Any, timeout: float) -> bool:
    try:
        return bool(lock.acquire(timeout=timeout))
    except exceptions.LockTimeout:
        return False


def blocking(url: str, client: str) -> Any:
    """Make a subject of the blocking flavour."""
    return Blocking(url)
