"""One connection, with nothing of the driver around it but libpq's own calls (`psycopg.pq`).

A statement is prepared once on a connection and then called by its name. Where a pooler stands in between
(the server's process id is not the one that the greeting named) nothing is prepared: the next
transaction may run in another session.

Blocking, a step whose time is not short is one call into libpq, which reads without a limit; a watchdog
hangs up when the reply is long overdue. Under asyncio the event loop watches the socket.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import Any

from psycopg import OperationalError, pq

from fencelock.backends import watchdog
from fencelock.backends.bugs import BUGS, bug
from fencelock.backends.postgres.failures import BACKEND, Refused
from fencelock.runtime import clock

__all__ = ["ATTEMPT", "Broken", "Link", "Statement", "TaskLink"]

ATTEMPT = 1.5
"""Seconds after which a reply counts as lost, and is asked for again."""
BINARY, TEXT = pq.Format.BINARY, pq.Format.TEXT
GOOD = {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY}
BAD = pq.ConnStatus.BAD
ACTIVE = pq.TransactionStatus.ACTIVE

Values = Sequence[bytes | None]
"""Parameters of a statement. libpq's calls take a list: psycopg 3.1 and 3.2 accept nothing else."""


class Broken(OSError):
    """The connection is of no use any more."""


class Statement:
    """One statement with parameters; `binary` says at which places they are raw bytes."""

    __slots__ = ("formats", "name", "text")

    def __init__(self, name: str, text: str, binary: Sequence[int] = ()) -> None:
        self.name = f"fencelock_{name}".encode()
        self.text = text.encode()
        count = max((int(mark) for mark in re.findall(r"\$(\d+)", text)), default=0)
        self.formats = [BINARY if place in binary else TEXT for place in range(1, count + 1)]


