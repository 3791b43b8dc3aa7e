"""The job list and the ledger of effects: the resource that the lock is there to protect.

An effect is a thing that cannot be undone, an e-mail that was sent: each row of `effects` is one.
A job is done when it has at least one, and done right when it has exactly one.

The ledger guards itself. It keeps the highest token it has seen for each job and refuses a lower
one in the same transaction. The mark rises when a holder *begins*, not only when it writes: from then
on whoever had the lock before can do no harm, however late its write arrives.

The story wants workers in the middle of their jobs when trouble strikes, on any machine and at any
speed. So the last jobs can be kept open: an effect is then not taken yet, and its worker works on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fencelock.errors import StaleToken

__all__ = ["Effect", "Ledger", "Refusal"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (act INTEGER, job INTEGER, mark BIGINT NOT NULL, PRIMARY KEY (act, job));
CREATE TABLE IF NOT EXISTS kept (act INTEGER PRIMARY KEY, jobs INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS effects
    (id INTEGER PRIMARY KEY, act INTEGER, job INTEGER, worker TEXT, token BIGINT);
CREATE TABLE IF NOT EXISTS refusals
    (id INTEGER PRIMARY KEY, act INTEGER, job INTEGER, worker TEXT, token BIGINT, newest BIGINT);
"""
OPEN = """
SELECT job FROM jobs WHERE act = ? AND job NOT IN (SELECT job FROM effects WHERE act = ?) ORDER BY job
"""


class Effect(NamedTuple):
    """A job that was done: by whom, and under which token, if any."""

    job: int
    worker: str
    token: int | None


class Refusal(NamedTuple):
    """A write that was refused, and the newest token that was known then."""

    job: int
    worker: str
    token: int
    newest: int


class Ledger:
    """One connection to the ledger."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = OFF")  # a demo need not survive a power cut
        self._db.executescript(SCHEMA)

    def fill(self, act: int, jobs: int) -> None:
        """Write the job list of an act."""
        self._db.executemany("INSERT INTO jobs VALUES (?, ?, 0)", [(act, job + 1) for job in range(jobs)])

    def open_jobs(self, act: int) -> list[int]:
        """Return the jobs that nobody has done yet."""
        return [job for (job,) in self._db.execute(OPEN, (act, act))]

    def write(self, act: int, job: int, worker: str) -> None:
        """Write an effect down, no questions asked."""
        self._insert(act, job, worker, None)

    def begin(self, act: int, job: int, token: int) -> bool:
        """Let the holder of `token` begin, and nobody older from now on; say whether the job is open."""
        with self._transaction():
            self._check(act, job, token)
            done = self._db.execute("SELECT 1 FROM effects WHERE act = ? AND job = ?", (act, job)).fetchone()
            return done is None

    def keep_open(self, act: int, jobs: int) -> None:
        """Let so many jobs stay open until this is called again."""
        self._db.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (act, jobs))

    def write_fenced(self, act: int, job: int, worker: str, token: int) -> bool:
        """Write an effect down if `token` is the newest that was seen; else raise `StaleToken`.

        `False` if the job is to stay open for now.
        """
        try:
            with self._transaction():
                self._check(act, job, token)
                still_open = self.open_jobs(act)
                if job in still_open and len(still_open) <= self._kept(act):
                    return False
                self._insert(act, job, worker, token)
                return True
        except StaleToken as error:
            refusal = (act, job, worker, token, error.newest)
            self._db.execute(
                "INSERT INTO refusals (act, job, worker, token, newest) VALUES (?, ?, ?, ?, ?)", refusal
            )
            raise

    def effects(self, act: int) -> list[Effect]:
        """Return everything that was done, in order."""
        rows = self._db.execute("SELECT job, worker, token FROM effects WHERE act = ? ORDER BY id", (act,))
        return [Effect(*row) for row in rows]

    def refusals(self, act: int) -> list[Refusal]:
        """Return every write that was refused, in order."""
        rows = self._db.execute(
            "SELECT job, worker, token, newest FROM refusals WHERE act = ? ORDER BY id", (act,)
        )
        return [Refusal(*row) for row in rows]

    def close(self) -> None:
        self._db.close()

    def _check(self, act: int, job: int, token: int) -> None:
        (mark,) = self._db.execute("SELECT mark FROM jobs WHERE act = ? AND job = ?", (act, job)).fetchone()
        if token < mark:
            raise StaleToken(resource=f"job {job:02d}", token=token, newest=mark)
        self._db.execute("UPDATE jobs SET mark = ? WHERE act = ? AND job = ?", (token, act, job))

    def _kept(self, act: int) -> int:
        row = self._db.execute("SELECT jobs FROM kept WHERE act = ?", (act,)).fetchone()
        return row[0] if row else 0

    def _insert(self, act: int, job: int, worker: str, token: int | None) -> None:
        self._db.execute(
            "INSERT INTO effects (act, job, worker, token) VALUES (?, ?, ?, ?)", (act, job, worker, token)
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
