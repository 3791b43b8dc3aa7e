"""`Job` and `AsyncJob`: what a handler gets.

    job.payload, job.attempt, job.progress     what to do, and what an earlier attempt has kept
    job.checkpoint(data)                       keep progress; refused if another attempt has begun
    with job.finish() as conn: …               effects in the jobs' database and the completion, together

`finish` completes the job first and lets the handler write after that, in the same transaction: the row is
locked until the commit, so nobody can overtake between the two, and whoever was overtaken already learns it
before the effect. If the block raises, or the process dies, neither has happened.

NOT promised for effects elsewhere: that they are not done again by the next attempt. Give them `job.token`,
which the resource can compare, or `job.key`, by which it knows a repetition.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from fencelock.connections import Door, SQLAlchemy
from fencelock.errors import ConfigurationError, LeaseLost
from fencelock.jobs import steps
from fencelock.jobs.adding import encoded
from fencelock.jobs.links import Link
from fencelock.jobs.statements import Statements
from fencelock.jobs.steps import Claimed, Ending
from fencelock.names import shown
from fencelock.runtime import blocking

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from fencelock.jobs.leases import RowLease
    from fencelock.lease import AsyncLease, Lease

__all__ = ["AsyncJob", "Job", "JobBase"]

RUNNING, FINISHING, FINISHED = "running", "finishing", "finished"


class JobBase:
    """What both flavours share: what the row says, and how far it is."""

    def __init__(
        self, claimed: Claimed, lease: Any, attempts: int, engine: Any, say: Statements, link: Link
    ) -> None:
        self._claimed = claimed
        self._engine = engine
        self._say = say
        self._link = link
        self._state = RUNNING
        self.id = claimed.id
        """The job's id, as the table has it."""
        self.kind = claimed.kind
        self.payload = claimed.payload
        """What `enqueue` was given."""
        self.progress = claimed.progress
        """What the last `checkpoint` has kept, of this attempt or an earlier one; or `None`."""
        self.attempt = claimed.attempt
        """The number of this attempt, from 1 on."""
        self.attempts = attempts
        """How many there may be."""
        self.token = claimed.token
        """The fencing token of this attempt: higher than that of every earlier one."""
        self._lease = lease

    @property
    def key(self) -> str:
        """The same for every attempt at this job: an idempotency key for effects elsewhere."""
        return self._claimed.name

    def _data(self, progress: Any) -> str:
        if not self._say.shape.has("progress"):
            raise ConfigurationError(
                f"table {shown(self._say.shape.shown_table)} has no column for progress: map one"
            )
        return encoded(progress, "progress")

    async def _complete(self, door: Door) -> None:
        if await steps.end(door, self._say, self._claimed, Ending("done")):
            return
        await steps.own_or_raise(door, self._say, self._claimed)
        raise LeaseLost(name=self.key, token=self.token, reason="its row could not be changed")

    def _begin_to_finish(self) -> None:
        if self._state is FINISHED:
            raise ConfigurationError(f"job {self.key!r} is finished already: use finish() once")
        self._lease.check()
        self._state = FINISHING

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} attempt={self.attempt} token={self.token}>"


class Job(JobBase):
    """A job that a handler is called with, in blocking code."""

    @property
    def lease(self) -> Lease | RowLease:
        """The lease: `check()`, `is_held()`, `remaining()`, `lost`. Without locks it is a `RowLease`."""
        lease: Lease | RowLease = self._lease
        return lease

    def checkpoint(self, progress: Any) -> None:
        """Keep progress for the next attempt. Raises `StaleToken` if that has begun already."""
        data = self._data(progress)
        blocking.run(self._link.step(lambda door: steps.checkpoint(door, self._say, self._claimed, data)))
        self.progress = progress

    @contextmanager
    def finish(self) -> Iterator[Connection]:
        """Complete the job in a transaction and do the rest of it: `with job.finish() as conn`.

        Raises `StaleToken` or `LeaseLost`, before the block is entered, if the attempt is over.
        """
        self._begin_to_finish()
        try:
            with self._engine.begin() as conn:
                blocking.run(self._complete(SQLAlchemy(conn)))
                yield conn
            self._state = FINISHED
        finally:
            if self._state is FINISHING:
                self._state = RUNNING


class AsyncJob(JobBase):
    """A job that a handler is called with, under asyncio."""

    @property
    def lease(self) -> AsyncLease | RowLease:
        """The lease: `check()`, `is_held()`, `remaining()`, `lost`. Without locks it is a `RowLease`."""
        lease: AsyncLease | RowLease = self._lease
        return lease

    async def checkpoint(self, progress: Any) -> None:
        """Keep progress for the next attempt. Raises `StaleToken` if that has begun already."""
        data = self._data(progress)
        await self._link.step(lambda door: steps.checkpoint(door, self._say, self._claimed, data))
        self.progress = progress

    @asynccontextmanager
    async def finish(self) -> AsyncIterator[AsyncConnection]:
        """Complete the job in a transaction and do the rest of it: `async with job.finish() as conn`.

        Raises `StaleToken` or `LeaseLost`, before the block is entered, if the attempt is over.
        """
        self._begin_to_finish()
        try:
            async with self._engine.begin() as conn:
                await conn.run_sync(lambda inner: blocking.run(self._complete(SQLAlchemy(inner))))
                yield conn
            self._state = FINISHED
        finally:
            if self._state is FINISHING:
                self._state = RUNNING
