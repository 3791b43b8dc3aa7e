"""Connections on loan: taken from a lender for one statement, and given back as they were.

The statement goes straight to libpq, so neither psycopg nor SQLAlchemy has to know. What is left on a
connection is prepared statements. psycopg clears those when it likes (`DEALLOCATE ALL` after some
rollbacks), and so does a pool whose `reset` says `DISCARD ALL`: a statement that is not there any more is
prepared again, and on a connection that keeps forgetting nothing is prepared. Several clients may share a
pool, with schemas of their own, so a prepared statement is named by its text.

psycopg keeps its connections nonblocking, and a link leaves that as it is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from psycopg import pq

from fencelock.backends import watchdog
from fencelock.backends.postgres.address import Address
from fencelock.backends.postgres.dialling import CONNECT
from fencelock.backends.postgres.failures import BACKEND, Refused, closed, refused, said
from fencelock.backends.postgres.lenders import Loan, TaskLender, ThreadLender, errors
from fencelock.backends.postgres.link import Broken, Link, Statement, TaskLink
from fencelock.backends.postgres.pools import OWN_PID, TaskPool, ThreadPool, is_pooled
from fencelock.errors import BackendUnavailable, FencelockError
from fencelock.runtime import clock, locks

__all__ = ["BorrowedTasks", "BorrowedThreads"]

logger = logging.getLogger("fencelock")

PAUSE = 0.005
GOODBYE = 1.0
"""Seconds that closing a client waits for connections that are on their way back."""
FORGETFUL = 3
"""How often a connection may forget prepared statements before none are prepared on it."""
UNKNOWN_STATEMENT, KNOWN_STATEMENT = "26000", "42P05"
IDLE, UNKNOWN = pq.TransactionStatus.IDLE, pq.TransactionStatus.UNKNOWN


class Seen:
    """What fencelock knows of a borrowed connection, whichever client has borrowed it."""

    __slots__ = ("forgotten", "is_pooled", "statements")

    def __init__(self, is_pooled: bool) -> None:
        self.is_pooled = is_pooled
        self.statements: set[bytes] = set()
        self.forgotten = 0


_seen: WeakKeyDictionary[Any, Seen] = WeakKeyDictionary()


class Borrowed:
    """What both flavours share."""

    address: Address
    label: str

    def __init__(self, given: Mapping[str, str]) -> None:
        """`given` is what the lender connects with, as far as that is known."""
        self._given = given
        self._met: WeakSet[Any] = WeakSet()
        self._named: dict[bytes, Statement] = {}

    def _statement(self, statement: Statement) -> Statement:
        """Return it under a name that no other text has."""
        named = self._named.get(statement.text)
        if named is None:
            named = Statement.__new__(Statement)
            named.name = b"fencelock_" + blake2b(statement.text, digest_size=8).hexdigest().encode()
            named.text = statement.text
            named.formats = statement.formats
            self._named[statement.text] = named
        return named

    def _relearn(self, link: Any, statement: Statement, error: Refused) -> None:
        """After a statement was refused for what the connection has, or has not, prepared."""
        if link.owner is None or error.state not in {KNOWN_STATEMENT, UNKNOWN_STATEMENT}:
            raise error
        seen = _seen[link.owner.raw]
        if error.state == KNOWN_STATEMENT:
            seen.statements.add(statement.name)
            return
        seen.statements.clear()
        seen.forgotten += 1
        if seen.forgotten >= FORGETFUL:
            link.is_pooled = seen.is_pooled = True

    def _meet(self, raw: Any) -> None:
        """See by a connection how to make one of our own, and how to call the server."""
        if raw not in self._met:
            self._met.add(raw)
            fresh = Address(reached(raw.pgconn, self._given), schema=self.address.schema)
            self.address.parameters, self.address.label = fresh.parameters, fresh.label
            self.label = fresh.label

    def _in_use(self) -> BackendUnavailable:
        return self._unavailable(
            "it lent a connection in the middle of a transaction: is one left open by a callback or an event "
            "of the pool?",
            transient=False,
        )

    def _exhausted(self) -> BackendUnavailable:
        return self._unavailable("none of the pool's connections was free in time")

    def _unavailable(self, detail: str, transient: bool = True) -> BackendUnavailable:
        return BackendUnavailable(backend=BACKEND, detail=f"{self.label}: {detail}", transient=transient)

    def _not_lent(self, error: Exception) -> FencelockError:
        """Say in fencelock's words why nothing was lent."""
        kind = type(error).__name__
        if isinstance(error, TimeoutError) or kind in {"PoolTimeout", "TimeoutError", "TooManyRequests"}:
            return self._exhausted()
        if kind == "PoolClosed":
            return self._unavailable(str(error), transient=False)
        return refused(self.label, str(error))


