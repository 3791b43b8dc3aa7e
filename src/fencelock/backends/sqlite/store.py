"""The steps on a lock file: the queue rule, as transactions.

Each step is a plain function of an open database, run by `LockFile.step`, which runs it again
when another process had the file locked. A step reads the clock after it has the write lock:
time spent waiting for the lock must not make anyone's deadline look further away than it is.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fencelock.backends.sqlite.file import LockFile
from fencelock.core.ports import Busy, Grant, Outcome, Renewal, Request, patience
from fencelock.core.queue import PERMIT, Mode, admitted
from fencelock.errors import ConfigurationError
from fencelock.runtime import clock
from fencelock.state import Entry, LockState

__all__ = ["Bell", "Store"]

SWEEP_EVERY = 60.0

COLUMNS = (
    "namespace, name, owner, mode, max_holders, ttl, deadline, since, confirmed, "
    "client, host, pid, metadata, mailbox"
)
MARKS = ", ".join("?" * 14)

# AUTOINCREMENT alone would go on after the largest row that is left, if the counter were deleted.
NEXT = "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'queue'), -1) + 1"

TAKE_FREE = f"""
INSERT INTO queue (token, {COLUMNS}) SELECT {NEXT}, {MARKS}
WHERE NOT EXISTS (SELECT 1 FROM queue WHERE namespace = ? AND name = ?)
"""
QUEUE_UP = f"INSERT INTO queue (token, {COLUMNS}) VALUES ({NEXT}, {MARKS})"
READ_QUEUE = """
SELECT token, owner, mode, max_holders, deadline, confirmed, mailbox
FROM queue WHERE namespace = ? AND name = ? ORDER BY token
"""
READ_ENTRIES = """
SELECT name, owner, token, mode, client, host, pid, since, deadline, metadata, max_holders FROM queue
"""
CONFIRM = "UPDATE queue SET deadline = ?, since = ?, confirmed = 1, mailbox = NULL WHERE token = ?"
# A deadline never moves back: a step that was given up may still arrive, after an extension.
PROLONG = "UPDATE queue SET deadline = max(deadline, ?) WHERE token = ?"
STAY = "UPDATE queue SET deadline = ?, mailbox = ? WHERE token = ?"
RENEW = "UPDATE queue SET deadline = max(deadline, ?) WHERE token = ? AND owner = ? AND deadline > ?"
RENEW_EXACTLY = "UPDATE queue SET deadline = ? WHERE token = ? AND owner = ? AND deadline > ?"
LOOK = "SELECT 1 FROM queue WHERE token = ? AND owner = ? AND deadline > ?"
LEAVE = "DELETE FROM queue WHERE token = ? AND owner = ?"
ABANDON = "DELETE FROM queue WHERE namespace = ? AND name = ? AND owner = ?"
REMOVE = "DELETE FROM queue WHERE token = ?"
SWEEP = "DELETE FROM queue WHERE deadline <= ?"


class Bell(NamedTuple):
    """Whom to tell that its turn has come: where, and which request."""

    mailbox: str
    owner: str


class Row(NamedTuple):
    """A request in a queue, as much of it as the rule needs."""

    token: int
    owner: str
    mode: Mode
    limit: int
    deadline: float
    confirmed: int
    mailbox: str | None


class Store(LockFile):
    """A lock file and the steps on it."""

    def __init__(self, path: Path, *, mkdir: bool) -> None:
        super().__init__(path, mkdir=mkdir)
        self._sweep_at = 0.0

    def take_free(self, db: sqlite3.Connection, namespace: str, request: Request) -> int | None:
        """The quick way: be the only one in the queue, in one statement; else `None`."""
        self._sweep(db)
        row = _columns(namespace, request, clock.now() + request.ttl, 1, None)
        cursor = db.execute(TAKE_FREE, (*row, namespace, request.name))
        if cursor.rowcount != 1:
            return None
        return self._given(db, self._check_token(cursor.lastrowid))

    def queue_up(
        self, db: sqlite3.Connection, namespace: str, request: Request, mailbox: str | None
    ) -> tuple[Grant | Busy, list[Bell]]:
        """Stand in the queue, and perhaps be admitted; see `Backend.acquire`."""
        db.execute("BEGIN IMMEDIATE")
        now = clock.now()
        rows, expired = self._live(db, namespace, request.name, now)
        position = next((i for i, row in enumerate(rows) if row.owner == request.owner), len(rows))
        if position == len(rows):
            if request.mode == PERMIT:
                _check_limit(rows, request)
            rows.append(Row(0, request.owner, request.mode, request.limit, now, 0, None))
        holders = admitted(rows)
        mine = rows[position]
        answer: Grant | Busy
        if position < holders:
            token = self._admit(db, namespace, request, mine, now)
            answer = Grant(token, request.ttl)
        else:
            recheck = min(row.deadline for row in rows[:position]) - now
            answer = Busy(recheck, self._holder(db, rows[0].token, now))
            if mailbox is not None:
                self._stay(db, namespace, request, mine, now, mailbox)
            elif mine.token:
                db.execute(REMOVE, (mine.token,))
        db.execute("COMMIT")
        if isinstance(answer, Grant):
            self._given(db, answer.token)
        return answer, _bells(rows[:holders], request.owner) if expired else []

    def _admit(self, db: sqlite3.Connection, namespace: str, request: Request, mine: Row, now: float) -> int:
        deadline = now + request.ttl
        if not mine.token:
            return self._insert(db, _columns(namespace, request, deadline, 1, None))
        if mine.confirmed:
            db.execute(PROLONG, (deadline, mine.token))
        else:
            db.execute(CONFIRM, (deadline, time.time(), mine.token))
        return mine.token

    def _stay(
        self, db: sqlite3.Connection, namespace: str, request: Request, mine: Row, now: float, mailbox: str
    ) -> None:
        deadline = now + patience(request.ttl)
        if mine.token:
            db.execute(STAY, (deadline, mailbox, mine.token))
        else:
            self._insert(db, _columns(namespace, request, deadline, 0, mailbox))

    def _insert(self, db: sqlite3.Connection, row: tuple[object, ...]) -> int:
        # Checked before the commit: nobody is to see a request in front of its elders.
        return self._check_token(db.execute(QUEUE_UP, row).lastrowid)

    def renew(self, db: sqlite3.Connection, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Move deadlines that have not passed; see `Backend.renew`."""
        db.execute("BEGIN IMMEDIATE")
        now = clock.now()
        outcomes = []
        for request, token, ttl, extend, exact in renewals:
            if extend:
                statement = RENEW_EXACTLY if exact else RENEW
                there = db.execute(statement, (now + ttl, token, request.owner, now)).rowcount == 1
                outcomes.append(Outcome.RENEWED if there else Outcome.LOST)
            else:
                found = db.execute(LOOK, (token, request.owner, now)).fetchone()
                outcomes.append(Outcome.HELD if found else Outcome.LOST)
        if now >= self._sweep_at:
            db.execute(SWEEP, (now,))
            self._sweep_at = now + SWEEP_EVERY
        db.execute("COMMIT")
        return outcomes

    def leave(
        self, db: sqlite3.Connection, namespace: str, request: Request, token: int | None
    ) -> tuple[bool, list[Bell]]:
        """Take a request out; say whether it was there, and whose turn it is now.

        Reading the queue after the deletion instead of with it is enough: what is read decides
        only who is told, and whoever is told looks for itself.
        """
        if token is None:
            there = db.execute(ABANDON, (namespace, request.name, request.owner)).rowcount > 0
        else:
            there = db.execute(LEAVE, (token, request.owner)).rowcount == 1
        rows = [Row(*row) for row in db.execute(READ_QUEUE, (namespace, request.name))]
        if not rows:
            return there, []
        now = clock.now()
        rows = [row for row in rows if row.deadline > now]
        return there, _bells(rows[: admitted(rows)], request.owner)

    def inspect(self, db: sqlite3.Connection, namespace: str, name: str) -> LockState:
        """Return who holds and who waits."""
        query = READ_ENTRIES + "WHERE namespace = ? AND name = ? ORDER BY token"
        entries = [entry for _, entry in self._entries(db, query, (namespace, name))]
        return _state(name, entries)

    def list_all(self, db: sqlite3.Connection, namespace: str, prefix: str) -> list[LockState]:
        """Return every lock of a namespace that is in use."""
        self._sweep(db)
        query = READ_ENTRIES + "WHERE namespace = ? AND name >= ? ORDER BY name, token"
        queues: dict[str, list[Entry]] = {}
        for name, entry in self._entries(db, query, (namespace, prefix)):
            if name.startswith(prefix):
                queues.setdefault(name, []).append(entry)
        return [_state(name, entries) for name, entries in queues.items()]

    def force_release(
        self, db: sqlite3.Connection, namespace: str, name: str, owner: str | None
    ) -> tuple[list[Entry], list[Bell]]:
        """Take out the holders, or one owner; say who they were, and whose turn it is now."""
        db.execute("BEGIN IMMEDIATE")
        now = clock.now()
        rows, _ = self._live(db, namespace, name, now)
        broken = rows[: admitted(rows)] if owner is None else [row for row in rows if row.owner == owner]
        entries = [entry for row in broken if (entry := self._holder(db, row.token, now)) is not None]
        for row in broken:
            db.execute(REMOVE, (row.token,))
        db.execute("COMMIT")
        left = [row for row in rows if row not in broken]
        return entries, _bells(left[: admitted(left)], "")

    def settings(self, db: sqlite3.Connection) -> dict[str, Any]:
        """Return what `doctor` looks at."""
        pragmas = ("journal_mode", "synchronous", "page_count", "page_size", "freelist_count")
        found: dict[str, Any] = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas}
        found["version"] = sqlite3.sqlite_version
        found["requests"] = db.execute("SELECT count(*) FROM queue").fetchone()[0]
        return found

    # Parts of steps ---------------------------------------------------------------------

    def _live(
        self, db: sqlite3.Connection, namespace: str, name: str, now: float
    ) -> tuple[list[Row], list[Row]]:
        rows = [Row(*row) for row in db.execute(READ_QUEUE, (namespace, name))]
        expired = [row for row in rows if row.deadline <= now]
        for row in expired:
            db.execute(REMOVE, (row.token,))
        return ([row for row in rows if row.deadline > now], expired) if expired else (rows, expired)

    def _holder(self, db: sqlite3.Connection, token: int, now: float) -> Entry | None:
        row = db.execute(READ_ENTRIES + "WHERE token = ?", (token,)).fetchone()
        return _entry(row, now, time.time()) if row is not None else None

    def _entries(
        self, db: sqlite3.Connection, query: str, arguments: tuple[object, ...]
    ) -> list[tuple[str, Entry]]:
        now, wall = clock.now(), time.time()
        rows = db.execute(query, arguments).fetchall()
        return [(row[0], _entry(row, now, wall)) for row in rows if row[8] > now]

    def _sweep(self, db: sqlite3.Connection) -> None:
        """Remove what has expired, of names that nobody asks for any more too."""
        now = clock.now()
        if now >= self._sweep_at:
            db.execute(SWEEP, (now,))
            self._sweep_at = now + SWEEP_EVERY


