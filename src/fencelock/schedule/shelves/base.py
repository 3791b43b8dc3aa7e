"""The contract of a shelf, and the one in memory, which is the reference."""

from __future__ import annotations

import hashlib
import time
import weakref
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from fencelock.runtime import clock, locks

__all__ = ["MemoryShelf", "Page", "Shelf", "page_id"]

START = time.time() - clock.now()
"""The time of day when the monotonic clock stood at 0, as this process saw it first."""


class Page(NamedTuple):
    """What a shelf has under a key."""

    text: str | None
    version: int
    """0 if there is no page."""
    now: float | None
    """The store's time in seconds since 1970, if it has one."""


class Shelf(ABC):
    """Keeps pages. The blocking ones never suspend."""

    where: str
    """One word for messages: `redis`."""

    @abstractmethod
    async def read(self, key: str) -> Page:
        """Return the page under a key. Raises `BackendError`."""

    @abstractmethod
    async def write(self, key: str, text: str, version: int) -> bool:
        """Write a page if its version is this one; say whether it was. Raises `BackendError`.

        After `BackendUnavailable` it may have been written.
        """

    async def close(self) -> None:
        """Give back every connection. A later call opens others."""


_memories: weakref.WeakKeyDictionary[Any, dict[str, tuple[str, int]]] = weakref.WeakKeyDictionary()
_latch = locks.lock()


class MemoryShelf(Shelf):
    """Pages in this process, beside the locks of a memory backend."""

    where = "memory"

    def __init__(self, store: Any) -> None:
        with _latch:
            self._pages = _memories.setdefault(store, {})
        self._store = store  # as long as somebody writes here, others find the same pages

    async def read(self, key: str) -> Page:
        text, version = self._pages.get(key, (None, 0))
        return Page(text, version, START + clock.now())

    async def write(self, key: str, text: str, version: int) -> bool:
        with _latch:
            if self._pages.get(key, (None, 0))[1] != version:
                return False
            self._pages[key] = text, version + 1
            return True


def page_id(namespace: str, kind: str, name: str) -> str:
    """Return the key of a page. No two namespaces, kinds or names have the same."""
    space = namespace.encode()
    return hashlib.sha256(b"%d:%b%b:%b" % (len(space), space, kind.encode(), name.encode())).hexdigest()
