"""Locks and releases many names, each once, and says what is left of them after 1,000 and at the end.

many_names.py memory COUNT | many_names.py sqlite COUNT FILE

Every name is used once: mostly plain locks; now and then a semaphore, a reader, a try that fails,
a wait that times out, since each of these has its own way to leave something behind.
"""

from __future__ import annotations

import gc
import sqlite3
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resources import say

from fencelock import AcquireTimeout, Client
from fencelock.backends.memory import MemoryBackend, Store
from fencelock.testing.view import kept

FIRST = 1_000
RARE = 97
Look = Callable[[], dict[str, Any]]


def rss() -> int:
    """Resident memory of this process, in KiB."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def use(locks: Client, name: str, number: int) -> None:
    """Lock a name and release it; now and then in an unusual way."""
    if number % RARE:
        with locks.lock(name):
            return
    with locks.lock(name, metadata={"n": number}, reentrant=True):
        assert locks.lock(name).try_acquire() is None
        try:
            locks.lock(name).acquire(timeout=0.001)
        except AcquireTimeout:
            pass
        with locks.semaphore(f"{name}/permit", 3), locks.rwlock(f"{name}/read").read():
            locks.force_release(f"{name}/other")


def use_all(locks: Client, count: int, look: Look) -> None:
    for number in range(count):
        use(locks, f"{uuid.UUID(int=number)}#send_email", number)
        if number + 1 == FIRST:
            say(**look())
    say(**look())


def client_sizes(locks: Client) -> dict[str, int]:
    return {"parts with something in them": len(kept(locks))}


def in_memory(count: int) -> None:
    store = Store()
    backend = MemoryBackend(store)
    with Client(backend) as locks:

        def look() -> dict[str, Any]:
            sizes = client_sizes(locks) | {"queues": len(store.queues), "signals": len(backend._signals)}
            return {"sizes": sizes, "threads": threading.active_count(), "rss": rss()}

        use_all(locks, count, look)


def in_sqlite(count: int, path: Path) -> None:
    with Client(f"sqlite://{path}") as locks:

        def look() -> dict[str, Any]:
            db = sqlite3.connect(path, timeout=10)
            try:
                before = Path(f"{path}-wal").stat().st_size
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type='table'")]
                rows = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}
                (pages,) = db.execute("PRAGMA page_count").fetchone()
            finally:
                db.close()
            files = {file.name: file.stat().st_size for file in path.parent.iterdir()}
            return {
                "sizes": client_sizes(locks) | rows,
                "threads": threading.active_count(),
                "pages": pages,
                "files": files,
                "wal_before_checkpoint": before,
                "rss": rss(),
            }

        use_all(locks, count, look)


if __name__ == "__main__":
    if sys.argv[1] == "memory":
        in_memory(int(sys.argv[2]))
    else:
        in_sqlite(int(sys.argv[2]), Path(sys.argv[3]))
