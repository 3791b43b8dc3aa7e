"""What the two flavours have in common: links, pools of them, and the way a step persists.

A link is a connection. A step takes one for a single statement and gives it back when the whole answer
has been read; a link on which anything was interrupted is closed instead, so no foreign answer is
ever read. Waiters hold none while they wait.

Every step may be repeated: its procedure finds by the owner's id what was done already. So one whose
answer was lost is sent again on another link, until its deadline; one that the server undid to end a
deadlock as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from fencelock.backends.mysql import schema
from fencelock.backends.mysql.failures import (
    FORBIDDEN,
    Kind,
    Unusable,
    code_of,
    kind_of,
    may_not_create,
    newer_schema,
    no_answer,
    said,
    unreachable,
)
from fencelock.core.ports import PoolExhausted
from fencelock.errors import BackendError, FencelockError
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime

__all__ = ["ATTEMPT", "Link", "Pool", "Rows", "Wire"]

Rows = Sequence[Sequence[Any]]

ATTEMPT = 2.0
"""Seconds after which an answer counts as lost, and is asked for again."""
PAUSE = 0.005
LONGEST_PAUSE = 0.1
LATCH_SECONDS = 3
THERE_ALREADY = {1050, 1304}
NO_USER_LOCKS = 1235


class Link(ABC):
    """One connection. Used by one step at a time."""

    __slots__ = ("__weakref__", "used")
    used: bool
    """Whether it has answered before: then it may have been closed while it was idle."""

    @abstractmethod
    async def query(self, statement: str, limit: float) -> Rows:
        """Return the first result of a statement, within `limit` seconds; `Unusable` if it fails.

        Of one that has none, the number of rows it changed.

        Whatever interrupts it, and whatever breaks it, the link is closed then.
        """

    @abstractmethod
    def kill(self) -> None:
        """Close it at once, without a word to the server. Idempotent, from any thread."""


class Pool(ABC):
    """Links to one server, at most so many; the one that was used last is taken first."""

    label: str
    tls: bool = False
    autocommits: bool = True
    """Whether each statement commits itself."""

    @abstractmethod
    async def take(self, deadline: float) -> Any:
        """Return a link that nobody else uses; `BackendUnavailable` if there is none by then."""

    @abstractmethod
    async def give(self, link: Any) -> None:
        """Take a link back that has answered."""

    @abstractmethod
    async def discard(self, link: Any) -> None:
        """Close a link that failed."""

    @abstractmethod
    async def renew(self) -> None:
        """Close every idle link: one was found closed, the others will be too."""

    def wake(self) -> None:
        """The client is closing: a step that a signal handler has interrupted for that has a link, or waits
        for one, and must not stand in the way."""

    @abstractmethod
    async def close(self) -> None:
        """Close every link. Those in use fail."""

    @abstractmethod
    def drop(self) -> None:
        """In a forked child: let go of every link without telling the server."""


class Wire:
    """Steps on one server, whatever goes wrong on the way."""

    def __init__(self, pool: Pool, runtime: Runtime, place: str, prefix: str, name: str = "schema") -> None:
        """`place` is the database, for the latch under which its tables are made; `name` is their file's."""
        self.pool = pool
        self._runtime = runtime
        self._prefix = prefix
        self._name = name
        self._latch = schema.latch(place, prefix)
        self._ready = False

    async def call(self, statement: str, deadline: float) -> tuple[Rows, bool]:
        """Return the answer, and whether it may have been done before: by its own first sending."""
        if not self._ready:
            await self.prepare(deadline)
        try:
            return await self.persist(statement, deadline)
        except Unusable:  # somebody dropped the tables or the procedures
            self._ready = False
            await self.prepare(deadline, anew=True)
        try:
            return await self.persist(statement, deadline)
        except Unusable as error:
            raise said(self.pool.label, error) from error.__cause__

    async def persist(self, statement: str, deadline: float) -> tuple[Rows, bool]:
        """Send a statement until it is answered. `Unusable` if what it needs is missing."""
        again, turns = False, 0
        failure: FencelockError | None = None
        pool = self.pool
        while True:
            if deadline <= clock.now():
                raise failure or no_answer(pool.label)
            try:
                link = await pool.take(deadline)
            except PoolExhausted as error:
                if failure is not None:  # it was sent before, and may have been done
                    raise failure from error
                raise
            now, old = clock.now(), link.used
            try:
                rows = await link.query(statement, min(ATTEMPT, max(0.001, deadline - now)))
            except Unusable as error:
                kind = kind_of(error)
                if kind is Kind.BROKEN:
                    await pool.discard(link)
                    failure = unreachable(pool.label, error, tls=pool.tls)
                    if not old and not isinstance(error.__cause__, TimeoutError):
                        raise failure from error.__cause__
                    if old:
                        await pool.renew()
                    again = True
                    continue
                await pool.give(link)
                if kind is Kind.MISSING:
                    raise
                failure = said(pool.label, error)
                if kind is Kind.SAID:
                    raise failure from error.__cause__
                turns += 1
                pause = min(LONGEST_PAUSE, PAUSE * turns) * (0.5 + self._runtime.jitter())
                await self._runtime.sleep(min(pause, max(0.0, deadline - clock.now())))
            except BaseException:
                await pool.discard(link)
                raise
            else:
                await pool.give(link)
                return rows, again

    # The tables -------------------------------------------------------------------------------

    async def prepare(self, deadline: float, *, anew: bool = False) -> None:
        """Make sure that the tables are there and of a version that is known."""
        try:
            rows, _ = await self.persist(f"SELECT MAX(version) FROM {self._prefix}{self._name}", deadline)
            found = rows[0][0]
        except Unusable:
            found = None
        if found is not None and found > schema.VERSION:
            raise newer_schema(self.pool.label, found, schema.VERSION)
        if found is None or anew:
            await self._create(deadline)
        self._ready = True

    async def _create(self, deadline: float) -> None:
        link = await self.pool.take(deadline)
        try:
            await self._under_latch(link, deadline)
        except BaseException:
            await self.pool.discard(link)  # and the latch with it
            raise
        await self.pool.give(link)

    async def _under_latch(self, link: Link, deadline: float) -> None:
        await self._say(link, f"SELECT GET_LOCK('{self._latch}', {LATCH_SECONDS})", deadline, {NO_USER_LOCKS})
        ((modes, most),) = await self._say(
            link, "SELECT @@SESSION.sql_mode, @@SESSION.max_error_count", deadline, set()
        )
        # asyncmy logs each warning that the server keeps, and what is there already is one.
        await self._say(link, "SET SESSION max_error_count = 0", deadline, set())
        # Procedures keep the mode they were made in; some modes do not even take the text.
        await self._say(link, "SET SESSION sql_mode = 'STRICT_TRANS_TABLES'", deadline, set())
        for statement in schema.statements(self._prefix, self._name):
            await self._say(link, statement, deadline, THERE_ALREADY)
        await self._say(link, "COMMIT", deadline, set())
        await self._say(link, f"SET SESSION sql_mode = '{modes}'", deadline, set())
        await self._say(link, f"SET SESSION max_error_count = {most}", deadline, set())
        await self._say(link, f"DO RELEASE_LOCK('{self._latch}')", deadline, {NO_USER_LOCKS})

    async def _say(self, link: Link, statement: str, deadline: float, fine: set[int]) -> Rows:
        left = deadline - clock.now()
        if left <= 0:
            raise no_answer(self.pool.label)
        try:
            return await link.query(statement, left)
        except Unusable as error:
            code = code_of(error)
            if code in fine:
                return ()
            if code in FORBIDDEN:
                raise may_not_create(self.pool.label, error) from error.__cause__
            if kind_of(error) is Kind.BROKEN:
                raise unreachable(self.pool.label, error, tls=self.pool.tls) from error.__cause__
            raise said(self.pool.label, error) from error.__cause__

    async def quietly(self, statement: str, deadline: float) -> None:
        """Send a statement that nobody depends on."""
        try:
            await self.call(statement, deadline)
        except BackendError:
            return
