"""Tokens of real size on PostgreSQL and MariaDB: in every table that fencelock makes or the docs declare."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, create_engine, inspect
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from tools.servers import start
from workers.databases import asked, connected, done, engine_url

from fencelock import Client, StaleToken, fencing, idempotency, jobs, schedule

ROOT = Path(__file__).parents[2]
TOKEN = 1794966437913932
LARGEST = 2**63 - 1
TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)\s*\(((?:[^()]|\([^()]*\))*)\)", re.DOTALL)
NAMES = re.compile(r"\w*(?:token|fence|newest)\w*")


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with start(request.param) as group:
        yield str(group.url)


@pytest.fixture
def conn(url: str) -> Iterator[Any]:
    conn = connected(url)
    yield conn
    conn.close()


@pytest.fixture
def locks() -> Iterator[Client]:
    with Client("memory://") as locks:
        yield locks


def test_fences(conn: Any) -> None:
    fencing.create_table(conn)
    conn.commit()
    for token in (TOKEN, LARGEST):
        fencing.admit(conn, "document:1", token)
        assert fencing.newest(conn, "document:1") == token
        with pytest.raises(StaleToken):
            fencing.admit(conn, "document:1", token - 1)


class Base(DeclarativeBase):
    pass


class Invoice(fencing.Fenced, Base):
    __tablename__ = "fenced_invoice"
    id: Mapped[int] = mapped_column(primary_key=True)


def test_fenced_rows(url: str) -> None:
    engine = create_engine(engine_url(url))
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(Invoice(id=1))
    for token in (TOKEN, LARGEST):
        with Session(engine) as session, session.begin():
            session.get_one(Invoice, 1).admit(token)
        with Session(engine) as session:
            assert session.get_one(Invoice, 1).fence == token
    engine.dispose()


def test_idempotency_keys(url: str, conn: Any) -> None:
    idempotency.create_table(conn)
    conn.commit()
    store = idempotency.Store(lambda: connected(url))
    attempt = store.begin("payment", "of 30")
    assert isinstance(attempt, idempotency.Attempt) and attempt.token > TOKEN - 86_400_000_000
    store.finish(attempt, "done")
    (row,) = asked(conn, "SELECT token FROM fencelock_idempotency")
    assert row == (attempt.token,)
    asked(conn, "UPDATE fencelock_idempotency SET token = ?", LARGEST)
    conn.commit()


def test_jobs(url: str, locks: Client) -> None:
    engine = create_engine(engine_url(url))
    table = jobs.Table(engine)
    table.create()
    table.enqueue("mail", 1)
    tokens: list[int] = []
    jobs.Worker(locks, table, {"mail": lambda job: tokens.append(job.token)}).run_once()
    (job,) = table.ls()
    assert job.status == "done" and [job.token] == tokens and job.token > TOKEN - 86_400_000_000
    with engine.begin() as conn:
        conn.exec_driver_sql(f"UPDATE fencelock_jobs SET token = {LARGEST}")
    engine.dispose()


def test_schedules(url: str, conn: Any, locks: Client) -> None:
    schedule.create_table(conn)
    conn.commit()
    with schedule.Schedule(locks, record=lambda: connected(url)) as made:
        run = made.once("report", lambda: None, per=86400)
        assert run is not None and run.token > TOKEN - 86_400_000_000
        assert made.history("report") == [run]


def declared() -> list[tuple[str, str, str]]:
    """Return the tables with a column for tokens in README, docs, examples and docstrings, and where.

    Not those of the backends: SQLite's own queue has the token as its rowid.
    """
    patterns = ("README.md", "docs/**/*.md", "examples/*.py", "src/fencelock/[!b]*/**/*.py")
    texts = {
        str(path.relative_to(ROOT)): re.sub(r'"\s*\n\s*"', "", path.read_text(encoding="utf-8"))
        for pattern in patterns
        for path in sorted(ROOT.glob(pattern))
    }
    return [
        (where, match[1], match[2])
        for where, text in texts.items()
        for match in TABLE.finditer(text)
        if NAMES.search(match[2]) and "{" not in match[2]
    ]


def test_there_are_tables_in_the_docs() -> None:
    assert {"account", "document", "invoice", "job", "cron", "emails", "documents", "refusals"} <= {
        table for _, table, _ in declared()
    }


@pytest.mark.parametrize(("where", "table", "columns"), declared(), ids=lambda value: str(value)[:30])
def test_tables_of_the_docs(url: str, conn: Any, where: str, table: str, columns: str) -> None:
    """Written for SQLite some of them, and read by those who have PostgreSQL or MySQL."""
    if not url.startswith("postgresql"):
        columns = columns.replace("TEXT", "VARCHAR(100)")  # MariaDB makes no key of a TEXT without a length
    done(url, f"DROP TABLE IF EXISTS {table}", f"CREATE TABLE {table} ({columns})")
    engine = create_engine(engine_url(url))
    found = inspect(engine).get_columns(table)
    engine.dispose()
    first = found[0]["name"]
    for column in found:
        if NAMES.search(column["name"]):
            assert isinstance(column["type"], BigInteger), f"{where}: {table}.{column['name']}"
            asked(conn, f"INSERT INTO {table} ({first}, {column['name']}) VALUES ('1', ?)", TOKEN)
            assert asked(conn, f"SELECT {column['name']} FROM {table}") == [(TOKEN,)]
            conn.rollback()
    done(url, f"DROP TABLE {table}")
