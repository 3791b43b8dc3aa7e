"""The blocking pool: PyMySQL connections, shared by all threads of a client.

A connection is in the list of idle ones, or belongs to the one step that took it out, or to nobody:
an interrupt between two lines can lose it, and it is closed as garbage then. So nothing is counted
that an interrupt could miscount; how many there are is how many are alive.

Time limits are the socket's, set when they change; Python keeps them in spite of signals.
"""

from __future__ import annotations

import os
import socket
import weakref
from contextlib import suppress
from math import inf
from typing import Any

import pymysql  # type: ignore[import-untyped]
from pymysql.cursors import Cursor  # type: ignore[import-untyped]
from pymysql.err import Error  # type: ignore[import-untyped]

from fencelock.backends.bugs import BUGS, bug
from fencelock.backends.line import Line
from fencelock.backends.mysql.failures import (
    BACKEND,
    NO_TLS,
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
from fencelock.errors import BackendUnavailable
from fencelock.runtime import clock, locks

__all__ = ["BlockingLink", "BlockingPool", "run_blocking"]

INIT = "SET SESSION innodb_lock_wait_timeout = 5"
"""A step that nobody waits for any more must not be done much later."""


def _ask(connection: Any, statement: str) -> Rows:
    cursor = connection.cursor(Cursor)  # whatever kind an engine's connections make
    cursor.execute(statement)
    rows: Rows = ((cursor.rowcount,),) if cursor.description is None else cursor.fetchall()
    while cursor.nextset():  # a procedure ends with a result of its own
        pass
    return rows


def run_blocking(connection: Any, statement: str, limit: float) -> Rows:
    """Run a statement on a PyMySQL connection; it is closed if it was interrupted, or broke."""
    connection._read_timeout = connection._write_timeout = limit
    try:
        rows = _ask(connection, statement)
    except BUGS as error:
        was_open = connection.open
        connection._force_close()
        if was_open:
            raise bug(BACKEND, "PyMySQL", error) from error
        raise Unusable(2013, str(error)) from error  # another thread has closed it
    except Exception as error:  # noqa: BLE001 - also what a socket that was shut down makes of it
        told = Unusable(*error.args) if isinstance(error, Error) else Unusable(2013, str(error))
        if kind_of(told) is Kind.BROKEN or not isinstance(error, Error):
            connection._force_close()
            told = Unusable(2013, str(error))
        cause = error.__context__ if isinstance(error.__context__, TimeoutError) else error
        raise told from cause
    except BaseException:
        connection._force_close()
        raise
    return rows


_left: list[Any] = []
"""Buffers of connections that were the parent's, which must never be closed."""


class BlockingLink(Link):
    """A PyMySQL connection of our own."""

    __slots__ = ("_connection",)

    def __init__(self) -> None:
        self.used = False
        self._connection: Any = None

    @property
    def is_new(self) -> bool:
        """Whether it has not been connected yet."""
        return self._connection is None

    def connect(self, server: Server, timeout: float) -> None:
        """Connect, within about `timeout` seconds."""
        try:
            self._connection = pymysql.Connection(
                **server.arguments(timeout),
                ssl_disabled=server.tls is None,
                read_timeout=max(0.001, timeout),
                write_timeout=max(0.001, timeout),
                init_command=INIT,
                defer_connect=True,
            )
            self._connection.connect()
        except Error as error:
            self.kill()
            if kind_of(error) is Kind.BROKEN:
                raise unreachable(server.label, error, tls=server.tls is not None) from error
            raise said(server.label, error) from error
        except (OSError, ValueError, RuntimeError) as error:
            self.kill()
            raise unreachable(server.label, error) from error
        except BUGS as error:
            self.kill()
            raise bug(BACKEND, "PyMySQL", error) from error
        except BaseException:
            self.kill()
            raise
        if server.tls is not None and not self._connection._secure:
            self.kill()
            raise BackendUnavailable(backend=BACKEND, detail=f"{server.label}: {NO_TLS}", transient=False)

    async def query(self, statement: str, limit: float) -> Rows:
        rows = run_blocking(self._connection, statement, limit)
        self.used = True
        return rows

    @property
    def number(self) -> int:
        """The connection's id on the server, as the server's greeting had it."""
        return int(self._connection.thread_id())

    @property
    def socket(self) -> socket.socket | None:
        """The socket, to look whether it was closed."""
        sock: socket.socket | None = self._connection._sock if self._connection is not None else None
        return sock

    def kill(self) -> None:
        if self._connection is not None:
            self._connection._force_close()

    def drop(self) -> None:
        """In a forked child: close our copy of the socket, and nothing else.

        A thread of the parent's may have been reading. Its copy here never ends, and the buffer that it
        reads into is locked for ever: closing that, or letting it be collected, would hang.
        """
        connection = self._connection
        if connection is None or connection._sock is None:
            return
        sock, buffer = connection._sock, connection._rfile
        connection._sock = connection._rfile = None
        _left.append(buffer)
        with suppress(OSError):
            os.close(sock.detach())

    def hang_up(self) -> None:
        """Let what is under way on another thread fail at once."""
        sock = self.socket
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def quit(self) -> None:
        """Say goodbye and close."""
        with suppress(Exception):
            self._connection._write_timeout = 0.2
            self._connection.close()
        self.kill()


class BlockingPool(Pool):
    """Connections of our own, for all threads of a client."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.label = server.label
        self.tls = server.tls is not None
        self._idle: list[BlockingLink] = []
        self._all: weakref.WeakSet[BlockingLink] = weakref.WeakSet()
        self._changing = locks.rlock()  # a signal handler may take a lock, too
        self._line = Line()
        self._most = server.pool_size
        self._answered = -inf
        """When a connection was last given back, with its answer read."""
        self._closed = False

    async def take(self, deadline: float) -> BlockingLink:
        if not self._line:
            with suppress(IndexError):
                return self._idle.pop()
        began = clock.now()
        link = self._line.wait(self._find, deadline)
        if link is None:
            raise no_connection(self.label, is_well=self._answered >= began)
        if link.is_new:
            self._dial(link, min(deadline - clock.now(), self.server.connect_timeout))
        return link

    def _find(self) -> BlockingLink | None:
        """Return a connection, or one that is to be made, if there is any or room for one."""
        with suppress(IndexError):
            return self._idle.pop()
        with self._changing:
            if self._closed:
                raise closed()
            if len(self._all) >= self._most:
                return None
            link = BlockingLink()
            self._all.add(link)
            return link

    def _dial(self, link: BlockingLink, timeout: float) -> BlockingLink:
        try:
            link.connect(self.server, timeout)
        except BaseException:
            self._all.discard(link)
            self._line.call()
            raise
        if self._closed:  # meanwhile: `close` may have looked before it was there
            link.kill()
            raise closed()
        return link

    async def give(self, link: BlockingLink) -> None:
        if self._closed:
            link.quit()
            return
        self._answered = clock.now()
        self._idle.append(link)
        if self._closed:  # meanwhile
            self._hang_up_idle()
        else:
            self._line.call()

    async def discard(self, link: BlockingLink) -> None:
        link.kill()
        self._all.discard(link)
        self._line.call()

    async def renew(self) -> None:
        while self._idle:
            with suppress(IndexError):
                link = self._idle.pop()
                link.kill()
                self._all.discard(link)

    def wake(self) -> None:
        self._most += 1
        self._line.step_aside()

    async def close(self) -> None:
        self._closed = True
        self._hang_up_idle()
        for link in list(self._all):
            link.hang_up()
        self._all = weakref.WeakSet()
        self._line.call()  # and each calls the next

    def _hang_up_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().quit()

    def drop(self) -> None:
        for link in list(self._all):
            link.drop()
        self._idle = []
