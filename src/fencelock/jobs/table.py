"""`Table` and `AsyncTable`: where jobs are, over an engine. Thin: `adding` and `records` do the work."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from fencelock.connections import Door, SQLAlchemy, ask, ask_async
from fencelock.durations import Duration, duration
from fencelock.errors import ConfigurationError
from fencelock.jobs import adding, records
from fencelock.jobs.adding import Order
from fencelock.jobs.links import AsyncLink, BlockingLink, Link, check_engine, translated
from fencelock.jobs.records import JobState
from fencelock.jobs.shape import TABLE, Mapped, Shape, Statuses, shape_of
from fencelock.runtime import blocking

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from fencelock.connections import Asyncio, Blocking

__all__ = ["AsyncTable", "Table", "TableBase"]

T = TypeVar("T")
Work = Callable[[Door, Shape], Coroutine[Any, Any, T]]
WEEK = 7 * 86400.0


class TableBase:
    """What both flavours share: the mapping, and the table's shape once it was looked at."""

    engine: Any

    def __init__(
        self, name: str, columns: Mapping[str, str] | None, statuses: Statuses | None, kind: str | None
    ) -> None:
        self.name = name
        self._mapped = Mapped.given(name, columns, statuses, kind)
        self._shape: Shape | None = None

    def _shaped(self, conn: Connection) -> Shape:
        if self._shape is None:
            self._shape = shape_of(SQLAlchemy(conn), conn, self._mapped)
        return self._shape

    async def _seen_by(self, door: Door) -> bool:
        """Look at the table on a connection of the user's, if that can be done.

        It may be locked there, or not even committed: another connection would wait, or not see it.
        """
        if isinstance(door, SQLAlchemy):
            self._shape = shape_of(door, door._conn, self._mapped)
        return self._shape is not None

    def _asked(self, conn: Connection, work: Work[T]) -> T:
        return blocking.run(work(SQLAlchemy(conn), self._shaped(conn)))

    def _known(self) -> Shape:
        assert self._shape is not None
        return self._shape

    def _link(self) -> Link:
        raise NotImplementedError

    def _check_ready_made(self) -> None:
        if not self._mapped.is_ready_made:
            raise ConfigurationError(
                f"table {self.name!r} is mapped by columns: create() makes the ready-made one only"
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.engine.dialect.name}>"


class Table(TableBase):
    """Jobs in a table, for blocking code: the ready-made one, or one of yours by `columns`.

    `columns` says which column plays which role, `statuses` how the table spells a status, `kind` the one
    kind of a table without such a column. Any number of threads may share one.
    """

    def __init__(
        self,
        engine: Engine,
        name: str = TABLE,
        *,
        columns: Mapping[str, str] | None = None,
        statuses: Statuses | None = None,
        kind: str | None = None,
    ) -> None:
        check_engine(engine, is_async=False)
        super().__init__(name, columns, statuses, kind)
        self.engine: Engine = engine

    def create(self) -> None:
        """Make the ready-made table, if it is not there."""
        self._check_ready_made()
        with translated(self.engine), self.engine.begin() as conn:
            ask(conn, lambda door: adding.create(door, self.name))

    def check(self) -> None:
        """Look at the table, and raise `ConfigurationError` if the mapping does not fit."""
        with translated(self.engine), self.engine.connect() as conn:
            self._shaped(conn)

    def enqueue(
        self,
        kind: str,
        payload: Any = None,
        *,
        key: str | None = None,
        delay: Duration = 0,
        priority: int = 0,
        conn: Blocking | None = None,
    ) -> Any:
        """Add a job and return its id. With `conn` it is part of your transaction.

        A `key` is unique: if it is there, that job's id is returned and nothing is added. The id is `None`
        for a table of your own on MySQL whose ids are not numbers that it counts up itself.
        """
        order = Order.given(kind, payload, key, delay, priority)
        if conn is None:
            return self._do(lambda door, shape: adding.enqueue(door, shape, order))
        if self._shape is None and not ask(conn, self._seen_by):
            self.check()
        return ask(conn, lambda door: adding.enqueue(door, self._known(), order))

    def counts(self) -> dict[str, int]:
        """Return how many jobs there are of each status."""
        return self._do(records.counts)

    def ls(self, *, status: str | None = None, kind: str | None = None, limit: int = 100) -> list[JobState]:
        """Return jobs, those that were due first, first."""
        return self._do(lambda door, shape: records.ls(door, shape, status, kind, limit))

    def get(self, id: Any) -> JobState | None:  # noqa: A002 - the word everybody uses
        """Return one job."""
        return self._do(lambda door, shape: records.get(door, shape, id))

    def retry(self, id: Any) -> None:  # noqa: A002
        """Let a job that is dead or cancelled begin anew, now. Raises `ConfigurationError` for others."""
        self._do(lambda door, shape: records.retry(door, shape, id))

    def cancel(self, id: Any) -> None:  # noqa: A002
        """End a job that has not ended. One that is running cannot complete any more."""
        self._do(lambda door, shape: records.cancel(door, shape, id))

    def purge(self, *, older_than: Duration = WEEK, limit: int = records.AT_ONCE) -> int:
        """Delete jobs that ended so long ago, at most `limit`; return how many."""
        age = duration(older_than, "older_than")
        return self._do(lambda door, shape: records.purge(door, shape, age, limit))

    def _do(self, work: Work[T]) -> T:
        with translated(self.engine), self.engine.begin() as conn:
            return self._asked(conn, work)

    def _link(self) -> BlockingLink:
        return BlockingLink(self.engine)


