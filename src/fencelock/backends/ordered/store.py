"""The store: what ZooKeeper, etcd and Consul each have to be able to do for the queue rule to work on them.

Records of a name in order, each with a number that only ever rises, and each in a tenure that it ends with.
Whoever writes another store has this file to fill in, and `fencelock.testing.conformance` to pass.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from fencelock.backends.ordered.places import Eye, Place, Queue, Record
from fencelock.backends.ordered.tenures import Keeper, Tenure
from fencelock.core.ports import Request

__all__ = ["SessionGone", "Store"]


class SessionGone(Exception):
    """A record was to be put into a tenure that has ended."""

    def __init__(self, tenure: Tenure) -> None:
        super().__init__(tenure)
        self.tenure = tenure


class Store(Keeper):
    """What a store can do, in one flavour. Every method ends by its deadline.

    A method that changes something says `BackendUnavailable` when it does not know whether it did, and
    done twice it is as if done once. Putting a record into a tenure that has ended is `SessionGone`.
    """

    waiting: float
    """The class of the tenure for those who wait: as short as the store can do well."""
    trust = 5.0
    """Seconds for which a waiter that hears nothing believes that nothing has changed, and does not look."""
    early = True
    """Whether a request may begin among those who wait."""
    stays = True
    """Whether one whose turn has come may hold among those who wait, until its first renewal."""
    asks_who_after = 0.0
    """Seconds of waiting after which it is worth a question who holds; 0 where the queue tells."""

    @abstractmethod
    async def enter(self, place: Place, tenure: Tenure, value: bytes, deadline: float) -> Queue:
        """Append a record for the place, or find the one that is there, and read the queue."""

    @abstractmethod
    async def move(self, place: Place, tenure: Tenure, value: bytes, deadline: float) -> Queue:
        """Put the record into another tenure, if it is still there, and read the queue."""

    @abstractmethod
    async def look(self, name: str, deadline: float) -> Queue:
        """Read the queue of a name."""

    async def turn(self, place: Place, deadline: float) -> Queue:
        """Read the queue for a place whose turn may have come: if it stands first there, it holds.

        So it must show everybody who has left, and the record itself only while its tenure goes on.
        """
        return await self.look(place.request.name, deadline)

    def lasts(self, tenure: Tenure) -> float:
        """Return until when a tenure is certain to go on, whatever becomes of the connection."""
        return tenure.good_until

    async def describe(self, records: Sequence[Record], deadline: float) -> Sequence[Record]:
        """Return those of the records that are still there, with all that people want to know of them.

        Where the queue is read without that; here it comes with it.
        """
        return records

    @abstractmethod
    async def leave(self, request: Request, place: Place | None, deadline: float) -> bool:
        """Remove the record of a request, if it is there; say whether it was. Without a place: search."""

    @abstractmethod
    async def remove(self, records: Sequence[Record], deadline: float) -> Sequence[Record]:
        """Remove records of anybody's; return those that were there."""

    @abstractmethod
    async def present(self, places: Sequence[Place], deadline: float) -> set[str]:
        """Return the owners whose records are there, with the token that their places know."""

    async def sweep(self, tenure: Tenure, is_wanted: Callable[[str], bool], deadline: float) -> None:
        """Remove records from a tenure whose owners nobody wants, asked after they were read.

        For stores where a step that got no answer may be done after the one that was to undo it.
        """

    @abstractmethod
    async def scan(self, prefix: str, deadline: float) -> dict[str, Sequence[Record]]:
        """Return the queues of all names that begin so."""

    @abstractmethod
    async def left(self, sessions: Sequence[Any], deadline: float) -> dict[Any, float]:
        """Return the seconds that these sessions have left, as far as the store tells."""

    @abstractmethod
    async def watch(
        self, place: Place, records: Sequence[Record], moves: bool, moment: Any, deadline: float
    ) -> None:
        """See to it that `place.wake` is called when one of these leaves or, with `moves`, moves.

        Leaving before this was called, but after `moment`, counts. What was watched before is not.
        """

    @abstractmethod
    async def follow(self, eye: Eye, name: str, deadline: float) -> Queue:
        """Read the queue of a name, and see to it that `eye.wake` is called when it changes after that.

        What was watched before is not.
        """

    @abstractmethod
    def unwatch(self, eye: Eye) -> None:
        """Watch nothing for this one any more."""

    @abstractmethod
    def guard(self, place: Place, transaction: Any) -> None:
        """Add to a user's own transaction that the record must still be there when it is done. No I/O."""

    @abstractmethod
    async def close(self, deadline: float) -> None:
        """Close every connection. The tenures have ended."""

    @abstractmethod
    def drop(self) -> None:
        """In a forked child: forget every connection, without a word to the store."""
