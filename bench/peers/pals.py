"""pals: session-level advisory locks over a SQLAlchemy engine; no ttl, no fencing token, nothing written.

Settings: its own; the Locker and the lock object are kept, the engine uses psycopg 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from bench.peers import Make

__all__ = ["blocking"]


@contextmanager
def blocking(url: str, driver: str = "psycopg") -> Iterator[Make]:
    scheme, _, place = url.partition("://")
    locker = import_module("pals").Locker("bench", f"{scheme}+{driver}://{place}")
    yield locker.lock
    locker.engine.dispose()