class Link:
    """One connection for blocking calls. Used by one thread at a time."""

    __slots__ = ("__weakref__", "_known", "_pg", "is_pooled", "is_proven", "owner", "seat", "thread", "until")

    def __init__(self, pg: Any, *, is_pooled: bool, owner: Any = None) -> None:
        self._pg = pg
        self._known: set[bytes] = set()
        self.is_pooled = is_pooled
        self.is_proven = False
        """A reply was read from it: it was good at least once."""
        self.owner = owner
        """Whose it is, if it was borrowed."""
        self.seat: Any = None
        self.thread = 0
        """The thread that is in the middle of a statement."""
        self.until = inf
        watchdog.watch(self)

    @property
    def pg(self) -> Any:
        """libpq's connection."""
        return self._pg

    def call(self, statement: Statement, values: Values, deadline: float) -> Any:
        """Run a statement and return its result. Raises `Broken`, `TimeoutError`, `Refused`."""
        now = clock.now()
        try:
            if deadline - now < ATTEMPT:
                result = self._carefully(statement, values, deadline)
            else:
                self.until = now + ATTEMPT
                result = self._plainly(statement, values)
                self.until = inf
        except OperationalError as error:
            raise Broken(str(error)) from None
        return self._checked(result)

    def run(self, text: str, deadline: float) -> Any:
        """Run a script without parameters, as one transaction; return the last result."""
        try:
            self._pg.send_query(text.encode())
            result = self._receive(deadline)
        except OperationalError as error:
            raise Broken(str(error)) from None
        return self._checked(result)

    def _plainly(self, statement: Statement, values: Values) -> Any:
        pg = self._pg
        if self.is_pooled:
            return pg.exec_params(statement.text, [*values], None, statement.formats)
        if statement.name not in self._known:
            result = pg.prepare(statement.name, statement.text)
            if result.status not in GOOD:
                return result
            self._known.add(statement.name)
        return pg.exec_prepared(statement.name, [*values], statement.formats)

    def _carefully(self, statement: Statement, values: Values, deadline: float) -> Any:
        pg = self._pg
        if not self.is_pooled and statement.name in self._known:
            pg.send_query_prepared(statement.name, [*values], statement.formats)
        else:
            pg.send_query_params(statement.text, [*values], None, statement.formats)
        return self._receive(deadline)

    def _receive(self, deadline: float) -> Any:
        """Return the last result of what was sent: the error, if there was one."""
        pg = self._pg
        poll = select.poll()
        poll.register(pg.socket, select.POLLIN)
        while pg.flush() and clock.now() < deadline:
            select.select((), (pg.socket,), (), max(0.0, deadline - clock.now()))
        last = None
        while True:
            while pg.is_busy():
                left = deadline - clock.now()
                if left <= 0 or not poll.poll(left * 1000):
                    raise TimeoutError("no answer in time")
                pg.consume_input()
            result = pg.get_result()
            if result is None:
                return last
            last = result

    def _checked(self, result: Any) -> Any:
        if result is None:  # a signal handler has read it: see `drain`
            raise Broken("its answer was read by another")
        if result.status in GOOD:
            self.is_proven = True
            return result
        if self._pg.status == BAD:
            words = result.error_message or self._pg.error_message
            raise Broken(words.decode("utf-8", "replace"))
        raise Refused(result)

    def drain(self, until: float) -> None:
        """Read the answer to what was interrupted, if there is one."""
        with suppress(OperationalError, TimeoutError):
            if self._pg.transaction_status == ACTIVE:
                self._receive(until)

    def wait(self, deadline: float) -> bool:
        """Wait until there is something to read, and take it in; say whether there was."""
        poll = select.poll()
        poll.register(self._pg.socket, select.POLLIN)
        if not poll.poll(max(0.0, deadline - clock.now()) * 1000):
            return False
        try:
            self._pg.consume_input()
        except OperationalError as error:
            raise Broken(str(error)) from None
        return True

    def pushes(self) -> list[str]:
        """Return what was notified and not yet read."""
        return read_pushes(self._pg)

    def hang_up(self) -> None:
        """Let a call that is under way end at once, as if the server had closed the connection."""
        hang_up(self._pg)

    def close(self) -> None:
        watchdog.forget(self)
        self._pg.finish()

    def drop(self) -> None:
        """In a forked child: close the copy of the socket, and say nothing on it."""
        drop(self._pg)


