"""The lock file: opening it, its tokens across crashes, and trying again while it is locked.

    queue   token      order and fencing token: AUTOINCREMENT never gives a number twice
            namespace, name, owner, mode, max_holders
            ttl, deadline   seconds; the deadline is on the host's clock since boot
            since, confirmed, client, host, pid, metadata   for people
            mailbox    where to ring when its turn has come, while it waits
    meta    boot       the boot that deadlines belong to
            reserved   every token up to here may have been given: durable before it is given

After a crash of the machine the newest transactions may be missing, and AUTOINCREMENT would
give their tokens again. So tokens below `reserved` are given freely, the mark is moved with a
synchronous commit, a million at a time, and after a boot tokens begin above it.

Tokens begin at the time of day in microseconds: if the file is deleted, a new one goes on
above the old one's tokens. A file that was deleted or replaced is noticed at the next step,
and so is a counter that an operator has deleted.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar, cast

from fencelock.backends import RIGHTS
from fencelock.backends.sqlite.place import check_place
from fencelock.errors import BackendError, BackendUnavailable, ConfigurationError
from fencelock.runtime import clock, locks

__all__ = ["BLOCK", "LockFile", "TokensFell"]

T = TypeVar("T")

APPLICATION_ID = 0x66656E63  # "fenc"
VERSION = 1
BLOCK = 1_000_000

SCHEMA = """
CREATE TABLE IF NOT EXISTS queue (
    token INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    mode TEXT NOT NULL,
    max_holders INTEGER NOT NULL,
    ttl REAL NOT NULL,
    deadline REAL NOT NULL,
    since REAL NOT NULL,
    confirmed INTEGER NOT NULL,
    client TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    metadata TEXT,
    mailbox TEXT
);
CREATE INDEX IF NOT EXISTS queue_by_name ON queue (namespace, name, token);
CREATE TABLE IF NOT EXISTS meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot TEXT NOT NULL,
    reserved INTEGER NOT NULL
);
"""
RESERVE = "INSERT OR REPLACE INTO meta (one, boot, reserved) VALUES (1, ?, ?)"

BUSY = object()
"""What an attempt returns that should be made again."""
LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
ACCESS = f"check the permissions of the file and its folder, see {RIGHTS}"
HINTS = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: f"it cannot be written: {ACCESS}",
    sqlite3.SQLITE_CANTOPEN: f"it cannot be opened: {ACCESS}",
    sqlite3.SQLITE_PERM: f"access is denied: {ACCESS}",
    sqlite3.SQLITE_IOERR: "reading or writing it failed",
}
SHORTEST_PAUSE = 0.00002
LONGEST_PAUSE = 0.0005

_gate = locks.rlock()
"""One try at a time in this process: threads do not contend for the file, and a fork finds nobody at it."""
_files: weakref.WeakSet[LockFile] = weakref.WeakSet()


class TokensFell(Exception):
    """A token was drawn that is below what was given before."""

    def __init__(self, token: int) -> None:
        super().__init__(token)
        self.token = token


class LockFile:
    """The file and one connection to it, shared by the threads of a client."""

    def __init__(self, path: Path, *, mkdir: bool) -> None:
        self.path = path
        self._where = str(path)
        self._mkdir = mkdir
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._reserved = 0
        _files.add(self)

    def __del__(self) -> None:
        # A client that was never closed: Python 3.13 warns of a connection that is garbage and still open.
        self._disconnect()

    # Steps ------------------------------------------------------------------------------

    def step(self, deadline: float, work: Callable[..., T], *args: object) -> T:
        """Run `work(db, …)`, again and again while another process has the file locked."""
        if _is_here():
            raise self._unavailable("a signal handler cannot use it in the middle of a step", transient=False)
        pause = SHORTEST_PAUSE
        while True:
            # A lock taken by `with` is not left behind by Ctrl-C, and nobody keeps it for longer
            # than one try takes: it needs no timeout.
            with _gate:
                result = self._attempt(work, args)
            if result is not BUSY:
                return cast(T, result)
            if clock.now() >= deadline:
                raise self._unavailable("the file is locked by another process")
            time.sleep(pause * (0.5 + random.random()))
            pause = min(pause * 2, LONGEST_PAUSE)

    def _attempt(self, work: Callable[..., object], args: tuple[object, ...]) -> object:
        try:
            return work(self._connection(), *args)
        except sqlite3.Error as error:
            self._roll_back()
            return self._failed(error)
        except TokensFell as fall:
            self._roll_back()
            return self._raise_tokens(fall.token)
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._db is not None:
            _roll_back(self._db)

    # Tokens -----------------------------------------------------------------------------

    def _check_token(self, token: int | None) -> int:
        """Return a token that was drawn; raise if the counter was set back by somebody."""
        assert token is not None
        if token < self._reserved - BLOCK:
            raise TokensFell(token)
        return token

    def _given(self, db: sqlite3.Connection, token: int) -> int:
        """Let a token out only when no crash can bring it back."""
        if token >= self._reserved:
            with self._durably(db):
                self._reserve(db, token)
        return token

    def _reserve(self, db: sqlite3.Connection, token: int) -> None:
        row = db.execute("SELECT reserved FROM meta").fetchone()
        reserved: int = row[0] if row is not None else 0
        if token >= reserved:
            reserved = token + BLOCK
            db.execute(RESERVE, (_boot(), reserved))
        self._reserved = reserved

    def _raise_tokens(self, fallen: int) -> object:
        """Somebody set the counter back. Go on above what may have been given, and try again."""
        try:
            db = self._connection()
            with self._durably(db):
                db.execute("DELETE FROM queue WHERE token = ?", (fallen,))
                self._start_above(db, 0)
        except sqlite3.Error as error:
            self._roll_back()
            return self._failed(error)
        return BUSY

    def _start_above(self, db: sqlite3.Connection, token: int) -> None:
        start = max(token, self._reserved, int(time.time() * 1_000_000))
        db.execute("DELETE FROM sqlite_sequence WHERE name = 'queue'")
        db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('queue', ?)", (start,))
        db.execute(RESERVE, (_boot(), start + BLOCK))
        self._reserved = start + BLOCK

    @contextlib.contextmanager
    def _durably(self, db: sqlite3.Connection) -> Iterator[None]:
        """A transaction that is on the disk when it ends."""
        db.execute("PRAGMA synchronous = FULL")
        try:
            db.execute("BEGIN IMMEDIATE")
            yield
            db.execute("COMMIT")
        finally:
            _roll_back(db)
            db.execute("PRAGMA synchronous = NORMAL")

    # The connection ---------------------------------------------------------------------

    def _connection(self) -> sqlite3.Connection:
        if self._db is not None:
            try:
                found = os.stat(self._where)  # noqa: PTH116 - on every step, and pathlib takes twice the time
            except OSError:
                found = None
            if found is not None and (found.st_dev, found.st_ino) == self._file:
                return self._db
            self._disconnect()  # the file was deleted or replaced under us
        self._db = self._open()
        return self._db

    def _open(self) -> sqlite3.Connection:
        check_place(self.path, mkdir=self._mkdir)
        fresh = not self.path.exists() or self.path.stat().st_size == 0
        db = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            if not fresh:
                self._check_ours(db)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            self._prepare(db)
            found = self.path.stat()
        except BaseException:
            db.close()
            raise
        self._file = (found.st_dev, found.st_ino)
        return db

    def _check_ours(self, db: sqlite3.Connection) -> None:
        # In this order: tables and id are made in one transaction, perhaps between our two looks.
        (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if tables and application != APPLICATION_ID:
            raise BackendError(
                backend="sqlite", detail=f"{self.path} is a database of another program, not of fencelock"
            )
        if version > VERSION:
            detail = f"{self.path} was made by a newer fencelock (format {version}, not {VERSION}): upgrade"
            raise BackendError(backend="sqlite", detail=detail)

    def _prepare(self, db: sqlite3.Connection) -> None:
        if self._is_ready(db):
            return
        with self._durably(db):
            if not self._is_ready(db):  # somebody else may have been quicker
                self._create(db)
                self._begin_boot(db)

    def _is_ready(self, db: sqlite3.Connection) -> bool:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if not {"queue", "meta"} <= tables:
            return False
        row = db.execute("SELECT boot, reserved FROM meta").fetchone()
        if row is None or row[0] != _boot():
            return False
        self._reserved = row[1]
        return db.execute("SELECT 1 FROM sqlite_sequence WHERE name = 'queue'").fetchone() is not None

    def _create(self, db: sqlite3.Connection) -> None:
        for statement in SCHEMA.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {VERSION}")

    def _begin_boot(self, db: sqlite3.Connection) -> None:
        """All who held or waited before this boot are dead; tokens go on above what they had."""
        row = db.execute("SELECT boot, reserved FROM meta").fetchone()
        if row is None:  # somebody deleted it: whoever is alive renews, whoever is not expires
            db.execute("UPDATE queue SET deadline = min(deadline, ? + max(ttl, 3))", (clock.now(),))
        elif row[0] != _boot():
            db.execute("DELETE FROM queue")
        (given,) = db.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'queue'").fetchone()
        self._start_above(db, max(given or 0, row[1] if row is not None else 0))

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                db.close()

    def close(self) -> None:
        """Close the file. A later step would open it again."""
        if not _is_here():  # else it is garbage, and closes itself
            with _gate:
                self._disconnect()

    # Errors -----------------------------------------------------------------------------

    def _failed(self, error: sqlite3.Error) -> object:
        """Return `BUSY` if trying again can help; else raise what the error means."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in LOCKED:
            return BUSY
        if "no such table" in str(error):  # an operator dropped our tables
            self._disconnect()
            return BUSY
        if code == sqlite3.SQLITE_CONSTRAINT:  # the counter was set back to a token in use
            return self._raise_tokens(-1)
        if code in BROKEN:
            self._disconnect()
            detail = f"{self.path} is not a sound SQLite database ({error})"
            raise BackendError(backend="sqlite", detail=detail) from error
        detail = f"{HINTS.get(code, 'it cannot be used')} ({error})"
        raise self._unavailable(detail, transient=False) from error

    def _unavailable(self, detail: str, *, transient: bool = True) -> BackendUnavailable:
        return BackendUnavailable(backend="sqlite", detail=f"{self.path}: {detail}", transient=transient)


def _is_here() -> bool:
    """Whether this very thread is in the middle of a step: then this is a signal handler or a destructor."""
    return bool(_gate._is_owned())  # type: ignore[attr-defined]


def _roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")


def _boot() -> str:
    boot = clock.boot_id()
    if boot is None:
        raise ConfigurationError("sqlite:// needs a system that names its boots, as Linux and macOS do")
    return boot


# SQLite keeps its idea of which locks a process has in that process's memory. A forked child
# would inherit the idea but not the locks, and could write to a log that the parent deletes. So
# every connection is closed before a fork, by whomever it is; the next step opens another.

FORK_PATIENCE = 10.0


def _before_fork() -> None:
    _gate.acquire(timeout=FORK_PATIENCE)
    for file in list(_files):
        file._disconnect()


def _after_fork_in_parent() -> None:
    _gate.release()


def _after_fork_in_child() -> None:
    global _gate
    _gate = locks.rlock()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
