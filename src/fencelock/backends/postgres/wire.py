"""The wire: statements to the server, whatever goes wrong on the way.

Every step may be repeated: a function finds by the owner's id what it has done already. So a statement whose
reply was lost is sent again, on a new connection, until its deadline; so is one that the server gave up
for a reason that passes (a deadlock, a serialization failure, a lock that was not free in time).

A step has a connection for the one statement and then gives it back; a waiter has none. Where connections
come from is a `Source`: its own few (`pools.py`), or the user's pool or engine (`borrowed.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fencelock.backends.postgres.failures import AGAIN, GONE, MISSING, UNPREPARED, Refused, no_answer, said
from fencelock.backends.postgres.failures import unreachable as not_reached
from fencelock.backends.postgres.link import ATTEMPT, Broken, Statement
from fencelock.core.ports import PoolExhausted
from fencelock.runtime import clock

__all__ = ["Source", "Wire"]

PAUSE = 0.005


class Source(ABC):
    """Where connections come from. `link` is a `Link` or, under asyncio, a `TaskLink`."""

    label: str

    @abstractmethod
    async def take(self, deadline: float) -> Any:
        """Return a connection that nobody else uses until it is given back."""

    @abstractmethod
    def give(self, link: Any) -> None:
        """Give back a connection that is as clean as it was."""

    @abstractmethod
    def discard(self, link: Any) -> None:
        """Close a connection on which something went wrong."""

    @abstractmethod
    def interrupted(self, link: Any) -> None:
        """Close a connection on which a statement may be under way that nobody waits for any more."""

    def late(self, link: Any) -> None:
        """Do the same where the time is over: `settled` waits for the answer, and not the caller."""
        self.interrupted(link)

    async def settled(self, deadline: float) -> None:
        """Wait until the server has answered what was interrupted: what undoes it must not overtake it."""

    @abstractmethod
    async def call(
        self, link: Any, statement: Statement, values: Sequence[bytes | None], until: float
    ) -> Any:
        """Run a statement on a connection."""

    @abstractmethod
    async def run(self, link: Any, text: str, until: float) -> Any:
        """Run a script on a connection, as one transaction."""

    @abstractmethod
    async def dial(self, deadline: float) -> Any:
        """Return a connection of one's own, to listen on. It is closed with `link.close()`."""

    def wake(self) -> None:
        """The client is closing: what a signal handler has interrupted for that must not stand in its way."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Do nothing for so long."""

    @abstractmethod
    async def close(self) -> None:
        """Close what is one's own."""

    @abstractmethod
    def drop(self) -> None:
        """In a forked child: let go of every connection without telling the server."""


class Wire:
    """Statements over a source's connections."""

    def __init__(self, source: Source, missing: Callable[[Wire, float], Awaitable[None]]) -> None:
        """`missing` makes the schema that a statement did not find, or says why it cannot."""
        self.source = source
        self._missing = missing

    async def call(
        self,
        statement: Statement,
        values: Sequence[bytes | None],
        deadline: float,
        then: Sequence[bytes | None] | None = None,
    ) -> tuple[Any, bool]:
        """Return the result of a statement, and whether it may have been done before by its own sending.

        In that case it is sent with the values `then`, where these are given.
        """
        source = self.source
        again = made = False
        while True:
            try:
                link = await source.take(deadline)
            except PoolExhausted as error:
                if again:  # it was sent before, and may have been done
                    raise no_answer(source.label) from error
                raise
            old = link.is_proven
            try:
                result = await source.call(link, statement, values, deadline)
            except (Broken, TimeoutError) as error:
                (source.late if isinstance(error, TimeoutError) else source.discard)(link)
                if clock.now() + PAUSE >= deadline:
                    raise no_answer(source.label) from error
                if not old and isinstance(error, Broken):
                    raise not_reached(source.label, str(error)) from error
                again = True  # it was closed while idle, or the reply was lost: another connection will tell
                values = then or values
            except Refused as error:
                state = error.state
                if state in GONE or state in UNPREPARED:
                    source.discard(link)
                else:
                    source.give(link)
                if state in MISSING and not made:
                    await self._missing(self, deadline)
                    made = True
                    continue
                pause = PAUSE if state in AGAIN else 0.0
                passes = state in AGAIN or (old and (state in GONE or state in UNPREPARED))
                if not passes or clock.now() + pause >= deadline:
                    raise said(source.label, error) from error
                await source.pause(pause)
            except BaseException:
                source.interrupted(link)
                raise
            else:
                source.give(link)
                return result, again

    async def run(self, text: str, deadline: float) -> Any:
        """Run a script, once, as one transaction. Raises `Refused` as it is."""
        source = self.source
        link = await source.take(deadline)
        try:
            result = await source.run(link, text, min(deadline, clock.now() + 2 * ATTEMPT))
        except Refused:
            source.give(link)
            raise
        except (Broken, TimeoutError) as error:
            source.discard(link)
            raise not_reached(source.label, str(error)) from error
        except BaseException:
            source.discard(link)
            raise
        source.give(link)
        return result
