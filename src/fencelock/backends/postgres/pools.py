"""A client's own connections: a few, shared by its threads or tasks; the last given back is taken first.

A connection to PostgreSQL is a process there, so there are at most `pool_size` of them, and whoever finds
none waits until one is given back: a step takes a fraction of a millisecond, and waiters hold none.

First come, first served: who gives a connection back and wants one again stands behind those who wait.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from fencelock.backends.line import Line
from fencelock.backends.postgres.address import Address
from fencelock.backends.postgres.dialling import CONNECT, dial, dial_async
from fencelock.backends.postgres.failures import Refused, closed, no_answer, no_connection, said
from fencelock.backends.postgres.failures import unreachable as not_reached
from fencelock.backends.postgres.link import Broken, Link, Statement, TaskLink
from fencelock.backends.postgres.wire import Source
from fencelock.runtime import clock, locks

__all__ = ["OWN_PID", "TaskPool", "ThreadPool", "is_pooled"]

OWN_PID = "SELECT pg_backend_pid()"
KEEPALIVES = ("keepalives_idle", "keepalives_interval", "keepalives_count")
DRAIN = 0.5
"""Seconds that the server has to answer what was interrupted."""
MANY_LATE = 16
"""So many connections are kept whose answers are late; of older ones nobody wants to know any more."""


def is_pooled(pg: Any, result: Any) -> bool:
    """Whether the server that answers is another than the one that greeted: a pooler is in between."""
    return bool(int(result.get_value(0, 0)) != pg.backend_pid)


def greeting(address: Address, pid: int) -> str:
    """Ask for the server's process, and let it notice a client that is gone as soon as we would notice it.

    By itself it takes two hours, and a network that resets connections on one side fills it with dead ones.
    What a pooler shares with others is left as it is.
    """
    settings = (f"set_config('tcp_{name}', '{int(address.parameters[name])}', false)" for name in KEEPALIVES)
    return f"SELECT pg_backend_pid(), CASE pg_backend_pid() WHEN {pid} THEN concat({', '.join(settings)}) END"


class Seat:
    """The right to one connection. It belongs to whoever refers to it, and is free when nobody does.

    So an interrupt at any point, between taking a connection and having it, costs the pool nothing.
    """

    __slots__ = ("__weakref__",)


class ThreadPool(Source):
    """Connections for threads."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.label = address.label
        self._idle: list[Link] = []
        self._seats: weakref.WeakSet[Seat] = weakref.WeakSet()
        self._seating = locks.rlock()  # a signal handler may take a lock, too
        self._line = Line()
        self._links: weakref.WeakSet[Link] = weakref.WeakSet()
        self._late: deque[Link] = deque()
        self._settling = locks.rlock()  # a signal handler may clean up in the middle of a clean-up
        self._most = address.pool_size
        self._answered = -inf
        """When a connection was last given back, with its answer read."""
        self._closed = False
        self._closer = 0
        """The thread that has closed it: a step of its own that goes on then was interrupted by that."""

    async def take(self, deadline: float) -> Link:
        if not self._line:
            try:
                return self._idle.pop()
            except IndexError:
                pass
        began = clock.now()
        found: Link | Seat | None = self._line.wait(self._find, deadline)
        if found is None:
            raise no_connection(self.label, is_well=self._answered >= began)
        return self._seated(found, deadline) if isinstance(found, Seat) else found

    def _find(self) -> Link | Seat | None:
        """Return a connection, or the right to make one, if there is any."""
        if self._closed:
            raise closed()
        with suppress(IndexError):
            return self._idle.pop()
        with self._seating:
            if len(self._seats) >= self._most:
                return None
            seat = Seat()
            self._seats.add(seat)
            return seat

    def _seated(self, seat: Seat, deadline: float) -> Link:
        try:
            link = self._connect(deadline)
        except BaseException:
            self._seats.discard(seat)  # the error's traceback refers to it
            raise
        link.seat = seat
        return link

    def _connect(self, deadline: float) -> Link:
        left = deadline - clock.now()
        if left <= 0:
            raise no_answer(self.label)
        until = min(deadline, clock.now() + CONNECT)
        pg = dial(self.address, until - clock.now())
        link = Link(pg, is_pooled=False)
        self._links.add(link)
        try:
            link.is_pooled = is_pooled(pg, link.run(greeting(self.address, pg.backend_pid), until))
            if self._closed:  # meanwhile: `close` may have looked before it was there
                raise closed()
        except Refused as error:
            link.close()
            raise said(self.label, error) from error
        except (Broken, TimeoutError) as error:
            link.close()
            raise not_reached(self.label, str(error)) from error
        except BaseException:
            link.close()
            raise
        link.is_proven = False
        return link

    def give(self, link: Link) -> None:
        self._answered = clock.now()
        self._idle.append(link)
        if self._closed:
            self._empty()
        else:
            self._line.call()

    def interrupted(self, link: Link) -> None:
        link.drain(clock.now() + DRAIN)
        self.discard(link)

    def late(self, link: Link) -> None:
        link.until = inf  # the watchdog need not look at it
        link.seat = None
        self._late.append(link)
        if len(self._late) > MANY_LATE:
            self._late.popleft().close()
        self._line.call()

    async def settled(self, deadline: float) -> None:
        # One that is being read off by another thread is still late: its answer may be ours to wait for.
        if not self._late or not self._settling.acquire(timeout=max(0.0, deadline - clock.now())):
            return
        try:
            while self._late:
                link = self._late[0]
                link.drain(min(deadline, clock.now() + DRAIN))
                link.close()
                with suppress(ValueError):  # there were too many
                    self._late.remove(link)
        finally:
            self._settling.release()

    def discard(self, link: Link) -> None:
        link.close()
        link.seat = None
        self._line.call()

    async def call(
        self, link: Link, statement: Statement, values: Sequence[bytes | None], until: float
    ) -> Any:
        return self._ask(link, link.call, statement, values, until)

    async def run(self, link: Link, text: str, until: float) -> Any:
        return self._ask(link, link.run, text, until)

    def _ask(self, link: Link, ask: Callable[..., Any], *words: Any) -> Any:
        try:
            me = link.thread = threading.get_ident()
            if self._closer == me:
                raise Broken("this client is closed")
            return ask(*words)
        finally:
            link.thread = 0

    def wake(self) -> None:
        self._most += 1  # the interrupted step has a connection, or the right to one
        self._line.step_aside()
        me = threading.get_ident()
        for link in self._mine():
            if link.thread == me:  # what undoes the step must not overtake it
                link.drain(clock.now() + DRAIN)
                link.hang_up()

    def _mine(self) -> Iterable[Link]:
        return list(self._links)

    async def dial(self, deadline: float) -> Link:
        if self._closed:
            raise closed()
        return self._connect(deadline)

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 (nothing suspends here)

    async def close(self) -> None:
        self._closed = True
        self._closer = threading.get_ident()
        self._empty()
        self._line.call()  # and each calls the next

    def _empty(self) -> None:
        for links in (self._idle, self._late):
            while links:
                try:
                    links.pop().close()
                except IndexError:
                    break

    def drop(self) -> None:
        for link in list(self._links):
            link.drop()