def reached(pg: Any, given: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters by which a connection was made: those given, and those it has itself.

    A pool may add to what it was given, up to a password that is made for each connection. But psycopg
    tries several hosts one by one: of those the connection knows only its own.
    """
    defaults = {option.keyword: option.val for option in pq.Conninfo.get_defaults()}
    actual = {
        option.keyword.decode(): option.val.decode()
        for option in pg.info
        if option.val is not None and option.val != defaults.get(option.keyword)
    }
    if actual.get("host", "") in given.get("host", "").split(","):
        actual = {key: value for key, value in actual.items() if key not in {"host", "hostaddr", "port"}}
    return {**given, **actual}


class Noted(suppress):
    """Trouble in giving back does not undo the step: the owner has it, and it is in the log."""

    def __init__(self) -> None:
        super().__init__(Exception)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if isinstance(error, Exception):
            logger.debug("a borrowed connection was not taken back: %s", error)
        return super().__exit__(kind, error, trace)


class BorrowedThreads(Borrowed, ThreadPool):
    """Borrowed connections for threads. Only those that are dialled are the client's own."""

    def __init__(self, lender: ThreadLender, address: Address, given: Mapping[str, str]) -> None:
        ThreadPool.__init__(self, address)
        Borrowed.__init__(self, given)
        self._lender = lender
        self._lent: WeakKeyDictionary[Any, Link] = WeakKeyDictionary()
        self._lock = locks.rlock()  # a signal handler may close the client in the middle

    def late(self, link: Link) -> None:
        self.interrupted(link)  # its owner wants it back, one way or the other

    async def take(self, deadline: float) -> Link:
        while True:
            if self._closed:
                raise closed()
            loan = self._borrow(deadline)
            try:
                link = self._lent.get(loan.raw) or self._new_link(loan, deadline)
            except Refused as error:
                self._lender.take_back(loan)
                raise said(self.label, error) from error
            except (Broken, TimeoutError):
                self._write_off(loan)  # closed while it lay idle: another one
                if clock.now() + PAUSE >= deadline:
                    raise self._exhausted() from None
                time.sleep(PAUSE)  # noqa: ASYNC251 (nothing suspends here)
                continue
            except BaseException:
                self._write_off(loan)
                raise
            link.owner = loan
            link.is_proven = True  # its owner had it before
            return link

    def _borrow(self, deadline: float) -> Loan:
        if deadline <= clock.now():
            raise self._exhausted()
        try:
            loan = self._lender.lend(deadline)
        except errors() as error:
            raise self._not_lent(error) from error
        if loan.raw.pgconn.transaction_status not in {IDLE, UNKNOWN}:
            self._lender.take_back(loan)
            raise self._in_use()
        return loan

    def _new_link(self, loan: Loan, deadline: float) -> Link:
        raw, pg = loan.raw, loan.raw.pgconn
        if pg.transaction_status == UNKNOWN:
            raise Broken("it is closed")
        link = Link(pg, is_pooled=False)
        try:
            seen = _seen.get(raw)
            if seen is None:
                result = link.run(OWN_PID, min(deadline, clock.now() + CONNECT))
                seen = _seen[raw] = Seen(is_pooled(pg, result))
            self._meet(raw)
        except BaseException:
            watchdog.forget(link)
            raise
        link.is_pooled = seen.is_pooled
        link._known = seen.statements
        with self._lock:
            self._lent[raw] = link
            if self._closed:  # meanwhile
                watchdog.forget(link)
        return link

    def give(self, link: Link) -> None:
        loan: Loan = link.owner
        if link.pg.transaction_status != IDLE:
            self.discard(link)
            return
        link.owner = None
        with Noted():
            self._lender.take_back(loan)

    def discard(self, link: Link) -> None:
        loan: Loan = link.owner
        link.owner = None
        with self._lock:
            self._lent.pop(loan.raw, None)
        watchdog.forget(link)
        self._write_off(loan)

    def _write_off(self, loan: Loan) -> None:
        loan.raw.pgconn.finish()
        with Noted():
            self._lender.write_off(loan)

    async def call(
        self, link: Link, statement: Statement, values: Sequence[bytes | None], until: float
    ) -> Any:
        statement = self._statement(statement)
        try:
            return self._ask(link, link.call, statement, values, until)
        except Refused as error:
            self._relearn(link, statement, error)
        return self._ask(link, link.call, statement, values, until)

    def _mine(self) -> Iterable[Link]:
        with self._lock:
            return [*self._links, *self._lent.values()]

    async def close(self) -> None:
        await ThreadPool.close(self)
        with self._lock:
            for link in list(self._lent.values()):
                watchdog.forget(link)


class BorrowedTasks(Borrowed, TaskPool):
    """Borrowed connections for the tasks of one event loop. Only those that are dialled are the client's own.

    Giving back is a task of its own: it takes its owner's lock, and must not be cancelled with the step.
    """

    def __init__(self, lender: TaskLender, address: Address, given: Mapping[str, str]) -> None:
        TaskPool.__init__(self, address)
        Borrowed.__init__(self, given)
        self._lender = lender
        self._returns: set[asyncio.Task[None]] = set()

    async def take(self, deadline: float) -> TaskLink:
        while True:
            if self._closed:
                raise closed()
            loan = await self._borrow(deadline)
            try:
                link = await self._new_link(loan, deadline)
            except Refused as error:
                self._return(self._lender.take_back(loan))
                raise said(self.label, error) from error
            except (Broken, TimeoutError):
                self._write_off(loan)  # closed while it lay idle: another one
                if clock.now() + PAUSE >= deadline:
                    raise self._exhausted() from None
                await asyncio.sleep(PAUSE)
                continue
            except BaseException:
                self._write_off(loan)
                raise
            link.is_proven = True  # its owner had it before
            return link

    async def _borrow(self, deadline: float) -> Loan:
        if deadline <= clock.now():
            raise self._exhausted()
        try:
            loan = await self._lender.lend(deadline)
        except errors() as error:
            raise self._not_lent(error) from error
        if loan.raw.pgconn.transaction_status not in {IDLE, UNKNOWN}:
            self._return(self._lender.take_back(loan))
            raise self._in_use()
        return loan

    async def _new_link(self, loan: Loan, deadline: float) -> TaskLink:
        """Return a link for this time only: psycopg watches the same socket when it is its turn."""
        raw, pg = loan.raw, loan.raw.pgconn
        if pg.transaction_status == UNKNOWN:
            raise Broken("it is closed")
        link = TaskLink(pg, is_pooled=False, owner=loan)
        try:
            seen = _seen.get(raw)
            if seen is None:
                result = await link.run(OWN_PID, min(deadline, clock.now() + CONNECT))
                seen = _seen[raw] = Seen(is_pooled(pg, result))
            self._meet(raw)
        except BaseException:
            link.let_go()
            raise
        link.is_pooled = seen.is_pooled
        link._known = seen.statements
        return link

    def give(self, link: TaskLink) -> None:
        if link.pg.transaction_status != IDLE:
            self.discard(link)
            return
        link.let_go()
        self._return(self._lender.take_back(link.owner))

    def discard(self, link: TaskLink) -> None:
        link.let_go()
        self._write_off(link.owner)

    def _write_off(self, loan: Loan) -> None:
        loan.raw.pgconn.finish()
        self._return(self._lender.write_off(loan))

    def _return(self, giving: Coroutine[Any, Any, None]) -> None:
        async def give() -> None:
            with Noted():
                await giving

        task = asyncio.get_running_loop().create_task(give())
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)

    async def call(
        self, link: TaskLink, statement: Statement, values: Sequence[bytes | None], until: float
    ) -> Any:
        statement = self._statement(statement)
        try:
            return await link.call(statement, values, until)
        except Refused as error:
            self._relearn(link, statement, error)
        return await link.call(statement, values, until)

    async def close(self) -> None:
        await TaskPool.close(self)
        await asyncio.sleep(0)  # what was drained is given back by then
        if self._returns:
            await asyncio.wait(list(self._returns), timeout=GOODBYE)
