"""Records in memory: for one process, whose threads and tasks share them.

They belong to the queues of `memory://`, so that whoever shares locks shares values. After as many writes as
there were records, those that are over are swept out: a write costs O(1) on the average, and what is kept is
at most twice what is alive.

Not promised: anything beyond this process. A forked child starts with nothing.
"""

from __future__ import annotations

import os
import weakref

from fencelock.backends.memory import Store
from fencelock.flight.places import CLAIM_KEPT, Place
from fencelock.flight.records import Kept, unpacked
from fencelock.runtime import clock, locks

__all__ = ["MemoryPlace"]

Key = tuple[str, str]
SWEEP_FROM = 100


class Shelf:
    """Records and claims, each with the time when it is over."""

    def __init__(self) -> None:
        self.lock = locks.lock()
        self.records: dict[Key, tuple[bytes, float]] = {}
        self.claims: dict[Key, tuple[bytes, float]] = {}
        self._writes = 0
        self._sweep_after = SWEEP_FROM

    def sweep(self) -> None:
        """Count a write, and now and then take out what is over."""
        self._writes += 1
        if self._writes < self._sweep_after:
            return
        now = clock.now()
        for table in (self.records, self.claims):
            for key in [key for key, (_, deadline) in table.items() if deadline <= now]:
                del table[key]
        self._writes = 0
        self._sweep_after = max(SWEEP_FROM, len(self.records) + len(self.claims))


_shelves: weakref.WeakKeyDictionary[Store, Shelf] = weakref.WeakKeyDictionary()
_shelves_lock = locks.lock()


def _after_fork() -> None:
    global _shelves, _shelves_lock
    _shelves, _shelves_lock = weakref.WeakKeyDictionary(), locks.lock()


os.register_at_fork(after_in_child=_after_fork)


class MemoryPlace(Place):
    """Records in memory."""

    def __init__(self, store: Store, namespace: str) -> None:
        self._namespace = namespace
        self._store = store  # the shelf lives as long as the queues do
        with _shelves_lock:
            self._shelf = _shelves.setdefault(store, Shelf())

    def _found(self, key: str, now: float) -> Kept | None:
        record, deadline = self._shelf.records.get((self._namespace, key), (b"", 0.0))
        return unpacked(record, (deadline - now) * 1000) if deadline > now else None

    def _claimed(self, key: str) -> bytes | None:
        owner, deadline = self._shelf.claims.get((self._namespace, key), (None, 0.0))
        return owner if deadline > clock.now() else None

    async def look(self, key: str) -> Kept | None:
        with self._shelf.lock:
            return self._found(key, clock.now())

    async def claim(self, key: str, seen: bytes, owner: bytes) -> Kept | None:
        with self._shelf.lock:
            now = clock.now()
            kept = self._found(key, now)
            if kept is not None and kept.owner != seen:
                return kept
            self._shelf.claims[self._namespace, key] = owner, now + CLAIM_KEPT
            self._shelf.sweep()
            return None

    async def write(self, key: str, owner: bytes, record: bytes, seconds: float) -> bool:
        with self._shelf.lock:
            if self._claimed(key) != owner:
                return False
            self._replace(key, record, seconds)
            return True

    def _replace(self, key: str, record: bytes, seconds: float) -> None:
        self._shelf.claims.pop((self._namespace, key), None)
        self._shelf.records[self._namespace, key] = record, clock.now() + seconds
        self._shelf.sweep()

    async def drop(self, key: str, owner: bytes) -> None:
        with self._shelf.lock:
            if self._claimed(key) == owner:
                del self._shelf.claims[self._namespace, key]

    async def put(self, key: str, record: bytes, seconds: float) -> None:
        with self._shelf.lock:
            self._replace(key, record, seconds)

    async def forget(self, key: str) -> bool:
        with self._shelf.lock:
            there = self._found(key, clock.now()) is not None
            self._shelf.claims.pop((self._namespace, key), None)
            self._shelf.records.pop((self._namespace, key), None)
            return there