class TaskLink:
    """One connection for asyncio. Used by one task at a time."""

    def __init__(self, pg: Any, *, is_pooled: bool, owner: Any = None) -> None:
        self._pg = pg
        pg.nonblocking = 1
        self._known: set[bytes] = set()
        self.is_pooled = is_pooled
        self.is_proven = False
        self.owner = owner
        self._loop = asyncio.get_running_loop()
        self._reply: asyncio.Future[Any] | None = None
        self._last: Any = None
        self.seat: Any = None
        self._heard: Any = None
        self._fd = pg.socket
        self._is_open = True
        self._is_writing = False
        self._loop.add_reader(self._fd, self._readable)

    @property
    def pg(self) -> Any:
        """libpq's connection."""
        return self._pg

    async def call(self, statement: Statement, values: Values, deadline: float) -> Any:
        """Run a statement and return its result. Raises `Broken`, `TimeoutError`, `Refused`."""
        pg = self._pg
        until = min(deadline, clock.now() + ATTEMPT)
        try:
            if self.is_pooled:
                pg.send_query_params(statement.text, [*values], None, statement.formats)
            else:
                if statement.name not in self._known:
                    pg.send_prepare(statement.name, statement.text)
                    await self._answer(until)
                    self._known.add(statement.name)
                pg.send_query_prepared(statement.name, [*values], statement.formats)
        except OperationalError as error:
            raise Broken(str(error)) from None
        return await self._answer(until)

    async def run(self, text: str, deadline: float) -> Any:
        """Run a script without parameters, as one transaction; return the last result."""
        try:
            self._pg.send_query(text.encode())
        except OperationalError as error:
            raise Broken(str(error)) from None
        return await self._answer(deadline)

    async def _answer(self, until: float) -> Any:
        """Return the last result of what was sent."""
        reply = self._reply = self._loop.create_future()
        self._last = None
        self._flush()
        timer = self._loop.call_later(max(0.0, until - clock.now()), self._late)
        try:
            result = await reply
        finally:
            timer.cancel()
            self._reply = None
        if result.status in GOOD:
            self.is_proven = True
            return result
        if self._pg.status == BAD:
            raise Broken((result.error_message or self._pg.error_message).decode("utf-8", "replace"))
        raise Refused(result)

    async def drain(self, until: float) -> None:
        """Read the answer to what was interrupted, if there is one."""
        reply = self._reply = self._loop.create_future()
        timer = self._loop.call_later(max(0.0, until - clock.now()), self._late)
        try:
            if self._pg.transaction_status == ACTIVE:
                self._read()
                await reply
        except (Broken, TimeoutError):
            return
        finally:
            timer.cancel()
            self._reply = None

    def _flush(self) -> None:
        try:
            if self._pg.flush():
                self._is_writing = True
                self._loop.add_writer(self._fd, self._flush)
            elif self._is_writing:
                self._is_writing = False
                self._loop.remove_writer(self._fd)
        except OperationalError as error:
            self._fail(Broken(str(error)))

    def _late(self) -> None:
        self._fail(TimeoutError("no answer in time"))

    def _readable(self) -> None:
        pg = self._pg
        try:
            pg.consume_input()
            if self._reply is not None and pg.is_busy():
                pg.consume_input()  # uvloop does not call again for a reset right behind the data
            if self._heard is not None:
                self._heard(read_pushes(pg), None)
            self._read()
        except OperationalError as error:
            self._fail(Broken(str(error)))
        except BUGS as error:
            self._fail(bug(BACKEND, "psycopg", error))

    def _read(self) -> None:
        pg = self._pg
        try:
            while self._reply is not None and not pg.is_busy():
                result = pg.get_result()
                if result is None:
                    if self._last is not None and not self._reply.done():
                        self._reply.set_result(self._last)
                    return
                self._last = result
        except OperationalError as error:
            self._fail(Broken(str(error)))

    def _fail(self, error: Exception) -> None:
        if isinstance(error, Broken):
            self._unwatch()
            if self._heard is not None:
                self._heard([], error)
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)

    def listen(self, heard: Any) -> None:
        """From now on call `heard(pushes, error)` when something was notified, or the connection broke."""
        self._heard = heard

    def _unwatch(self) -> None:
        if self._is_open:
            self._is_open = False
            with suppress(OSError, RuntimeError, ValueError):
                self._loop.remove_reader(self._fd)
                self._loop.remove_writer(self._fd)

    def close(self) -> None:
        self.let_go()
        self._pg.finish()

    def let_go(self) -> None:
        """Watch it no more: it goes back to whose it is."""
        self._unwatch()
        self._heard = None

    def drop(self) -> None:
        """In a forked child: close the copy of the socket, and say nothing on it."""
        drop(self._pg)


def read_pushes(pg: Any) -> list[str]:
    """Return what was notified and not yet read."""
    found = []
    while (push := pg.notifies()) is not None:
        found.append(push.extra.decode("ascii", "replace"))
    return found


def hang_up(pg: Any) -> None:
    """Shut the socket down under libpq's feet, from another thread."""
    with suppress(OSError, OperationalError):
        copy = socket.socket(fileno=os.dup(pg.socket))
        try:
            copy.shutdown(socket.SHUT_RDWR)
        finally:
            copy.close()


def drop(pg: Any) -> None:
    """Close this process's copy of the socket; libpq's object is never finished here."""
    with suppress(OSError, OperationalError):
        os.close(pg.socket)