def _columns(
    namespace: str, request: Request, deadline: float, confirmed: int, mailbox: str | None
) -> tuple[object, ...]:
    client, host, pid = request.origin
    return (
        namespace,
        request.name,
        request.owner,
        request.mode,
        request.limit,
        request.ttl,
        deadline,
        time.time(),
        confirmed,
        client,
        host,
        pid,
        request.metadata,
        mailbox,
    )


def _bells(admitted_rows: Sequence[Row], sender: str) -> list[Bell]:
    return [Bell(row.mailbox, row.owner) for row in admitted_rows if row.mailbox and row.owner != sender]


def _check_limit(rows: Sequence[Row], request: Request) -> None:
    for row in rows:
        if row.mode == PERMIT and row.limit != request.limit:
            raise ConfigurationError(
                f"limit={request.limit} for semaphore {request.name!r}: it is in use with limit {row.limit}, "
                "give the same one everywhere"
            )


def _entry(row: tuple[Any, ...], now: float, wall: float) -> Entry:
    _, owner, token, mode, client, host, pid, since, deadline, metadata, limit = row
    return Entry(
        owner=owner,
        token=token,
        mode=mode,
        client=client,
        host=host,
        pid=pid,
        since=since,
        age=max(0.0, wall - since),
        expires_in=max(0.0, deadline - now),
        metadata=None if metadata is None else json.loads(metadata),
        limit=limit,
    )


def _state(name: str, entries: Sequence[Entry]) -> LockState:
    holders = admitted(entries)  # type: ignore[arg-type]
    return LockState(name=name, holders=tuple(entries[:holders]), waiters=tuple(entries[holders:]))
