"""The asyncio pool: asyncmy connections, shared by all tasks of a client.

asyncmy closes a connection whose read was cancelled, but politely: what was not written yet is written
first, for ever if nobody reads. So its transport is aborted here instead. Its own time limits are
not used: they count for each read and not for the whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

from asyncmy.connection import Connection
from asyncmy.cursors import Cursor
from asyncmy.errors import MySQLError

from fencelock.backends.bugs import BUGS, bug
from fencelock.backends.mysql.blocking import INIT
from fencelock.backends.mysql.failures import (
    BACKEND,
    Kind,
    Unusable,
    closed,
    kind_of,
    no_connection,
    said,
    unreachable,
)
from fencelock.backends.mysql.pool import Link, Pool, Rows
from fencelock.backends.mysql.server import Server
from fencelock.runtime import clock
from fencelock.runtime.forks import let_go

__all__ = ["AsyncLink", "AsyncPool", "run_async"]

GOODBYE = 0.3
_graveyard: list[Any] = []


async def _ask(connection: Any, statement: str) -> Rows:
    cursor = connection.cursor(Cursor)  # whatever kind an engine's connections make
    await cursor.execute(statement)
    rows: Rows = ((cursor.rowcount,),) if cursor.description is None else await cursor.fetchall()
    while await cursor.nextset():  # a procedure ends with a result of its own
        pass
    return rows


async def run_async(connection: Any, statement: str, limit: float, *, abort: Callable[[], None]) -> Rows:
    """Run a statement on an asyncmy connection; `abort()` is called if it was interrupted, or broke."""
    try:
        async with asyncio.timeout(limit):
            rows = await _ask(connection, statement)
    except BUGS as error:
        was_open = connection.connected
        abort()
        if was_open:
            raise bug(BACKEND, "asyncmy", error) from error
        raise Unusable(2013, str(error)) from error
    except Exception as error:
        told = Unusable(*error.args) if isinstance(error, MySQLError) else Unusable(2013, str(error))
        if kind_of(told) is Kind.BROKEN or not isinstance(error, MySQLError):
            abort()
            told = Unusable(2013, str(error))
        raise told from error
    except BaseException:
        abort()
        raise
    return rows


class AsyncLink(Link):
    """An asyncmy connection of our own."""

    __slots__ = ("_connection", "_transport")

    def __init__(self) -> None:
        self.used = False
        self._connection: Any = None
        self._transport: asyncio.Transport | None = None

    async def connect(self, server: Server, timeout: float) -> None:
        """Connect, within `timeout` seconds."""
        arguments = server.arguments(timeout)
        self._connection = Connection(**arguments, init_command=INIT)  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(max(0.001, timeout)):
                await self._connection.connect()
            self._transport = self._connection._transport
        except (MySQLError, OSError, ValueError, RuntimeError) as error:
            self.kill()
            if isinstance(error, MySQLError) and kind_of(error) is not Kind.BROKEN:
                raise said(server.label, error) from error
            raise unreachable(server.label, error, tls=server.tls is not None) from error
        except BUGS as error:
            self.kill()
            raise bug(BACKEND, "asyncmy", error) from error
        except BaseException:
            self.kill()
            raise

    async def query(self, statement: str, limit: float) -> Rows:
        rows = await run_async(self._connection, statement, limit, abort=self.kill)
        self.used = True
        return rows

    @property
    def number(self) -> int:
        """The connection's id on the server, as the server's greeting had it."""
        return int(self._connection.thread_id())

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed it, as far as is known."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and not self._connection._proto.eof

    def kill(self) -> None:
        connection = self._connection
        transport = self._transport or (connection._transport if connection is not None else None)
        if transport is not None:
            transport.abort()
        if connection is not None:
            connection._transport = None
            connection._connected = False
            connection._close_reason = "closed"

    async def quit(self) -> None:
        """Say goodbye and close."""
        with suppress(Exception):
            async with asyncio.timeout(GOODBYE):
                await self._connection.ensure_closed()
        self.kill()

    def drop(self) -> None:
        """In a forked child: close the copy of the socket, and keep the rest from being cleaned up."""
        if self._transport is not None:
            let_go(self._transport)
        _graveyard.append(self)


class AsyncPool(Pool):
    """Connections of our own, for all tasks of one event loop."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.label = server.label
        self.tls = server.tls is not None
        self._idle: list[AsyncLink] = []
        self._all: set[AsyncLink] = set()
        self._room = asyncio.Semaphore(server.pool_size)
        self._answered = -inf
        """When a connection was last given back, with its answer read."""
        self._closed = False

    async def take(self, deadline: float) -> AsyncLink:
        if self._closed:
            raise closed()
        if self._room.locked():
            began = clock.now()
            try:
                async with asyncio.timeout(max(0.0, deadline - clock.now())):
                    await self._room.acquire()
            except TimeoutError as error:
                raise no_connection(self.label, is_well=self._answered >= began) from error
        else:
            await self._room.acquire()  # which does not wait
        try:
            return await self._take(deadline)
        except BaseException:
            self._room.release()
            raise

    async def _take(self, deadline: float) -> AsyncLink:
        if self._closed:
            raise closed()
        while self._idle:
            link = self._idle.pop()
            if link.is_open:
                return link
            self._forget(link)
        link = AsyncLink()
        self._all.add(link)
        try:
            await link.connect(self.server, min(deadline - clock.now(), self.server.connect_timeout))
        except BaseException:
            self._forget(link)
            raise
        if self._closed:  # meanwhile
            self._forget(link)
            raise closed()
        return link

    def _forget(self, link: AsyncLink) -> None:
        link.kill()
        self._all.discard(link)

    async def give(self, link: AsyncLink) -> None:
        if self._closed:
            self._forget(link)
        else:
            self._answered = clock.now()
            self._idle.append(link)
        self._room.release()

    async def discard(self, link: AsyncLink) -> None:
        self._forget(link)
        self._room.release()

    async def renew(self) -> None:
        while self._idle:
            self._forget(self._idle.pop())

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            link = self._idle.pop()
            self._all.discard(link)
            await link.quit()
        for link in list(self._all):
            self._forget(link)
        await asyncio.sleep(0)  # the loop closes the sockets in its next turn

    def drop(self) -> None:
        for link in self._all:
            link.drop()
        self._idle, self._all = [], set()

    def bury(self) -> None:
        """The event loop has ended: close the sockets without it."""
        for link in self._all:
            if link._transport is not None:
                let_go(link._transport)
            _graveyard.append(link)
        self._idle, self._all = [], set()
