"""Seats for threads and for tasks: how a reply is waited for, and how the end of a connection is noticed."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from psycopg import OperationalError

from fencelock.backends import watchdog
from fencelock.backends.postgres.advisory import watch
from fencelock.backends.postgres.advisory.seat import Seat
from fencelock.backends.postgres.link import Broken, Statement
from fencelock.runtime import clock

__all__ = ["TaskSeat", "ThreadSeat"]

SHORT = 1.0
"""With less time than this a reply is not left to the watchdog, which looks twice a second."""


class ThreadSeat(Seat):
    """A seat for threads; a watch tells when the server hangs up."""

    def __init__(self, pg: Any, pid: int, ended: Callable[[Seat, str], None]) -> None:
        super().__init__(pg, pid, ended)
        self._fd = pg.socket
        self.until = inf
        watchdog.watch(self)
        self._rest = Rest(self)
        watchdog.watch(self._rest)
        watch.watch(self._fd, self._hung_up)

    async def call(self, statement: Statement, values: Sequence[bytes | None], deadline: float) -> Any:
        if self.is_behind or self.ended or statement.name not in self._known:
            return await super().call(statement, values, deadline)
        if len(self.keys) > 1 or deadline - clock.now() < SHORT:
            return await super().call(statement, values, deadline)
        # Nothing but this one lock is at stake: libpq may read without a limit, the watchdog has one.
        self.is_behind = True
        try:
            self.until = deadline
            self._reply = self.pg.exec_prepared(statement.name, [*values], statement.formats)
            self.until = inf
        except OperationalError as error:
            raise self._broken(str(error)) from None
        self.is_behind = False
        return self._checked()

    async def answer(self, deadline: float) -> Any:
        pg = self.pg
        poll = select.poll()  # its own: a signal handler may wait for the same reply in the middle of this
        poll.register(self._fd, select.POLLIN)
        try:
            while self.is_behind and not self._take():
                left = deadline - clock.now()
                if not poll.poll(max(0.0, left) * 1000):
                    raise TimeoutError("no answer in time")
                pg.consume_input()
        except OperationalError as error:
            raise self._broken(str(error)) from None
        return self._checked()

    def rest(self) -> None:
        self._rest.until = clock.now() + (self.idle or 0) / 2000

    def _hung_up(self) -> None:
        self._tell(self, "the server closed the connection")

    def close(self) -> None:
        watch.forget(self._fd)
        watchdog.forget(self)
        watchdog.forget(self._rest)
        super().close()


class Rest:
    """A seat that has nothing: the watchdog sees to it when that has lasted for a while."""

    __slots__ = ("__weakref__", "_seat", "until")

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self.until = inf

    def hang_up(self) -> None:
        self.until = inf
        self._seat.relax()


class TaskSeat(Seat):
    """A seat for tasks; the event loop reads whatever comes, also while nobody waits for it."""

    def __init__(self, pg: Any, pid: int, ended: Callable[[Seat, str], None]) -> None:
        super().__init__(pg, pid, ended)
        pg.nonblocking = 1
        self._loop = asyncio.get_running_loop()
        self._fd = pg.socket
        self._is_watched = True
        self._change: asyncio.Future[None] | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._rests_since = 0.0
        self._loop.add_reader(self._fd, self._readable)

    def _send(self, send: Callable[..., None], *words: Any) -> None:
        super()._send(send, *words)
        self._flush()

    def _flush(self) -> None:
        try:
            if self.pg.flush():
                self._loop.add_writer(self._fd, self._flush)
            else:
                self._loop.remove_writer(self._fd)
        except OperationalError as error:
            self._broken(str(error))

    def _readable(self) -> None:
        try:
            self.pg.consume_input()
            if not self.is_behind:
                self.pg.is_busy()  # it takes in what the server says unasked
            elif not self._take():
                self.pg.consume_input()  # uvloop does not call again for a reset right behind the data
                if not self._take():
                    return
        except OperationalError as error:
            self._broken(str(error))
        self._wake()

    def rest(self) -> None:
        self._rests_since = clock.now()
        if self._rest is None:
            self._rest = self._loop.call_later((self.idle or 0) / 2000, self._rested)

    def _rested(self) -> None:
        left = self._rests_since + (self.idle or 0) / 2000 - clock.now()
        self._rest = self._loop.call_later(left, self._rested) if left > 0 else None
        if self._rest is None:
            self.relax()

    def _wake(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)

    async def answer(self, deadline: float) -> Any:
        while self.is_behind and not self.ended:
            left = deadline - clock.now()
            if left <= 0:
                raise TimeoutError("no answer in time")
            change = self._change = self._loop.create_future()
            timer = self._loop.call_later(left, self._wake)
            try:
                await change
            finally:
                timer.cancel()
        if self.ended:
            raise Broken(self.ended)
        return self._checked()

    def _broken(self, words: str) -> Broken:
        self._unwatch()
        error = super()._broken(words)
        self._wake()
        return error

    def _unwatch(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if self._is_watched:
            self._is_watched = False
            with suppress(OSError, RuntimeError, ValueError):
                self._loop.remove_reader(self._fd)
                self._loop.remove_writer(self._fd)

    def close(self) -> None:
        self._unwatch()
        super().close()
        self._wake()
