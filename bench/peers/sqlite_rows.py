"""Bare rows in an SQLite file of their own, in WAL mode with `synchronous=NORMAL`, as fencelock has it.

    kind="explicit"   insert a row and delete it, each in `BEGIN IMMEDIATE` … `COMMIT`: the limit
    kind="single"     the same, one statement each
    kind="polled"     a lock by hand: whoever inserts the row has it, the others try again after 1 ms

No queue, no token, nothing that expires.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

from bench.peers import Make

__all__ = ["blocking", "holding"]

UPSERT = "INSERT INTO lock VALUES (?, 'me') ON CONFLICT DO UPDATE SET owner = excluded.owner"
TAKE = "INSERT OR IGNORE INTO lock VALUES (?, 'me')"
GIVE = "DELETE FROM lock WHERE name = ? AND owner = 'me'"
RENEW = "UPDATE lock SET owner = ? WHERE name = ?"
CHUNK = 500


def connect(url: str) -> sqlite3.Connection:
    path = f"{urlsplit(url).path}.rows"
    db = sqlite3.connect(path, isolation_level=None, timeout=30, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE TABLE IF NOT EXISTS lock (name TEXT PRIMARY KEY, owner TEXT) WITHOUT ROWID")
    return db


class Single:
    """The row, whoever had it: two statements."""

    def __init__(self, db: sqlite3.Connection, name: str) -> None:
        self.db, self.name = db, (name,)

    def __enter__(self) -> None:
        self.db.execute(UPSERT, self.name)

    def __exit__(self, *_: object) -> None:
        self.db.execute(GIVE, self.name)


class Explicit(Single):
    """The row, whoever had it: two transactions."""

    def __enter__(self) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        self.db.execute(UPSERT, self.name)
        self.db.execute("COMMIT")

    def __exit__(self, *_: object) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        self.db.execute(GIVE, self.name)
        self.db.execute("COMMIT")


class Polled(Single):
    """The row, if nobody has it; asked for again and again."""

    sleep = 0.001

    def __enter__(self) -> None:
        while self.db.execute(TAKE, self.name).rowcount != 1:
            time.sleep(self.sleep)


KINDS = {"explicit": Explicit, "single": Single, "polled": Polled}


@contextmanager
def blocking(url: str, kind: str) -> Iterator[Make]:
    """A connection for each section: threads do not share one."""
    opened: list[sqlite3.Connection] = []

    def make(name: str) -> Single:
        opened.append(connect(url))
        return KINDS[kind](opened[-1], name)

    connect(url).close()
    yield make
    for db in opened:
        db.close()


@contextmanager
def holding(url: str, count: int) -> Iterator[Callable[[], object]]:
    """Change that many rows, 500 in each transaction."""
    names = [f"lease-{number}" for number in range(count)]
    with closing(connect(url)) as db:
        db.execute("BEGIN IMMEDIATE")
        db.executemany(UPSERT, [(name,) for name in names])
        db.execute("COMMIT")

        def renew() -> None:
            now = str(time.monotonic())
            for start in range(0, count, CHUNK):
                db.execute("BEGIN IMMEDIATE")
                db.executemany(RENEW, [(now, name) for name in names[start : start + CHUNK]])
                db.execute("COMMIT")

        yield renew
