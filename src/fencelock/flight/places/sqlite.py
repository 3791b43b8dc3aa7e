"""Records in an SQLite file: for all processes of one host.

    kept     namespace, name, record, deadline
    claims   namespace, name, owner, deadline
    boot     the boot that deadlines belong to

A file of its own, `locks-flight.db` beside `locks.db`: values may be large and are written often, and a lock
must not wait for them. How it is opened, closed at a fork and tried again is that of the lock file.

Deadlines are on the host's clock since boot, which nobody can set. So what was kept before a boot is thrown
away after it. Each write deletes a few records that are over; their pages are used again.

Not promised: that a value survives a crash of the machine (`synchronous=NORMAL`), nor anything between hosts.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fencelock.backends.sqlite.file import LockFile, _boot
from fencelock.core.ports import STEP_LIMIT
from fencelock.errors import BackendError
from fencelock.flight.places import CLAIM_KEPT, Place
from fencelock.flight.records import Kept, unpacked
from fencelock.runtime import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from fencelock.backends.sqlite import SQLiteBackend
    from fencelock.runtime.base import Runtime

__all__ = ["SQLitePlace", "ValueFile", "file_beside"]

APPLICATION_ID = 0x66656E66  # "fenf"
PURGED = 8
"""So many records that are over go with each write: more than come, so they run out."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS kept (
    namespace TEXT NOT NULL, name TEXT NOT NULL, record BLOB NOT NULL, deadline REAL NOT NULL,
    UNIQUE (namespace, name)
);
CREATE INDEX IF NOT EXISTS kept_until ON kept (deadline);
CREATE TABLE IF NOT EXISTS claims (
    namespace TEXT NOT NULL, name TEXT NOT NULL, owner BLOB NOT NULL, deadline REAL NOT NULL,
    UNIQUE (namespace, name)
);
CREATE INDEX IF NOT EXISTS claims_until ON claims (deadline);
CREATE TABLE IF NOT EXISTS boot (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL)
"""
TABLES = {"kept", "claims", "boot"}
LOOK = "SELECT record, deadline FROM kept WHERE namespace = ? AND name = ?"
KEEP = "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?)"
CLAIM = "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)"
FORGET = "DELETE FROM kept WHERE namespace = ? AND name = ?"
ANYBODYS = "DELETE FROM claims WHERE namespace = ? AND name = ?"
OWN = f"{ANYBODYS} AND owner = ? AND deadline > ?"
PURGE = "DELETE FROM {0} WHERE rowid IN (SELECT rowid FROM {0} WHERE deadline <= ? LIMIT ?)"
PURGES = (PURGE.format("kept"), PURGE.format("claims"))


def file_beside(locks: Path) -> Path:
    """Return the file that keeps the values of those who lock in `locks`."""
    return locks.with_name(f"{locks.stem}-flight{locks.suffix}")


class ValueFile(LockFile):
    """A file of records: opened, tried again and closed as a lock file is."""

    def _check_ours(self, db: sqlite3.Connection) -> None:
        (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        (application,) = db.execute("PRAGMA application_id").fetchone()
        if tables and application != APPLICATION_ID:
            raise BackendError(
                backend="sqlite", detail=f"{self.path} is a database of another kind, not of values"
            )

    def _prepare(self, db: sqlite3.Connection) -> None:
        if self._is_ready(db):
            return
        with self._durably(db):
            for statement in SCHEMA.split(";"):
                db.execute(statement)
            if not self._is_ready(db):
                db.execute("DELETE FROM kept")
                db.execute("DELETE FROM claims")
                db.execute("INSERT OR REPLACE INTO boot VALUES (1, ?)", (_boot(),))
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")

    def _is_ready(self, db: sqlite3.Connection) -> bool:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        return tables >= TABLES and db.execute("SELECT id FROM boot").fetchone() == (_boot(),)


class SQLitePlace(Place):
    """Records in a file."""

    def __init__(self, backend: SQLiteBackend, namespace: str, runtime: Runtime, *, is_own: bool) -> None:
        """Use the backend's own file if it was given for values, else the one beside."""
        path = backend._path if is_own else file_beside(backend._path)
        self._file = ValueFile(path, mkdir=backend._mkdir)
        self._namespace = namespace
        self._call = runtime.call

    async def _step(self, work: Callable[..., Any], *args: object) -> Any:
        return await self._call(self._file.step, clock.now() + STEP_LIMIT, work, self._namespace, *args)

    async def look(self, key: str) -> Kept | None:
        return _kept(await self._step(_look, key))

    async def claim(self, key: str, seen: bytes, owner: bytes) -> Kept | None:
        return _kept(await self._step(_claim, key, seen, owner))

    async def write(self, key: str, owner: bytes, record: bytes, seconds: float) -> bool:
        return bool(await self._step(_write, key, owner, record, seconds))

    async def drop(self, key: str, owner: bytes) -> None:
        await self._step(_drop, key, owner)

    async def put(self, key: str, record: bytes, seconds: float) -> None:
        await self._step(_write, key, None, record, seconds)

    async def forget(self, key: str) -> bool:
        return bool(await self._step(_forget, key))

    async def close(self) -> None:
        self._file.close()  # not by the runtime: its thread may have gone with the locks

    def leave(self) -> None:
        self._file.close()


# The steps ------------------------------------------------------------------------------------

Found = tuple[bytes, float] | None
"""A record and the seconds until it goes."""


def _kept(found: Found) -> Kept | None:
    return unpacked(found[0], found[1] * 1000) if found is not None else None


def _look(db: sqlite3.Connection, *key: str) -> Found:
    row = db.execute(LOOK, key).fetchone()
    left = row[1] - clock.now() if row is not None else 0.0
    return (row[0], left) if left > 0 else None


def _claim(db: sqlite3.Connection, namespace: str, key: str, seen: bytes, owner: bytes) -> Found:
    db.execute("BEGIN IMMEDIATE")
    found = _look(db, namespace, key)
    if found is None or found[0][: len(owner)] == seen:
        found = None
        db.execute(CLAIM, (namespace, key, owner, clock.now() + CLAIM_KEPT))
    db.execute("COMMIT")
    return found


def _write(
    db: sqlite3.Connection, namespace: str, key: str, owner: bytes | None, record: bytes, seconds: float
) -> bool:
    db.execute("BEGIN IMMEDIATE")
    now = clock.now()
    if owner is None:
        db.execute(ANYBODYS, (namespace, key))
    elif db.execute(OWN, (namespace, key, owner, now)).rowcount != 1:
        db.execute("ROLLBACK")
        return False
    db.execute(KEEP, (namespace, key, record, now + seconds))
    for purge in PURGES:
        db.execute(purge, (now, PURGED))
    db.execute("COMMIT")
    return True


def _drop(db: sqlite3.Connection, namespace: str, key: str, owner: bytes) -> None:
    db.execute(OWN, (namespace, key, owner, 0.0))


def _forget(db: sqlite3.Connection, *key: str) -> bool:
    db.execute("BEGIN IMMEDIATE")
    there = _look(db, *key) is not None
    db.execute(ANYBODYS, key)
    db.execute(FORGET, key)
    db.execute("COMMIT")
    return there