class AsyncTable(TableBase):
    """The same as `Table`, for asyncio, over an `AsyncEngine`."""

    def __init__(
        self,
        engine: AsyncEngine,
        name: str = TABLE,
        *,
        columns: Mapping[str, str] | None = None,
        statuses: Statuses | None = None,
        kind: str | None = None,
    ) -> None:
        check_engine(engine, is_async=True)
        super().__init__(name, columns, statuses, kind)
        self.engine: AsyncEngine = engine

    async def create(self) -> None:
        """Make the ready-made table, if it is not there."""
        self._check_ready_made()
        with translated(self.engine):
            async with self.engine.begin() as conn:
                await ask_async(conn, lambda door: adding.create(door, self.name))

    async def check(self) -> None:
        """Look at the table, and raise `ConfigurationError` if the mapping does not fit."""
        with translated(self.engine):
            async with self.engine.connect() as conn:
                await conn.run_sync(self._shaped)

    async def enqueue(
        self,
        kind: str,
        payload: Any = None,
        *,
        key: str | None = None,
        delay: Duration = 0,
        priority: int = 0,
        conn: Asyncio | None = None,
    ) -> Any:
        """Add a job and return its id. With `conn` it is part of your transaction. See `Table.enqueue`."""
        order = Order.given(kind, payload, key, delay, priority)
        if conn is None:
            return await self._do(lambda door, shape: adding.enqueue(door, shape, order))
        if self._shape is None and not await ask_async(conn, self._seen_by):
            await self.check()
        return await ask_async(conn, lambda door: adding.enqueue(door, self._known(), order))

    async def counts(self) -> dict[str, int]:
        """Return how many jobs there are of each status."""
        return await self._do(records.counts)

    async def ls(
        self, *, status: str | None = None, kind: str | None = None, limit: int = 100
    ) -> list[JobState]:
        """Return jobs, those that were due first, first."""
        return await self._do(lambda door, shape: records.ls(door, shape, status, kind, limit))

    async def get(self, id: Any) -> JobState | None:  # noqa: A002 - the word everybody uses
        """Return one job."""
        return await self._do(lambda door, shape: records.get(door, shape, id))

    async def retry(self, id: Any) -> None:  # noqa: A002
        """Let a job that is dead or cancelled begin anew, now. Raises `ConfigurationError` for others."""
        await self._do(lambda door, shape: records.retry(door, shape, id))

    async def cancel(self, id: Any) -> None:  # noqa: A002
        """End a job that has not ended. One that is running cannot complete any more."""
        await self._do(lambda door, shape: records.cancel(door, shape, id))

    async def purge(self, *, older_than: Duration = WEEK, limit: int = records.AT_ONCE) -> int:
        """Delete jobs that ended so long ago, at most `limit`; return how many."""
        age = duration(older_than, "older_than")
        return await self._do(lambda door, shape: records.purge(door, shape, age, limit))

    async def _do(self, work: Work[T]) -> T:
        with translated(self.engine):
            async with self.engine.begin() as conn:
                found: T = await conn.run_sync(self._asked, work)
                return found

    def _link(self) -> AsyncLink:
        return AsyncLink(self.engine)
