"""The gate: the next in line is woken by the server's own lock manager, and nobody else is.

PostgreSQL wakes every session that listens, whatever is notified to whomever: with many waiters that costs
more than the handover itself. So a client has one connection with a gate, for one of its requests at
a time. The request takes its steps there; its session holds an advisory lock on the request's token from
before anybody can see it until it has left. The one behind it, on such a connection of its own, blocks on
that lock, wakes inside its statement, sees that it was handed the lock, and returns: one round trip,
one process woken.

A gate is a bell and no lock: what counts is the row. A client that dies opens its gate too early, one
whose gate was in use has none, a semaphore's slot may be freed by anybody: the waiter then sees that it
is not its turn, and listens for NOTIFY like any other. There are no gates behind a pooler, nor on
connections that belong to somebody else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from fencelock.backends.postgres.failures import Refused
from fencelock.backends.postgres.link import Broken, Statement
from fencelock.backends.postgres.wire import Source
from fencelock.errors import BackendUnavailable
from fencelock.runtime import clock, locks

__all__ = ["Gate", "Turn"]

TIMED_OUT = "55P03"
GRACE = 0.25
"""The server's time limit comes first; then the connection counts as broken."""
SLICE = 0.9
"""Seconds: shorter than deadlock_timeout, after which the server looks for deadlocks in vain."""
ROOM = 1.0
"""Seconds: whoever has less takes a connection that is there."""
OPEN = "SELECT pg_advisory_unlock_all()"


class Turn(Enum):
    """What came of waiting at the gate."""

    COME = "the request was handed the lock"
    UNSETTLED = "the request was handed the lock, but its place in the queue may not be on disk"
    AGAIN = "the time is over"
    USELESS = "it is of no use: those before it have none"
    GONE = "the request does not stand in the queue any more"


class Gate:
    """One connection of a client, for one of its requests at a time.

    A lease may be lost while its owner is on the way to release it: then the gate is *aborted* under its
    user's hands. Whoever is in the middle of something with the connection ends that first, which fails at
    once; only then can another request have the gate.
    """

    def __init__(self, source: Source, statement: Statement) -> None:
        self._source = source
        self._statement = statement
        self._link: Any = None
        self._is_aborted = False
        self._user: str | None = None
        """Who is in the middle of something with the connection."""
        self._claiming = locks.rlock()  # two threads may come at once, or a signal in between
        self.owner: str | None = None
        """Whose gate it is now."""
        self.is_usable = source.has_gates
        self._waiting: bytes | None = None
        """The server's process that waits for the request."""
        self.left: bytes | None = None
        """One that waits on: it does not see that its connection was closed."""

    def claim(self, owner: str, deadline: float) -> bool:
        """Take the gate, if it is free, and if there is time to connect where there is no connection."""
        if not self.is_usable or (self._link is None and deadline - clock.now() < ROOM):
            return False
        with self._claiming:
            if self._is_aborted and self._user is None:
                self._hang_up()
            if self.owner is None:
                self.owner = owner
            return self.owner == owner

    def give_up(self, owner: str) -> None:
        """Let another request have it, if it is this owner's."""
        with self._claiming:
            if self.owner == owner and self._is_aborted:
                self._hang_up()
            elif self.owner == owner:
                self._free()

    def _free(self) -> None:
        self.owner = None
        self._is_aborted = False

    def _enter(self, owner: str) -> bool:
        with self._claiming:
            if self.owner != owner or self._user is not None:
                return False
            self._user = owner
            return True

    def _exit(self, owner: str) -> None:
        with self._claiming:
            if self._user == owner:
                self._user = self._waiting = None
                if not self.is_usable:  # closed meanwhile
                    self._hang_up()

    async def call(
        self, owner: str, statement: Statement, values: Sequence[bytes | None], deadline: float
    ) -> Any:
        """Return the result of a step; `None` if there is none, and another connection is to be asked."""
        try:
            if not self._enter(owner):
                return None
            if self._link is None:
                self._link = await self._source.dial(deadline)
                if self._link.is_pooled:
                    self.is_usable = False
                    return None
            return await self._source.call(self._link, statement, values, deadline)
        except TimeoutError:
            self._part(self._source.late)
            return None
        except (Refused, Broken, BackendUnavailable):
            self._hang_up()
            return None
        except BaseException:
            if self._user == owner:
                self._part(self._source.interrupted)
            raise
        finally:
            self._exit(owner)

    async def wait(self, me: Sequence[bytes], deadline: float) -> Turn:
        """Wait for those before the request."""
        owner = me[2].decode()
        try:
            if not self._enter(owner) or self._link is None:
                return Turn.USELESS
            self._waiting = b"%d" % self._link.pg.backend_pid
            if not self.is_usable:  # see `wake`
                return Turn.USELESS
            until = min(deadline, clock.now() + SLICE)
            values = (*me, b"%d" % max(1, int((until - clock.now()) * 1000)))
            result = await self._source.call(self._link, self._statement, values, until + GRACE)
        except Refused as error:
            if error.state == TIMED_OUT:
                return Turn.AGAIN
            self._hang_up()
            return Turn.USELESS
        except (Broken, TimeoutError):
            self.left = self._waiting
            self._hang_up()
            return Turn.USELESS
        except BaseException:
            if self._user == owner:
                self.left = self._waiting
                self._hang_up()  # nothing is changed by what is under way
            raise
        finally:
            self._exit(owner)
        return TURNS[result.get_value(0, 0)]

    def wake(self) -> None:
        """The client is closing: end a wait. Any other step on the connection goes on."""
        self.is_usable = False  # first: one of the two sees the other
        link = self._link
        if self._waiting is not None and link is not None:
            self.left = self._waiting
            link.hang_up()

    async def open(self, owner: str) -> None:
        """Let the one behind through, if it is this owner's gate: it gives up, and has left another way."""
        try:
            if not self._enter(owner):
                return
            if self._link is not None:
                await self._source.run(self._link, OPEN, clock.now() + SLICE)
        except (Refused, Broken, TimeoutError):
            self._hang_up()
        except BaseException:
            if self._user == owner:
                self._hang_up()
            raise
        finally:
            self._exit(owner)
        self.give_up(owner)

    def _part(self, close: Callable[[Any], None]) -> None:
        link, self._link = self._link, None
        self._free()
        if link is not None:
            close(link)

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        self._free()

    def abort(self) -> None:
        """Break the connection, and thereby open the gate: its request has ended, and nobody says so."""
        self._is_aborted = True
        link = self._link
        if link is not None:
            link.hang_up()

    def close(self) -> None:
        """Let go of the connection, for good."""
        with self._claiming:
            self.is_usable = False
            if self._user is None:
                self._hang_up()
            elif self._link is not None:
                self._link.hang_up()  # its user closes it

    def drop(self) -> None:
        """In a forked child: let go of the connection without telling the server."""
        if self._link is not None:
            self._link.drop()


TURNS = {b"t": Turn.COME, b"s": Turn.UNSETTLED, b"f": Turn.USELESS, None: Turn.GONE}
