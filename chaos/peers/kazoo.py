"""kazoo's locks on ZooKeeper: a fair queue of znodes, readers and writers; no token.

Settings: one started client for the process, with a session of the ttl, which repeats what a lost connection
has interrupted until it is done: by default a release is tried twice, and then its znode stays. Its
documentation asks for a listener that takes the lock for lost when the connection is suspended or the session
lost; so each lease listens, and that is its word of a loss. Otherwise `is_acquired` is believed.

Whether the connection has changed is asked from before kazoo looked at the queue for the last time: what
happened before that look, kazoo has seen. There its place in the line is seen, too: a request whose znode is
gone makes another.
"""

from __future__ import annotations

import logging
import threading
import uuid
from importlib import import_module
from typing import Any, Literal
from weakref import WeakSet

from chaos.peers import Believed
from chaos.peers.outside import PATH
from chaos.subject import Ask, Traits

__all__ = ["blocking"]

client, exceptions = import_module("kazoo.client"), import_module("kazoo.exceptions")
START = 15.0
RETRY = {"max_tries": -1, "max_delay": 1.0}


class Held(Believed):
    """A lease that hears of the connection."""

    def __init__(self, ask: Ask, lock: Any) -> None:
        self._ask = ask
        self.lost = False
        super().__init__(uuid.uuid4().hex, lambda: not self.lost and lock.is_acquired, lock.release)

    def hear(self, state: str) -> None:
        if not self.lost and not self._released:
            self.lost = True
            self._ask.lost(f"the connection is {state.lower()}")


class Blocking:
    flavour: Literal["blocking", "asyncio"] = "blocking"
    traits = Traits(modes=frozenset({"exclusive", "shared"}), fifo=True, losses=True)

    def __init__(self, url: str) -> None:
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
        self._hosts = url.partition("://")[2].partition("?")[0]
        self._starting, self._changing = threading.Lock(), threading.Lock()
        self._client: Any = None
        self._leases: WeakSet[Held] = WeakSet()
        self._breaks = 0
        """How often the connection was suspended or the session lost."""
        self._state = ""

    def acquire(self, ask: Ask) -> Held | None:
        connected = self._started(ask.ttl)
        make = connected.WriteLock if ask.mode == "exclusive" else connected.ReadLock
        lock = make(f"{PATH}/{ask.name}", uuid.uuid4().hex)
        looks = self._watched(lock, ask)
        if not _acquired(lock, ask.timeout):
            return None
        lease = Held(ask, lock)
        with self._changing:
            self._leases.add(lease)
            if self._breaks > looks[-1]:
                lease.hear(self._state)
        return lease

    def _watched(self, lock: Any, ask: Ask) -> list[int]:
        """See each look at the queue; return the list of what `_breaks` was before each."""
        look = lock._get_predecessor
        looks: list[int] = []
        places: list[str] = []

        def seen(node: str) -> Any:
            looks.append(self._breaks)
            if node not in places:
                tell = ask.requeued if places else ask.queued
                places.append(node)
                tell()
            return look(node)

        lock._get_predecessor = seen
        return looks

    def _started(self, ttl: float) -> Any:
        with self._starting:
            if self._client is None:
                made = client.KazooClient(
                    self._hosts, timeout=ttl, connection_retry=RETRY, command_retry=RETRY
                )
                made.add_listener(self._changed)
                made.start(timeout=START)
                self._client = made
            return self._client

    def _changed(self, state: str) -> None:
        if state not in {"SUSPENDED", "LOST"}:
            return
        with self._changing:
            self._breaks += 1
            self._state = str(state)
            leases = [*self._leases]
        for lease in leases:
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
