"""The table and the column, on SQLite: sqlite3 and SQLAlchemy. tests/acceptance has the servers."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from fencelock import ConfigurationError, StaleToken, fencing

KINDS = ["sqlite3", "rows", "connection", "session", "scoped"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data.db"


@contextlib.contextmanager
def connected(kind: str, file: Path) -> Iterator[Any]:
    """A connection of each sort; each has `commit` and `rollback`."""
    if kind in {"sqlite3", "rows"}:
        conn = sqlite3.connect(file, timeout=10)
        if kind == "rows":
            conn.row_factory = lambda cursor, row: {"row": row}
        with contextlib.closing(conn):
            yield conn
        return
    engine = create_engine(f"sqlite:///{file}")
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


@pytest.mark.parametrize("kind", KINDS)
def test_the_rule(kind: str, file: Path) -> None:
    with connected(kind, file) as conn:
        fencing.create_table(conn)
        fencing.create_table(conn)
        conn.commit()
        assert fencing.newest(conn, "r") == 0
        for token in (5, 5, 2**53 + 1, 2**63 - 1):
            fencing.admit(conn, "r", token)
        for resource in ("R", "r ", " r", "\u0155", "r\u0301", "r'--", "r%s:token"):
            fencing.admit(conn, resource, 1)
        with pytest.raises(StaleToken) as raised:
            fencing.admit(conn, "r", 2**63 - 2)
        assert raised.value.newest == 2**63 - 1
        assert fencing.newest(conn, "r") == 2**63 - 1
        fencing.forget(conn, "r")
        fencing.admit(conn, "r", 1)
        conn.commit()
        assert fencing.newest(conn, "R") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_it_belongs_to_the_transaction(kind: str, file: Path) -> None:
    with connected(kind, file) as conn:
        fencing.create_table(conn)
        conn.commit()
        fencing.admit(conn, "r", 5)
        conn.rollback()
        assert fencing.newest(conn, "r") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_table_is_one_line(kind: str, file: Path) -> None:
    with connected(kind, file) as conn:
        for call in (
            lambda: fencing.admit(conn, "r", 1),
            lambda: fencing.newest(conn, "r"),
            lambda: fencing.forget(conn, "r"),
        ):
            with pytest.raises(
                ConfigurationError, match=r"^there is no table 'fencelock_fences' here: .*create_table"
            ):
                call()


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_another_name(kind: str, file: Path) -> None:
    with connected(kind, file) as conn:
        fencing.create_table(conn, table="order")
        fencing.admit(conn, "r", 5, table="main.order")
        assert fencing.newest(conn, "r", table="order") == 5
        odd = 'x`"; DROP TABLE "order" --'
        with pytest.raises(ConfigurationError, match=r"^there is no table 'x`\"; DROP TABLE"):
            fencing.admit(conn, "r", 5, table=odd)
        fencing.create_table(conn, table=odd)
        fencing.admit(conn, "r", 6, table=odd)
        assert [fencing.newest(conn, "r", table=table) for table in ("order", odd)] == [5, 6]
        for table in ("", "a\0b", "a.b.c", "x" * 64, 5):
            with pytest.raises(ConfigurationError, match=r"^table="):
                fencing.create_table(conn, table=table)  # type: ignore[arg-type]


def test_it_is_one_statement(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as conn:
        fencing.create_table(conn)
        conn.execute("CREATE TABLE document (id INTEGER, text TEXT, fence BIGINT DEFAULT 0)")
        conn.execute("INSERT INTO document (id) VALUES (1)")
        seen: list[str] = []
        conn.set_trace_callback(seen.append)
        fencing.admit(conn, "r", 5)
        with pytest.raises(StaleToken):
            fencing.admit(conn, "r", 4)
        fencing.update(conn, "document", {"text": "x"}, where={"id": 1}, token=5)
        conn.set_trace_callback(None)
    assert [statement.split()[0] for statement in seen] == ["INSERT", "INSERT", "UPDATE"]


def test_autocommit_is_refused_before_anything_is_changed(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as conn:
        fencing.create_table(conn)
        with pytest.raises(ConfigurationError, match="there is no transaction"):
            fencing.admit(conn, "r", 5)
        assert fencing.newest(conn, "r") == 0
        conn.execute("BEGIN IMMEDIATE")
        fencing.admit(conn, "r", 5)
        conn.execute("COMMIT")
        assert fencing.newest(conn, "r") == 5


def test_autocommit_of_sqlalchemy_is_refused(file: Path) -> None:
    engine = create_engine(f"sqlite:///{file}", isolation_level="AUTOCOMMIT")
    with engine.connect() as conn:
        fencing.create_table(conn)
        conn.rollback()
        with pytest.raises(ConfigurationError, match="there is no transaction"):
            fencing.admit(conn, "r", 5)
        assert not conn.in_transaction(), "it began one and left it"
    engine.dispose()


def test_transactions_that_an_event_begins(file: Path) -> None:
    """SQLAlchemy's own advice for SQLite: no transactions by the driver, BEGIN by an event."""
    engine = create_engine(f"sqlite:///{file}")
    event.listen(engine, "connect", lambda raw, record: setattr(raw, "isolation_level", None))
    event.listen(engine, "begin", lambda conn: conn.exec_driver_sql("BEGIN IMMEDIATE"))
    with engine.begin() as conn:
        fencing.create_table(conn)
    with engine.connect() as conn:
        fencing.admit(conn, "r", 5)
        conn.commit()
        assert fencing.newest(conn, "r") == 5
    engine.dispose()


