"""The mixin for SQLAlchemy's mapped classes, on SQLite. tests/acceptance has the servers."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine, event, func, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, column_property, mapped_column

from fencelock import ConfigurationError, StaleToken, fencing
from fencelock.fencing import Fenced


class Base(DeclarativeBase):
    pass


class Document(Fenced, Base):
    __tablename__ = "documents"

    region: Mapped[str] = mapped_column(primary_key=True)
    id: Mapped[int] = mapped_column("number", primary_key=True)
    text: Mapped[str] = mapped_column(default="first")
    size: Mapped[int] = column_property(func.length(text))


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(Document(region="eu", id=1))
        session.add(Document(region="eu", id=2))
    yield engine
    engine.dispose()


def test_a_row_refuses_an_old_token(engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        document = session.get_one(Document, ("eu", 1))
        assert document.fence == 0
        document.admit(34)
        document.admit(34)
        document.text = "by 34"
    with Session(engine) as session:
        document = session.get_one(Document, ("eu", 1))
        assert (document.fence, document.text) == (34, "by 34")
        document.text = "late"
        with pytest.raises(StaleToken) as raised:
            document.admit(33)
        assert (raised.value.resource, raised.value.newest) == ("Document('eu', 1)", 34)
        session.rollback()
        assert session.scalars(select(Document.text).order_by(Document.id)).all() == ["by 34", "first"]


def test_what_was_read_before_is_read_again(engine: Engine) -> None:
    with Session(engine) as session:
        document = session.get_one(Document, ("eu", 1))
        assert document.text == "first"
        session.connection().exec_driver_sql("UPDATE documents SET text = 'meanwhile'")
        document.admit(34)
        assert document.text == "meanwhile"
        document.text = "mine"
        session.connection().exec_driver_sql("UPDATE documents SET text = 'theirs'")
        document.admit(35)
        assert document.text == "mine", "what the program has changed is its own"


def test_it_is_one_statement(engine: Engine) -> None:
    with Session(engine) as session:
        document = session.get_one(Document, ("eu", 1))
        seen: list[str] = []
        event.listen(engine, "before_cursor_execute", lambda *args: seen.append(args[2].split()[0]))
        document.admit(34)
        assert (document.fence, document.text) == (34, "first")
        document.text = "mine"
        session.flush()
    assert seen == ["UPDATE", "UPDATE"]


def test_what_the_update_cannot_tell_is_read_when_it_is_used(engine: Engine) -> None:
    with Session(engine) as session:
        document = session.get_one(Document, ("eu", 1))
        assert document.size == 5
        session.connection().exec_driver_sql("UPDATE documents SET text = 'meanwhile'")
        document.admit(34)
        assert document.size == 9


def test_the_comparison_for_a_statement(engine: Engine) -> None:
    def write(token: int) -> int:
        with Session(engine) as session, session.begin():
            here = (Document.id == 1, Document.admits(token))
            result = session.execute(update(Document).where(*here).values(text=f"by {token}", fence=token))
            return int(result.rowcount)  # type: ignore[attr-defined]

    assert [write(token) for token in (5, 7, 7, 6)] == [1, 1, 1, 0]
    with pytest.raises(ConfigurationError, match=r"^token=0"):
        Document.admits(0)


def test_rows_that_cannot_be_fenced(engine: Engine) -> None:
    fresh = Document(region="us", id=1)
    with pytest.raises(ConfigurationError, match="is in no session"):
        fresh.admit(1)
    with Session(engine) as session:
        session.add(fresh)
        with pytest.raises(ConfigurationError, match="not yet flushed"):
            fresh.admit(1)
        session.flush()
        fresh.admit(1)
        session.connection().exec_driver_sql("DELETE FROM documents WHERE region = 'us'")
        with pytest.raises(ConfigurationError, match=r"Document.*'us', 1.* does not exist any more"):
            fresh.admit(2)
        with pytest.raises(ConfigurationError, match=r"^token=True"):
            fresh.admit(True)


def test_autocommit_is_refused_before_anything_is_changed(engine: Engine) -> None:
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        document = session.get_one(Document, ("eu", 1))
        with pytest.raises(ConfigurationError, match="there is no transaction"):
            document.admit(34)
        assert document.fence == 0


def test_without_sqlalchemy_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "sqlalchemy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "fencelock.fencing.orm")
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ConfigurationError, match="needs the package 'sqlalchemy': pip install sqlalchemy"):
        _ = fencing.Fenced
