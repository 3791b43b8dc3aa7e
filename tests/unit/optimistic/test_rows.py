"""Rows with a version, on SQLite: answers, bad input, and that nothing is changed when it is refused."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from fencelock import ConfigurationError, Conflict, optimistic
from fencelock.optimistic import Change, Conflicted, NoSuchRow, Updated

TABLE = """CREATE TABLE "sto%ck" (sku TEXT, "le?ft" INTEGER, "no""te" TEXT, version INTEGER NOT NULL)"""
NAME, LEFT, NOTE = "sto%ck", "le?ft", 'no"te'


@pytest.fixture
def conn() -> Iterator[sqlite3.Connection]:
    conn = sqlite3.connect(":memory:")
    conn.execute(TABLE)
    conn.executemany(f'INSERT INTO "{NAME}" VALUES (?, ?, ?, ?)', [("a", 9, None, 1), ("b", 5, "x", 3)])
    conn.execute(f'INSERT INTO "{NAME}" VALUES (?, ?, ?, ?)', ("twin", 1, None, 1))
    conn.execute(f'INSERT INTO "{NAME}" VALUES (?, ?, ?, ?)', ("twin", 2, None, 1))
    conn.commit()
    yield conn
    conn.close()


def everything(conn: Any) -> list[Any]:
    return sorted(tuple(row) for row in conn.execute(f'SELECT * FROM "{NAME}"').fetchall())


def test_a_row_that_is_unchanged_is_updated(conn: sqlite3.Connection) -> None:
    done = optimistic.update(conn, NAME, key={"sku": "a"}, version=1, set={LEFT: 8, NOTE: "sold %s ?"})
    assert done == Updated({"sku": "a", LEFT: 8, NOTE: "sold %s ?", "version": 2})
    assert done.expect() == optimistic.read(conn, NAME, key={"sku": "a"})


def test_a_row_that_was_changed_is_left_alone(conn: sqlite3.Connection) -> None:
    before = everything(conn)
    done = optimistic.update(conn, NAME, key={"sku": "b"}, version=2, set={LEFT: 0})
    assert done == Conflicted({"sku": "b", LEFT: 5, NOTE: "x", "version": 3}, NAME)
    assert everything(conn) == before
    with pytest.raises(Conflict, match="changed by someone else") as caught:
        done.expect()
    assert caught.value.current["version"] == 3


def test_nothing_is_committed(conn: sqlite3.Connection) -> None:
    before = everything(conn)
    optimistic.update(conn, NAME, key={"sku": "a"}, version=1, set={LEFT: 8})
    assert conn.in_transaction
    conn.rollback()
    assert everything(conn) == before


@pytest.mark.parametrize("factory", [sqlite3.Row, lambda _, row: dict(enumerate(row))])
def test_the_row_factory_does_not_matter(conn: sqlite3.Connection, factory: Any) -> None:
    conn.row_factory = factory
    assert optimistic.read(conn, NAME, key={"sku": "a"})["version"] == 1


def test_an_injection_is_a_name_like_any_other(conn: sqlite3.Connection) -> None:
    conn.execute('CREATE TABLE "x""; DROP TABLE y; --" (id INTEGER, v INTEGER, version INTEGER)')
    conn.execute('INSERT INTO "x""; DROP TABLE y; --" VALUES (1, 1, 1)')
    done = optimistic.update(conn, 'x"; DROP TABLE y; --', key={"id": 1}, version=1, set={"v": "'; --"})
    assert done.row["v"] == "'; --"


def test_a_column_that_is_not_there_is_no_string(conn: sqlite3.Connection) -> None:
    """SQLite would take "sky" for a string, and find every row by a key that is equal to its own name."""
    for key in ({"sky": "sky"}, {"sku": "a", "sky": "sky"}):
        with pytest.raises(sqlite3.OperationalError, match="no such column: sky"):
            optimistic.read(conn, NAME, key=key)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"key": {}}, "names no row"),
    ({"key": "a"}, "names no row"),
    ({"key": {"sku": None}}, "NULL is equal to nothing"),
    ({"key": {"": 1}}, "no name"),
    ({"key": {"s\0": 1}}, "no name"),
    ({"key": {"sku": "twin"}}, "several rows"),
    ({"version": True}, "no version"),
    ({"version": "1"}, "no version"),
    ({"version": -1}, "no version"),
    ({"version": 2**63}, "no version"),
    ({"version": 7}, "version=7 of .* does not exist: the row has version 1"),
    ({"set": {}}, "changes nothing"),
    ({"set": {"version": 3}}, "raised for you"),
    ({"set": {"sku": "z"}}, "part of the key"),
    ({"set": {1: 2}}, "no name"),
    ({"set": {"x" * 64: 2}}, "no name"),
    ({"table": "a.b.c"}, "too many dots"),
    ({"table": ""}, "no name"),
    ({"table": 5}, "no name"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input_changes_nothing(conn: sqlite3.Connection, change: dict[str, Any], message: str) -> None:
    before = everything(conn)
    given = {"table": NAME, "key": {"sku": "a"}, "version": 1, "set": {LEFT: 0}, **change}
    with pytest.raises(ConfigurationError, match=message) as caught:
        optimistic.update(conn, given.pop("table"), **given)
    assert "\n" not in str(caught.value)
    assert everything(conn) == before


def test_a_row_that_is_not_there(conn: sqlite3.Connection) -> None:
    with pytest.raises(NoSuchRow, match=r"table 'sto%ck' has no row with sku='zz'") as caught:
        optimistic.update(conn, NAME, key={"sku": "zz"}, version=1, set={LEFT: 0})
    assert caught.value.key == {"sku": "zz"}
    with pytest.raises(LookupError):
        optimistic.read(conn, NAME, key={"sku": "zz"})


@pytest.mark.parametrize("conn", ["x", None, object()])
def test_what_is_no_connection(conn: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a connection of sqlite3"):
        optimistic.read(conn, "t", key={"id": 1})
    with pytest.raises(ConfigurationError, match="is not an asynchronous connection"):
        asyncio.run(optimistic.read_async(conn, "t", key={"id": 1}))


def test_a_blocking_connection_is_not_for_the_asynchronous_form(conn: sqlite3.Connection) -> None:
    with pytest.raises(ConfigurationError, match="not an asynchronous connection"):
        asyncio.run(optimistic.read_async(conn, NAME, key={"sku": "a"}))  # type: ignore[arg-type]


# Many at once ---------------------------------------------------------------------------------


def test_each_of_many_has_its_answer_in_its_place(conn: sqlite3.Connection) -> None:
    changes = [
        Change({"sku": "b"}, 3, {LEFT: 4}),
        Change({"sku": "a"}, 0, {LEFT: 4}),
    ]
    done = optimistic.update_many(conn, NAME, changes)
    assert done[0] == Updated({"sku": "b", LEFT: 4, NOTE: "x", "version": 4})
    assert done[1] == Conflicted({"sku": "a", LEFT: 9, NOTE: None, "version": 1}, NAME)
    assert optimistic.update_many(conn, NAME, []) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([Change({"sku": "a"}, 1, {LEFT: 1}), Change({"sku": "a"}, 1, {LEFT: 2})], "same key"),
        ([Change({"sku": "a"}, 1, {LEFT: 1}), Change({"sku": "b"}, -3, {LEFT: 2})], "no version"),
        ([{"sku": "a"}], "no Change"),
        ("abc", "not a list"),
        (None, "not a list"),
    ],
)
def test_bad_input_of_many_changes_nothing(conn: sqlite3.Connection, changes: Any, message: str) -> None:
    before = everything(conn)
    with pytest.raises(ConfigurationError, match=message):
        optimistic.update_many(conn, NAME, changes)
    assert everything(conn) == before


# SQLAlchemy -----------------------------------------------------------------------------------


def test_connections_and_sessions_of_sqlalchemy() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (id INTEGER, v TEXT, version INTEGER)"))
        connection.execute(text("INSERT INTO t VALUES (1, 'old', 1)"))
        done = optimistic.update(connection, "t", key={"id": 1}, version=1, set={"v": "?%s"})
        assert done == Updated({"id": 1, "v": "?%s", "version": 2})
    with Session(engine) as session, session.begin():
        assert isinstance(
            optimistic.update(session, "t", key={"id": 1}, version=1, set={"v": "x"}), Conflicted
        )
    engine.dispose()


def test_what_a_session_has_changed_comes_first() -> None:
    class Base(DeclarativeBase):
        pass

    class Stock(Base):
        __tablename__ = "stock"
        id: Mapped[int] = mapped_column(primary_key=True)
        left: Mapped[int]
        version: Mapped[int]

    engine = create_engine("sqlite://")
    with Session(engine, autoflush=False) as session:
        Base.metadata.create_all(session.connection())
        session.add(Stock(id=1, left=9, version=1))
        assert optimistic.read(session, "stock", key={"id": 1})["left"] == 9
        session.add(Stock(id=2, left=5, version=1))
        done = optimistic.update(session, "stock", key={"id": 2}, version=1, set={"left": 4})
        assert done == Updated({"id": 2, "left": 4, "version": 2})
    engine.dispose()
