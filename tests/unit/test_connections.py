"""Connections behind one face: statements, names, transactions, errors. tests/acceptance has the servers."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from fencelock import ConfigurationError, Unsupported
from fencelock.connections import (
    MARK,
    MYSQL,
    POSTGRESQL,
    SQLITE,
    Answer,
    Dialect,
    Door,
    SQLAlchemy,
    ask,
    blocking_door,
    codes,
    lock_timeout,
    make_table,
    needs_table,
    settled,
)
from fencelock.connections.drivers import MySQL, Psycopg, SQLite, written
from fencelock.crdt import SQLExchange
from fencelock.crdt.exchange import sql as records
from fencelock.fencing import table as fences
from fencelock.idempotency import table as keys
from fencelock.runtime import blocking

KINDS = ["sqlite3", "rows", "connection", "session", "scoped"]
ODD = """a:b ?%s%(x)s$1"'`\N{SNOWMAN}"""
"""A name with all that drivers and servers take for something else."""


@contextlib.contextmanager
def connected(kind: str) -> Iterator[Any]:
    """A connection of each sort."""
    if kind in {"sqlite3", "rows"}:
        with contextlib.closing(sqlite3.connect(":memory:")) as conn:
            if kind == "rows":
                conn.row_factory = lambda cursor, row: {"row": row}
            yield conn
        return
    engine = create_engine("sqlite://")
    try:
        if kind == "connection":
            with engine.connect() as connection:
                yield connection
        elif kind == "session":
            with Session(engine) as session:
                yield session
        else:
            sessions = scoped_session(sessionmaker(engine))
            try:
                yield sessions
            finally:
                sessions.remove()
    finally:
        engine.dispose()


class Recording(Door):
    """A door that writes down what it is asked, and answers, or fails, as it is told."""

    def __init__(self, dialect: Dialect, *, busy: bool = False, fails: str = "never") -> None:
        self.dialect = dialect
        self.asked: list[tuple[str, tuple[Any, ...]]] = []
        self._busy = busy
        self._fails = fails

    async def run(self, statement: str, values: Sequence[Any] = ()) -> Answer:
        self.asked.append((statement, tuple(values)))
        if statement.startswith(self._fails):
            raise OSError(statement)
        return Answer([{"old": "7s"}])

    def in_transaction(self) -> bool:
        return self._busy

    def autocommits(self) -> bool:
        return False


# Statements and names -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_statements_values_and_names(kind: str) -> None:
    async def work(door: Door) -> None:
        table, column = door.table(ODD), door.quoted(ODD, "column")
        dotted = door.quoted("a.b", "column")
        made = await door.run(f"CREATE TABLE {table} ({column} TEXT, {dotted} INTEGER)")
        assert made.rows == []
        for number, value in enumerate((ODD, None, "'; --"), 1):
            put = await door.run(f"INSERT INTO {table} VALUES ({MARK}, {MARK})", [value, number])
            assert put == Answer([], 1, 0)
        found = await door.run(f"SELECT * FROM {table} WHERE {column} = {MARK} OR {dotted} > 2", [ODD])
        assert found.rows == [{ODD: ODD, "a.b": 1}, {ODD: "'; --", "a.b": 3}]
        assert found.row == found.rows[0]
        assert (await door.run(f"SELECT * FROM {table} WHERE 1 = 0")).row is None
        assert (await door.run(f"UPDATE {table} SET {dotted} = {MARK}", [2**63 - 1])).touched == 3
        gone = await door.run(f"DELETE FROM {table} WHERE {column} IS NULL RETURNING {dotted}")
        assert gone.rows == [{"a.b": 2**63 - 1}]

    with connected(kind) as conn:
        ask(conn, work)


def test_a_mark_is_written_as_each_driver_wants_it() -> None:
    words = f'SELECT "5%?" WHERE a = {MARK} AND b = {MARK}'
    assert written(words, "qmark") == 'SELECT "5%?" WHERE a = ? AND b = ?'
    for style in ("format", "pyformat"):
        assert written(words, style) == 'SELECT "5%%?" WHERE a = %s AND b = %s'
    assert written(words, "numeric_dollar") == 'SELECT "5%?" WHERE a = $1 AND b = $2'


