"""A pool: a bounded number of connections, each for one exchange at a time, or shared.

After an exchange its connection

- goes back, if the answer came;
- is closed, if it broke;
- is kept for a while under the exchange's tag, if the caller was interrupted, cancelled, or ran out of time.
  The server may still do what it was asked, and what is sent on another connection may overtake it. So
  cleanup waits for the answer first (`settle`). One that is kept does not count any more; a shared one serves
  others meanwhile.

Those who wait for a connection get one in turn, first come first served.

The last user of a shared connection closes it. The pool refers strongly only to connections that are free or
kept: one that an interrupt took out of a thread's hands dies with the thread's frame, and counts no more.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from fencelock.net.exchange import Connection
from fencelock.net.failures import Disconnected, Failures
from fencelock.net.turns import Turns
from fencelock.runtime import clock, locks
from fencelock.runtime.base import Runtime

__all__ = ["Call", "Pool"]

KEPT = 2.0
"""Seconds for which the answer to an exchange that was given up may be waited for."""
STALE = 5.0
"""Seconds after which a free connection that was not used is closed, if there are others."""
Q = TypeVar("Q")
A = TypeVar("A")


class Call:
    """A question that may be ended from elsewhere, with its connection, which it must have for itself.

    `hang_up` counts from before the question has a connection until its answer has come, and not after that,
    when the connection is another's.
    """

    def __init__(self) -> None:
        self._lock = locks.rlock()  # a signal's handler may come in the middle
        self._connection: Connection[Any, Any] | None = None
        self._is_over = False

    def begin(self, connection: Connection[Any, Any]) -> None:
        """It is asked there. Raises `Disconnected` if it is not wanted any more."""
        with self._lock:
            if self._is_over:
                raise Disconnected("it is not wanted any more")
            self._connection = connection

    def end(self) -> None:
        """It is not asked there any more."""
        with self._lock:
            self._connection = None

    def hang_up(self) -> None:
        """End it, now or when it begins. From any thread."""
        with self._lock:
            self._is_over = True
            if self._connection is not None:
                self._connection.hang_up()


class Pool(Generic[Q, A]):
    """Connections to the servers of one backend."""

    def __init__(
        self,
        runtime: Runtime,
        failures: Failures,
        new: Callable[[str], Connection[Q, A]],
        *,
        most: int,
        idle: int,
        share: int = 1,
    ) -> None:
        """At most `most` connections, of which `idle` are kept; `share` exchanges on one at a time."""
        self._failures = failures
        self._new = new
        self._most, self._idle, self._share = most, idle, share
        self._lock = locks.rlock()
        self._free: list[Connection[Q, A]] = []
        """Those with room for an exchange."""
        self._all: weakref.WeakSet[Connection[Q, A]] = weakref.WeakSet()
        """Those that count, and those that were retired and are still in use."""
        self._kept: dict[str, tuple[Connection[Q, A], float]] = {}
        self._turns = Turns(runtime)
        self._is_closed = False

    async def ask(
        self, endpoint: str, question: Q, deadline: float, tag: str = "", call: Call | None = None
    ) -> A:
        """Ask one server. Raises `OSError` and `Disconnected`."""
        connection = self._find(endpoint) if not self._turns.line else None
        if connection is None:
            connection = await self._turns.wait(lambda: self._find(endpoint), deadline)
        try:
            if not connection.is_open:
                await self._open(connection, deadline)
            if call is not None:
                call.begin(connection)
            answer = await connection.ask(question, deadline, tag)
        except BaseException as error:
            self._give_up(connection, tag, is_broken=isinstance(error, (Disconnected, ConnectionError)))
            raise
        finally:
            if call is not None:
                call.end()
        self._give_back(connection)
        return answer

    def _find(self, endpoint: str) -> Connection[Q, A] | None:
        """Return a connection with room, or one to be opened; `None` if there is none."""
        with self._lock:
            if self._is_closed:
                raise self._failures.closed()
            for connection in self._free[::-1]:
                if connection.endpoint != endpoint or not connection.is_usable():
                    self._retire(connection)
                elif connection.load < self._share:
                    if self._share == 1:
                        self._free = [one for one in self._free if one is not connection]
                    return connection
            if sum(not one.is_retired for one in self._all) >= self._most:
                return None
            connection = self._new(endpoint)
            self._all.add(connection)
            return connection

    async def _open(self, connection: Connection[Q, A], deadline: float) -> None:
        await connection.open(deadline)
        if self._is_closed:
            raise self._failures.closed()
        if self._share > 1:
            self._free.append(connection)
            self._turns.call()

    def _give_back(self, connection: Connection[Q, A]) -> None:
        with self._lock:
            is_over = connection.is_over
            if self._share == 1 and not is_over:
                connection.used = now = clock.now()
                self._free.append(connection)
                for oldest in self._free[:1]:  # none, if a signal's handler closed the pool
                    if len(self._free) > self._idle or oldest.used < now - STALE:
                        self._retire(oldest)
            if is_over or self._is_closed:
                self._retire(connection)
        if self._turns.line:
            self._turns.call()

    def _give_up(self, connection: Connection[Q, A], tag: str, *, is_broken: bool) -> None:
        with self._lock:
            now = clock.now()
            for old, (_, until) in list(self._kept.items()):
                if until < now or old == tag:
                    self._end_kept(old)
            if is_broken or self._is_closed or not connection.has(tag):
                connection.forget(tag)
            else:
                self._kept[tag] = connection, now + KEPT
            if self._share == 1 or connection.is_over:
                self._retire(connection)
        self._turns.call()

    def _retire(self, connection: Connection[Q, A]) -> None:
        """Let another have its place. The last of its users closes it."""
        self._free = [one for one in self._free if one is not connection]
        connection.retire()
        if not connection.load:
            connection.close()

    # Exchanges that were given up ---------------------------------------------------------------

    async def settle(self, tag: str, deadline: float, label: str) -> A | None:
        """Wait until what was asked under this tag and given up is done; return its answer, if any."""
        kept = self._kept.get(tag) if self._kept else None
        if kept is None:
            return None
        connection, until = kept
        answer: A | None = None
        try:
            answer = await connection.settle(tag, min(deadline, until))
        except TimeoutError:
            if deadline < until:
                raise self._failures.no_answer(label) from None
        except (Disconnected, OSError):
            pass
        with self._lock:
            if self._kept.get(tag) is kept:
                self._end_kept(tag)
        return answer

    def _end_kept(self, tag: str) -> None:
        connection, _ = self._kept.pop(tag)
        connection.forget(tag)
        if connection.is_over and not connection.load:
            connection.close()

    # The end ------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close every connection; what is under way ends at once."""
        with self._lock:
            self._is_closed = True
            for tag in list(self._kept):
                self._end_kept(tag)
            for connection in list(self._all):
                connection.hang_up()
                if connection in self._free:
                    self._retire(connection)
        self._turns.call()

    def drop(self) -> None:
        """In a forked child: let go of every connection, without a word to the servers."""
        for connection in list(self._all):
            connection.drop()