class TaskPool(Source):
    """Connections for the tasks of one event loop."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.label = address.label
        self._idle: list[TaskLink] = []
        self._count = 0
        self._line: deque[asyncio.Future[TaskLink | None]] = deque()
        self._draining: set[asyncio.Task[None]] = set()
        self._links: weakref.WeakSet[TaskLink] = weakref.WeakSet()
        self._answered = -inf
        """When a connection was last given back, with its answer read."""
        self._closed = False

    async def take(self, deadline: float) -> TaskLink:
        if self._closed:
            raise closed()
        if self._idle:  # then nobody stands in line
            return self._idle.pop()
        if self._count >= self.address.pool_size:
            given = await self._in_turn(deadline)
            if given is not None:
                return given
        else:
            self._count += 1
        try:
            link = await self._connect(deadline)
        except BaseException:
            self._one_less()
            raise
        link.seat = True
        return link

    async def _in_turn(self, deadline: float) -> TaskLink | None:
        """Stand in line; return a connection, or `None` for the right to make one."""
        turn: asyncio.Future[TaskLink | None] = asyncio.get_running_loop().create_future()
        began = clock.now()
        self._line.append(turn)
        try:
            async with asyncio.timeout(max(0.0, deadline - clock.now())):
                return await turn
        except TimeoutError:
            self._pass_on(turn)
            raise no_connection(self.label, is_well=self._answered >= began) from None
        except BaseException:
            self._pass_on(turn)
            raise

    def _pass_on(self, turn: asyncio.Future[TaskLink | None]) -> None:
        """Whoever was given something in the moment in which it went gives it to the next."""
        if not turn.done() or turn.cancelled() or turn.exception() is not None:
            return
        link = turn.result()
        if link is None:
            self._one_less()
        else:
            self.give(link)

    def _hand(self, link: TaskLink | None) -> bool:
        """Give a connection, or the right to make one, to who is first in line; say whether there is one."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(link)
                return True
        return False

    async def _connect(self, deadline: float) -> TaskLink:
        left = deadline - clock.now()
        if left <= 0:
            raise no_answer(self.label)
        until = min(deadline, clock.now() + CONNECT)
        link = TaskLink(await dial_async(self.address, until - clock.now()), is_pooled=False)
        self._links.add(link)
        try:
            hello = greeting(self.address, link.pg.backend_pid)
            link.is_pooled = is_pooled(link.pg, await link.run(hello, until))
            if self._closed:  # meanwhile
                raise closed()
        except Refused as error:
            link.close()
            raise said(self.label, error) from error
        except (Broken, TimeoutError) as error:
            link.close()
            raise not_reached(self.label, str(error)) from error
        except BaseException:
            link.close()
            raise
        link.is_proven = False
        return link

    def give(self, link: TaskLink) -> None:
        self._answered = clock.now()
        if self._closed:
            link.close()
        elif not self._hand(link):
            self._idle.append(link)

    def interrupted(self, link: TaskLink) -> None:
        task = asyncio.get_running_loop().create_task(link.drain(clock.now() + DRAIN))
        self._draining.add(task)
        task.add_done_callback(lambda task: self._drained(task, link))

    def _drained(self, task: asyncio.Task[None], link: TaskLink) -> None:
        self._draining.discard(task)
        self.discard(link)

    async def settled(self, deadline: float) -> None:
        if self._draining:
            await asyncio.wait(self._draining, timeout=max(0.0, deadline - clock.now()))

    def discard(self, link: TaskLink) -> None:
        link.close()
        if link.seat:
            self._one_less()

    def _one_less(self) -> None:
        if not self._hand(None):
            self._count -= 1

    async def call(
        self, link: TaskLink, statement: Statement, values: Sequence[bytes | None], until: float
    ) -> Any:
        return await link.call(statement, values, until)

    async def run(self, link: TaskLink, text: str, until: float) -> Any:
        return await link.run(text, until)

    async def dial(self, deadline: float) -> TaskLink:
        if self._closed:
            raise closed()
        return await self._connect(deadline)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_exception(closed())
        for task in list(self._draining):
            task.cancel()
        if self._draining:
            await asyncio.wait(self._draining)

    def drop(self) -> None:
        for link in list(self._links):
            link.drop()