def test_bad_input_changes_nothing(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as conn:
        fencing.create_table(conn)
        for resource, token in [("", 1), ("r", 0), ("r", "5"), ("r", True), ("r", 2**63), (7, 1)]:
            with pytest.raises(ConfigurationError):
                fencing.admit(conn, resource, token)  # type: ignore[arg-type]
        assert not conn.in_transaction


@pytest.mark.parametrize("conn", [None, "sqlite://", object()])
def test_what_is_no_connection(conn: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^conn=.* is not a connection of"):
        fencing.admit(conn, "r", 1)
    with pytest.raises(ConfigurationError, match=r"^conn=.* is not an asynchronous connection of"):
        asyncio.run(fencing.admit_async(conn, "r", 1))


def test_a_blocking_connection_where_an_asynchronous_one_is_due() -> None:
    conn: Any = sqlite3.connect(":memory:")
    with (
        contextlib.closing(conn),
        pytest.raises(ConfigurationError, match="is not an asynchronous connection"),
    ):
        asyncio.run(fencing.admit_async(conn, "r", 1))


def test_an_asynchronous_connection_where_a_blocking_one_is_due() -> None:
    class Thing:
        async def close(self) -> None: ...

    with pytest.raises(ConfigurationError, match="is asynchronous: use the function that ends in _async"):
        fencing.admit(Thing(), "r", 1)  # type: ignore[arg-type]


def test_a_gate_in_the_database(file: Path) -> None:
    @contextlib.contextmanager
    def connect() -> Iterator[Any]:
        with contextlib.closing(sqlite3.connect(file)) as conn, conn:
            yield conn

    with connect() as conn:
        fencing.create_table(conn)
        conn.execute("CREATE TABLE notes (token INTEGER)")
    gate = fencing.SQLGate(connect)
    gate.admit("r", 34)
    with gate.turn("r", 35) as conn:
        conn.execute("INSERT INTO notes VALUES (35)")
    with pytest.raises(KeyError), gate.turn("r", 37) as conn:
        conn.execute("INSERT INTO notes VALUES (37)")
        raise KeyError
    with pytest.raises(StaleToken):  # the block has failed, but it may have done things elsewhere
        gate.admit("r", 36)
    with pytest.raises(ConfigurationError, match=r"^token=0"):
        gate.admit("r", 0)
    with connect() as conn:
        assert conn.execute("SELECT * FROM notes").fetchall() == [(35,)]


# The column form ----------------------------------------------------------------------------


def stocked(conn: Any) -> None:
    run = conn.execute if isinstance(conn, sqlite3.Connection) else lambda words: conn.execute(text(words))
    run('CREATE TABLE "order" (id INTEGER, region TEXT, text TEXT, fence BIGINT DEFAULT 0)')
    for id_, region in ((1, "eu"), (1, "us"), (2, "eu")):
        run(f"INSERT INTO \"order\" (id, region, text) VALUES ({id_}, '{region}', 'first')")
    conn.commit()


@pytest.mark.parametrize("kind", KINDS)
def test_the_column_form(kind: str, file: Path) -> None:
    with connected(kind, file) as conn:
        stocked(conn)
        here = {"id": 1, "region": "eu"}
        for token in (5, 5, 2**63 - 1):
            fencing.update(conn, "order", {"text": f"by {token}"}, where=here, token=token)
        fencing.update(conn, "order", {}, where={"id": 2}, token=5)
        with pytest.raises(StaleToken) as raised:
            fencing.update(conn, "order", {"text": "late"}, where=here, token=7)
        assert raised.value.resource == "order(id=1, region='eu')"
        assert raised.value.newest == 2**63 - 1
        with pytest.raises(ConfigurationError, match=r"^'order\(id=3\)' does not exist: nothing was written"):
            fencing.update(conn, "order", {"text": "lost"}, where={"id": 3}, token=7)
        conn.commit()
    with contextlib.closing(sqlite3.connect(file)) as conn:
        rows = conn.execute('SELECT text, fence FROM "order" ORDER BY rowid').fetchall()
    assert rows == [("by 9223372036854775807", 2**63 - 1), ("first", 0), ("first", 5)]


def test_the_column_form_refuses(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as conn:
        stocked(conn)
        for values, where, token, words in [
            ({"text": "x"}, {}, 1, "names every row"),
            ({"text": "x"}, [("id", 1)], 1, "where=.* is not a mapping"),
            ("text", {"id": 1}, 1, "values='text' is not a mapping"),
            ({"fence": 9}, {"id": 1}, 1, "values has 'fence', which takes the token"),
            ({"": 9}, {"id": 1}, 1, "column='' is no name"),
            ({"text": "x"}, {"i\0d": 1}, 1, "column=.* is no name"),
            ({"text": "x"}, {"id": 1}, 0, "token=0 is out of range"),
        ]:
            with pytest.raises(ConfigurationError, match=words):
                fencing.update(conn, "order", values, where=where, token=token)  # type: ignore[arg-type]
        assert not conn.in_transaction
        with pytest.raises(ConfigurationError, match="is 2 rows, all written: roll back, and name one"):
            fencing.update(conn, "order", {"text": "x"}, where={"id": 1}, token=1)
        conn.rollback()
        conn.execute('UPDATE "order" SET fence = NULL WHERE id = 2')
        with pytest.raises(ConfigurationError, match="make fence NOT NULL DEFAULT 0"):
            fencing.update(conn, "order", {"text": "x"}, where={"id": 2}, token=1)


def test_what_a_session_has_changed_is_written_before_its_rows_are_fenced_and_not_before_a_lock() -> None:
    class Base(DeclarativeBase):
        pass

    class Note(Base):
        __tablename__ = "notes"
        id: Mapped[int] = mapped_column(primary_key=True)
        text: Mapped[str]
        fence: Mapped[int] = mapped_column(default=0)

    engine = create_engine("sqlite://")
    with Session(engine) as session:
        Base.metadata.create_all(session.connection())
        fencing.create_table(session)
        session.add(Note(id=1, text="pending"))
        fencing.admit(session, "notes", 5)
        assert session.new, "rows were locked before the fence was"
        fencing.update(session, "notes", {"text": "new"}, where={"id": 1}, token=5)
        assert not session.new
    engine.dispose()
