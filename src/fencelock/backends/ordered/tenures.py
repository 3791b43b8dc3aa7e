"""Tenures: what keeps records alive. A ZooKeeper session, an etcd lease or a Consul session.

One for each client and ttl: ten thousand leases cost one heartbeat. A record lives as long as its tenure
does, and a tenure as long as somebody renews it, counted here from before each heartbeat was sent.

A tenure is somewhat longer than the ttl it is for, so that a lease which begins in it is good for its whole
ttl without a heartbeat of its own: `fresh` sends one only if less than the ttl is left.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from fencelock.backends.ordered.places import Place
from fencelock.backends.ordered.turns import Mutex, mutex
from fencelock.errors import BackendUnavailable
from fencelock.runtime import clock

__all__ = ["Keeper", "Tenure", "Tenures"]


class Tenure:
    """One session of the store's, as far as this client knows."""

    __slots__ = ("class_", "coming", "ended", "good_until", "ident", "length", "places", "swept")

    def __init__(self, class_: float, ident: Any, length: float, sent: float) -> None:
        self.class_ = class_
        """The length that was asked for: tenures of one class are one."""
        self.ident = ident
        self.length = length
        """What the store gave, in seconds."""
        self.good_until = sent + length
        self.ended = False
        self.places: dict[str, Place] = {}
        self.coming: set[str] = set()
        """Owners whose leases are being moved into it."""
        self.swept = sent
        """When somebody last looked for records in it that nobody wants."""

    def heard(self, sent: float) -> None:
        """The store answered something in it, to what was sent then."""
        self.good_until = max(self.good_until, sent + self.length)

    def is_live(self, now: float) -> bool:
        """Whether it is certain to go on for now."""
        return not self.ended and now < self.good_until


class Keeper(Protocol):
    """The store's part."""

    def class_of(self, ttl: float) -> float:
        """Return the length of the tenure that is for a ttl. Raises `ConfigurationError` if there is none."""

    async def begin(self, class_: float, deadline: float) -> Tenure:
        """Begin a tenure."""

    async def keep(self, tenure: Tenure, deadline: float) -> bool:
        """Send a heartbeat and count from before it was sent; `False` if the store has it no more."""

    async def end(self, tenure: Tenure, deadline: float) -> None:
        """End it, and with it every record in it."""


class Tenures:
    """All tenures of a client."""

    def __init__(
        self,
        keeper: Keeper,
        backend: str,
        flavour: str,
        lost: Callable[[Place, str], None],
        kept: Callable[[Tenure, float], Coroutine[Any, Any, None]],
    ) -> None:
        self._keeper = keeper
        self._backend = backend
        self._flavour = flavour
        self._lost = lost
        self._kept = kept
        self._live: dict[float, Tenure] = {}
        self._mutexes: dict[float, Mutex] = {}

    async def fresh(self, class_: float, need: float, deadline: float) -> Tenure:
        """Return the tenure of a class, good for `need` seconds from now at least."""
        tenure = self._live.get(class_)
        if tenure is not None and self._is_enough(tenure, need):
            return tenure
        turn = self._mutexes.get(class_)
        if turn is None:
            turn = self._mutexes.setdefault(class_, mutex(self._flavour))
        try:
            async with turn.until(deadline):
                tenure = self._live.get(class_)
                if tenure is not None and not self._is_enough(tenure, need):
                    tenure = tenure if await self.keep(tenure, deadline) else None
                if tenure is None or tenure.ended:
                    tenure = self._live[class_] = await self._keeper.begin(class_, deadline)
                return tenure
        except TimeoutError as error:
            raise BackendUnavailable(backend=self._backend, detail="no answer in time") from error

    @staticmethod
    def _is_enough(tenure: Tenure, need: float) -> bool:
        return not tenure.ended and tenure.good_until - clock.now() >= need

    async def keep(self, tenure: Tenure, deadline: float) -> bool:
        """Renew a tenure; `False` if it has ended, which then all its leases know."""
        if tenure.ended:
            return False
        if await self._keeper.keep(tenure, deadline):
            await self._kept(tenure, deadline)
            return True
        self.ended(tenure, "its session in the store has ended")
        return False

    def ended(self, tenure: Tenure, reason: str) -> None:
        """The store has it no more: tell everybody in it. From any thread."""
        tenure.ended = True
        if self._live.get(tenure.class_) is tenure:
            del self._live[tenure.class_]
        places, tenure.places = tenure.places, {}
        for place in places.values():
            self._lost(place, reason)
            place.wake(gone=False)

    def retire(self, tenure: Tenure) -> bool:
        """Let nothing more into a tenure; `False` if something is in it, or is about to be.

        Whoever moves there says so before it looks whether the tenure has ended: one of them sees the other.
        """
        tenure.ended = True
        if tenure.places or tenure.coming:
            tenure.ended = False
            return False
        if self._live.get(tenure.class_) is tenure:
            del self._live[tenure.class_]
        return True

    def all(self) -> list[Tenure]:
        """Return those that are live."""
        return list(self._live.values())

    def forget(self) -> None:
        """Drop them all without a word: in a forked child."""
        self._live = {}
        self._mutexes = {}