@pytest.mark.parametrize(("dialect", "quote"), [(SQLITE, "`"), (POSTGRESQL, '"'), (MYSQL, "`")])
def test_names_are_quoted_as_each_server_wants_it(dialect: Dialect, quote: str) -> None:
    door = Recording(dialect)
    assert door.quoted(f"a{quote}b", "x") == f"{quote}a{quote}{quote}b{quote}"
    assert door.quoted("s.t", "x") == f"{quote}s.t{quote}"
    assert door.table("s.t") == f"{quote}s{quote}.{quote}t{quote}"
    assert door.table("ü" * 31 + "x") == f"{quote}{'ü' * 31}x{quote}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "table='' is no name"),
        ("a\0b", "is no name"),
        ("x" * 64, "is no name: give 1 to 63 bytes"),
        ("ü" * 32, "is no name"),
        ("\udc80", "is no name"),
        ("a..b", "too many dots"),
        ("a.b.c", "too many dots"),
        ("a.", "table='' is no name"),
        (5, "table=5 is no name"),
        (None, "table=None is no name"),
    ],
)
def test_what_is_no_name(name: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        Recording(POSTGRESQL).table(name)
    assert "\n" not in str(caught.value)


# Which connection it is -----------------------------------------------------------------------


def test_what_has_no_door() -> None:
    for thing in (None, "sqlite://", object(), create_engine):
        assert blocking_door(thing) is None


def test_a_dialect_that_is_not_known() -> None:
    with pytest.raises(Unsupported, match="oracle backend does not support SQL"):
        SQLAlchemy(SimpleNamespace(dialect=SimpleNamespace(name="oracle")))


def test_what_is_to_be_awaited_is() -> None:
    async def later() -> int:
        return 7

    assert blocking.run(settled(5)) == 5
    assert asyncio.run(settled(later())) == 7


# Transactions ---------------------------------------------------------------------------------


def test_sqlite_commits_at_once_where_nobody_begins() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as conn:
        assert not SQLite(conn).commits_at_once()
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
        assert SQLite(conn).commits_at_once()
        conn.execute("BEGIN")
        assert not SQLite(conn).commits_at_once()


@pytest.mark.parametrize(
    ("mode", "level", "found"),
    [(True, "", True), (True, None, True), (False, None, False), (-1, None, True), (-1, "", False)],
)
def test_sqlite_from_python_3_12_on(mode: Any, level: str | None, found: bool) -> None:
    conn = SimpleNamespace(autocommit=mode, isolation_level=level, in_transaction=False)
    assert SQLite(conn).commits_at_once() is found


@pytest.mark.parametrize(
    ("state", "busy"), [(0, False), (1, True), (2, True), (3, True), (4, False)], ids=str
)
def test_psycopg_by_the_state_of_the_transaction(state: int, busy: bool) -> None:
    conn = SimpleNamespace(autocommit=True, info=SimpleNamespace(transaction_status=state))
    assert Psycopg(conn).in_transaction() is busy
    assert Psycopg(conn).commits_at_once() is not busy
    conn.autocommit = False
    assert not Psycopg(conn).commits_at_once()


@pytest.mark.parametrize("busy", [True, False])
def test_mysql_by_what_the_server_said_last(busy: bool) -> None:
    for fields in ({"server_status": 2 | busy}, {"get_transaction_status": lambda: busy}):
        conn = SimpleNamespace(get_autocommit=lambda: True, **fields)
        assert MySQL(conn).in_transaction() is busy
        assert MySQL(conn).commits_at_once() is not busy
        conn.get_autocommit = lambda: False
        assert not MySQL(conn).commits_at_once()


def drivers_own(engine: Any) -> None:
    event.listen(engine, "connect", lambda raw, record: setattr(raw, "isolation_level", None))


def begun_by_an_event(engine: Any) -> None:
    drivers_own(engine)
    event.listen(engine, "begin", lambda conn: conn.exec_driver_sql("BEGIN"))


def nothing(engine: Any) -> None:
    return


@pytest.mark.parametrize(
    ("set_up", "level", "first", "found"),
    [
        (nothing, None, "", False),
        (nothing, "AUTOCOMMIT", "", True),
        (nothing, "AUTOCOMMIT", "BEGIN", False),
        (drivers_own, None, "", True),
        (drivers_own, None, "BEGIN", False),
        (begun_by_an_event, None, "", False),
    ],
)
@pytest.mark.parametrize("kind", ["connection", "session"])
def test_sqlalchemy_is_judged_by_its_driver(
    kind: str, set_up: Callable[[Any], None], level: Any, first: str, found: bool
) -> None:
    engine = create_engine("sqlite://", **({"isolation_level": level} if level else {}))
    set_up(engine)
    with engine.connect() if kind == "connection" else Session(engine) as conn:
        if first:
            (conn if kind == "connection" else conn.connection()).exec_driver_sql(first)
        door = blocking_door(conn)
        assert door is not None
        assert door.commits_at_once() is found
        if found:
            with pytest.raises(ConfigurationError, match=r"so it is lost: begin one that is not AUTOCOMMIT"):
                door.check_transaction("it is lost")
            assert kind == "session" or not conn.in_transaction(), "it began one and left it"
        else:
            door.check_transaction("it is lost")
    engine.dispose()


def test_an_option_of_a_connection_is_seen() -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as conn:
        assert not SQLAlchemy(conn).commits_at_once()
        conn.rollback()
        assert SQLAlchemy(conn.execution_options(isolation_level="AUTOCOMMIT")).commits_at_once()
    engine.dispose()


# Errors and tables ----------------------------------------------------------------------------


def test_codes_of_drivers_and_of_what_is_wrapped() -> None:
    class Postgres(Exception):
        sqlstate = "42P01"

    class Other(Exception):
        pgcode = "55P03"

    mysql = Exception(1146, "Table 'db.t' doesn't exist")
    assert "42P01" in codes(Postgres("x"))
    assert "55P03" in codes(Other("x"))
    assert 1146 in codes(mysql)
    assert 1146 in codes(OperationalError("SELECT 1", None, mysql))
    assert not {"42P01", "55P03", 1146} & codes(Exception("1146", 42))


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_table_is_one_line(kind: str) -> None:
    async def work(door: Door) -> None:
        with needs_table("main.Mine", "make it"):
            await door.run("SELECT * FROM mine")

    with connected(kind) as conn, pytest.raises(ConfigurationError, match=r"^make it$") as caught:
        ask(conn, work)
    assert "no such table" in str(caught.value.__cause__)


@pytest.mark.parametrize("words", ["SELECT * FROM others", "SELECT mine"])
def test_other_errors_are_the_drivers_own(words: str) -> None:
    async def work(door: Door) -> None:
        with needs_table("mine", "make it"):
            await door.run(words)

    with connected("sqlite3") as conn, pytest.raises(sqlite3.OperationalError, match="no such"):
        ask(conn, work)


def test_a_table_is_made_by_one_at_a_time_and_never_in_a_transaction_of_mysql() -> None:
    door = Recording(POSTGRESQL, busy=True)
    blocking.run(make_table(door, "CREATE TABLE a", "CREATE INDEX b"))
    assert [words.partition("(")[0] for words, _ in door.asked] == [
        "SELECT pg_advisory_xact_lock",
        "CREATE TABLE a",
        "CREATE INDEX b",
    ]
    door = Recording(MYSQL, busy=True)
    with pytest.raises(ConfigurationError, match="would commit your transaction"):
        blocking.run(make_table(door, "CREATE TABLE a"))
    assert door.asked == []
    door = Recording(MYSQL)
    blocking.run(make_table(door, "CREATE TABLE a"))
    assert door.asked == [("CREATE TABLE a", ())]


@pytest.mark.parametrize(
    "make",
    [lambda door: fences._create(door, "fences"), keys._create, records._create],
    ids=["fencing", "idempotency", "crdt"],
)
def test_every_table_of_ours_is_made_like_that(make: Callable[[Door], Any]) -> None:
    door = Recording(MYSQL, busy=True)
    with pytest.raises(ConfigurationError, match="would commit your transaction"):
        blocking.run(make(door))
    assert door.asked == []


@pytest.mark.parametrize("kind", ["connection", "session", "scoped"])
def test_an_exchange_commits_and_so_it_takes_no_connection_of_sqlalchemy(kind: str) -> None:
    with (
        connected(kind) as conn,
        pytest.raises(ConfigurationError, match=r"nor an engine of SQLAlchemy$"),
    ):
        SQLExchange(conn)


# A wait that has a limit ----------------------------------------------------------------------

SET = f"SELECT set_config('lock_timeout', {MARK}, true)"
BEFORE = [
    ("SAVEPOINT fencelock", ()),
    ("SELECT current_setting('lock_timeout') AS old", ()),
]
UNDONE = [("ROLLBACK TO SAVEPOINT fencelock", ()), ("RELEASE SAVEPOINT fencelock", ())]


async def waiting(door: Door, seconds: float, statement: str) -> None:
    async with lock_timeout(door, seconds):
        await door.run(statement)


@pytest.mark.parametrize(
    ("seconds", "limit"), [(0, "1ms"), (0.0001, "1ms"), (1.5, "1500ms"), (1e12, "2147483647ms")]
)
def test_a_wait_has_a_limit_and_the_setting_is_put_back(seconds: float, limit: str) -> None:
    door = Recording(POSTGRESQL)
    blocking.run(waiting(door, seconds, "WAIT"))
    assert door.asked == [*BEFORE, (SET, (limit,)), ("WAIT", ()), (SET, ("7s",)), UNDONE[1]]


def test_a_wait_that_failed_is_undone() -> None:
    door = Recording(POSTGRESQL, fails="WAIT")
    with pytest.raises(OSError, match="WAIT"):
        blocking.run(waiting(door, 1, "WAIT"))
    assert door.asked == [*BEFORE, (SET, ("1000ms",)), ("WAIT", ()), *UNDONE]


def test_the_first_error_is_told() -> None:
    class Broken(Recording):
        async def run(self, statement: str, values: Sequence[Any] = ()) -> Answer:
            await super().run(statement, values)
            if statement.startswith("ROLLBACK"):
                raise OSError("the connection is gone")
            return Answer([{"old": "7s"}])

    with pytest.raises(OSError, match="WAIT"):
        blocking.run(waiting(Broken(POSTGRESQL, fails="WAIT"), 1, "WAIT"))
