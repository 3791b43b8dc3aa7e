"""What a guard adds to the transaction that it guards.

The bare transaction changes one row of a document and commits. Beside it: the same with one more statement
that does next to nothing (`SELECT 1`), with one more that changes a row of another table, as a guard must,
with `fencing.admit`, and with `fencing.update` in the place of its UPDATE. If a guard took a round trip more
than its one statement, it would be slower than the row by as much as `SELECT 1` is slower than nothing.

On Redis the bare write is SET. A guard stands in its place, so it is to be compared with a script that does
nothing but SET, and with two commands in turn.

Tokens and texts change each time, so that every statement has something to write. SQLite is in WAL mode with
`synchronous=NORMAL`: nothing waits for the disk there, and what a guard adds shows at its largest.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql  # type: ignore[import-untyped]
import redis
from tools.servers import start

from bench.measure import Contestant, Figure, Result, Run, Suite, interleave, timed
from bench.suites.targets import named, ratio
from bench.verdict import Verdict
from fencelock import fencing

__all__ = ["SUITE"]

ROUNDS, COUNT = 15, 300
BARE, NOTHING, ROW = "bare transaction", "and SELECT 1", "and one more row"
ADMIT, UPDATE = "and fencing.admit", "by fencing.update"
SET, TWO, SCRIPT, FENCED = "SET", "SET, then PING", "SET in a script", "RedisFence.set"

Connect = Callable[[], Any]
Step = Callable[[Any, Any, int], object]
"""Do something on a connection, or over its cursor, with this number."""


def document(mark: str) -> Step:
    """The user's own statement."""
    words = f"UPDATE documents SET text = {mark} WHERE id = 1"
    return lambda conn, cursor, number: cursor.execute(words, (str(number),))


def nothing(conn: Any, cursor: Any, number: int) -> object:
    cursor.execute("SELECT 1")
    return cursor.fetchall()


def another_row(mark: str) -> Step:
    words = f"UPDATE counters SET n = {mark} WHERE id = 1"
    return lambda conn, cursor, number: cursor.execute(words, (number,))


def admitted(conn: Any, cursor: Any, number: int) -> None:
    fencing.admit(conn, "document:1", number)


def updated(conn: Any, cursor: Any, number: int) -> None:
    fencing.update(conn, "documents", {"text": str(number)}, where={"id": 1}, token=number)


def transactions(connect: Connect, *steps: Step) -> Callable[[], AbstractContextManager[Run]]:
    """Measure transactions of these steps, over one connection."""

    @contextlib.contextmanager
    def prepare() -> Iterator[Run]:
        with contextlib.closing(connect()) as conn, contextlib.closing(conn.cursor()) as cursor:

            def transaction() -> None:
                number = next(numbers)
                for step in steps:
                    step(conn, cursor, number)
                conn.commit()

            yield timed(transaction)

    return prepare


numbers = itertools.count(1)
"""Texts and tokens: they rise, whoever takes the next."""


def in_sql(title: str, connect: Connect, mark: str, progress: Callable[[str], None]) -> Result:
    with contextlib.closing(connect()) as conn, contextlib.closing(conn.cursor()) as cursor:
        fencing.create_table(conn)
        cursor.execute("CREATE TABLE documents (id INTEGER PRIMARY KEY, text VARCHAR(20), fence BIGINT)")
        cursor.execute("CREATE TABLE counters (id INTEGER PRIMARY KEY, n BIGINT)")
        cursor.execute("INSERT INTO documents VALUES (1, '', 0)")
        cursor.execute("INSERT INTO counters VALUES (1, 0)")
        conn.commit()
    own = document(mark)
    contestants = [
        Contestant(BARE, transactions(connect, own), "limit"),
        Contestant(NOTHING, transactions(connect, nothing, own), "beside"),
        Contestant(ROW, transactions(connect, another_row(mark), own), "beside"),
        Contestant(ADMIT, transactions(connect, admitted, own), "fencelock"),
        Contestant(UPDATE, transactions(connect, updated), "fencelock"),
    ]
    figures = interleave(contestants, rounds=ROUNDS, count=COUNT, progress=progress)
    verdicts = [*compared(figures, ADMIT, (BARE, NOTHING, ROW)), *compared(figures, UPDATE, (BARE,))]
    return Result(f"A transaction that changes one row, {title}", figures, verdicts=verdicts)


def in_redis(url: str, progress: Callable[[str], None]) -> Result:
    def writes(step: Callable[[Any, int], object]) -> Callable[[], AbstractContextManager[Run]]:
        @contextlib.contextmanager
        def prepare() -> Iterator[Run]:
            with redis.Redis.from_url(url) as client:
                yield timed(lambda: step(client, next(numbers)))

        return prepare

    def twice(client: Any, number: int) -> None:
        client.set("document:1", str(number))
        client.ping()

    @contextlib.contextmanager
    def scripted() -> Iterator[Run]:
        with redis.Redis.from_url(url) as client:
            sha = client.script_load("return redis.call('SET', KEYS[1], ARGV[1])")
            yield timed(lambda: client.evalsha(sha, 1, "document:1", str(next(numbers))))

    @contextlib.contextmanager
    def fenced() -> Iterator[Run]:
        with redis.Redis.from_url(url) as client:
            fence = fencing.RedisFence(client)

            def write() -> None:
                number = next(numbers)
                fence.set("document:1", str(number), token=number)

            yield timed(write)

    contestants = [
        Contestant(SET, writes(lambda client, number: client.set("document:1", str(number))), "limit"),
        Contestant(TWO, writes(twice), "beside"),
        Contestant(SCRIPT, scripted, "beside"),
        Contestant(FENCED, fenced, "fencelock"),
    ]
    figures = interleave(contestants, rounds=ROUNDS, count=COUNT * 3, progress=progress)
    return Result("A write to Redis", figures, verdicts=compared(figures, FENCED, (SET, SCRIPT, TWO)))


def compared(figures: Sequence[Figure], ours: str, others: Sequence[str]) -> list[Verdict]:
    """Say how long ours takes, in times of each of the others."""
    pairs = ((f"{ours}, to {other!r}", named(figures, other)) for other in others)
    return [said for what, other in pairs for said in ratio(what, named(figures, ours), other, None)]


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stores = {kind: stack.enter_context(start(kind)) for kind in ("postgres", "mariadb", "redis")}
        postgres, mysql = str(stores["postgres"].url), str(stores["mariadb"].url)
        places: list[tuple[str, Connect, str]] = [
            ("SQLite", lambda: sqlite(Path(folder, "data.db")), "?"),
            ("PostgreSQL", lambda: psycopg.connect(postgres), "%s"),
            ("MariaDB", lambda: mariadb(mysql), "%s"),
        ]
        results = [in_sql(title, connect, mark, progress) for title, connect, mark in places]
        return [*results, in_redis(str(stores["redis"].url), progress)]


def sqlite(path: Path) -> sqlite3.Connection:
    conn = sqlite3.connect(path, timeout=60)
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute("PRAGMA synchronous = NORMAL")
    return conn


def mariadb(url: str) -> Any:
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        password=parts.password or "",
        database=parts.path[1:],
    )


SUITE = Suite("fencing", "what a guard adds to the transaction that it guards", measure)
