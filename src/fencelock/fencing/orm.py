"""A mixin for SQLAlchemy's mapped classes: the column, the comparison, and a row that refuses old tokens.

    class Document(Fenced, Base): …

    with Session(engine) as session, session.begin():
        document = session.get_one(Document, 1)
        document.admit(lease.token)              # one UPDATE that compares; the row is ours until the commit
        document.text = "new"                    # flushed as ever

`admit` writes the token with `WHERE fence <= :token`, and raises `StaleToken` if no row was left. It locks
the row, so what the session flushes afterwards belongs to the comparison. What the session had read of the
row before may be older than the token, so it is made new, unless it was changed. PostgreSQL and SQLite tell
it in the same statement. On MySQL and MariaDB it is read again when it is used; under asyncio at once, by a
second statement.

For statements of your own, `Document.admits(token)` is the comparison:

    update(Document).where(Document.id == 1, Document.admits(token)).values(text="new", fence=token)

Not promised: anything about a flush without `admit`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from sqlalchemy import BigInteger, ColumnElement, inspect, select, update
from sqlalchemy.ext.asyncio import async_object_session
from sqlalchemy.orm import Mapped, Session, mapped_column, object_session
from sqlalchemy.orm.attributes import set_committed_value

from fencelock.connections import SQLAlchemy
from fencelock.errors import ConfigurationError
from fencelock.fencing.rule import check_token, judge
from fencelock.fencing.table import NOT_TOGETHER
from fencelock.names import shown

__all__ = ["Fenced"]


class Fenced:
    """Gives a mapped class the column `fence`, and rows that refuse old tokens."""

    fence: Mapped[int] = mapped_column(BigInteger, nullable=False, default=0, server_default="0")
    """The newest token that this row has seen."""

    @classmethod
    def admits(cls, token: int) -> ColumnElement[bool]:
        """Return the comparison for a `where`: true for rows that have seen no newer token."""
        column: Any = cls.fence
        found: ColumnElement[bool] = column <= check_token(token)
        return found

    def admit(self, token: int) -> None:
        """Let `token` pass and remember it in this row, in its transaction, or raise `StaleToken`."""
        check_token(token)
        session = object_session(self)
        if session is None:
            raise _without_session(self)
        self._admit(session, token)

    async def admit_async(self, token: int) -> None:
        """Do the same as `admit`, for a row of an `AsyncSession`."""
        check_token(token)
        session = async_object_session(self)
        if session is None:
            raise _without_session(self)
        rest = await session.run_sync(lambda inner: self._admit(inner, token))
        if rest:
            await session.refresh(self, rest)  # under asyncio nothing is read by looking at an attribute

    def _admit(self, session: Session, token: int) -> list[str]:
        """Compare and remember; return what is still to be read again."""
        SQLAlchemy(session).check_transaction(NOT_TOGETHER)
        state: Any = inspect(self)
        if state.identity is None:
            raise _without_session(self)
        cls = type(self)
        mapper = state.mapper
        keys = [mapper.get_property_by_column(column).class_attribute for column in mapper.primary_key]
        named = [key == value for key, value in zip(keys, state.identity, strict=True)]
        # A key that is expired would be read again when the row is flushed, by a statement for it alone.
        kept = {key.key for key in keys} | (set(state.committed_state) - {"fence"})
        stale = [attribute.key for attribute in mapper.column_attrs if attribute.key not in kept]
        told = _told_by_the_update(session, mapper, stale)
        statement: Any = update(cls).where(*named, cls.admits(token)).values(fence=token)
        if told:
            statement = statement.returning(*(getattr(cls, name) for name in told))
        with session.no_autoflush:
            done: Any = session.execute(statement, execution_options={"synchronize_session": False})
            row = done.one_or_none() if told else None
            if row is None and (told or done.rowcount == 0):
                self._refuse(session, named, state.identity, token)
            for name, value in zip(told, row or (), strict=True):
                set_committed_value(self, name, value)
            rest = [name for name in stale if name not in told]
            if rest:
                session.expire(self, rest)
            return rest

    def _refuse(self, session: Session, named: list[Any], identity: tuple[Any, ...], token: int) -> NoReturn:
        """Say why no row was left."""
        cls = type(self)
        found = session.execute(select(cls.fence).where(*named).with_for_update()).scalar_one_or_none()
        resource = f"{cls.__name__}({', '.join(map(repr, identity))})"
        if found is not None:
            judge(resource, token, found)
        raise ConfigurationError(f"{shown(resource)} does not exist any more: nothing was written")


def _told_by_the_update(session: Session, mapper: Any, names: list[str]) -> list[str]:
    """Return what the UPDATE itself can give back: the columns of its table, where there is RETURNING."""
    if not session.get_bind(mapper).dialect.update_returning:
        return []
    return [name for name in names if mapper.attrs[name].columns[0] in set(mapper.local_table.columns)]


def _without_session(row: object) -> ConfigurationError:
    return ConfigurationError(
        f"{shown(row)} is in no session, or not yet flushed: add it and flush, then admit"
    )
