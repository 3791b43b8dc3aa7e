"""`zookeeper://`: locks on ZooKeeper, by ephemeral sequential znodes. See `fencelock.backends.ordered`.

`names.py` has the layout, `store.py` and `moves.py` the steps, `reader.py` what can be read, `sessions.py`
what is done to kazoo. Below that `wire.py` has the connection, `hearing.py` how bytes become answers.

Not promised: that a dead process is noticed within its ttl if that is shorter than the ensemble's shortest
session (minSessionTimeout, twice the tick).
"""

from __future__ import annotations

from collections.abc import Sequence

from fencelock.backends.ordered import OrderedBackend
from fencelock.backends.zookeeper.address import DEFAULT_PORT, Address, parse
from fencelock.backends.zookeeper.doctor import ask, findings
from fencelock.backends.zookeeper.ensemble import Ensemble
from fencelock.backends.zookeeper.failures import BACKEND
from fencelock.backends.zookeeper.results import AsyncResults, BlockingResults
from fencelock.backends.zookeeper.store import LONGEST, SHORTEST, ZooKeeperStore
from fencelock.core.ports import Request
from fencelock.findings import Finding
from fencelock.guarantees import Guarantees

__all__ = ["ZooKeeperBackend"]

TINY = 0.1
LOOKING = 5.0


class ZooKeeperBackend(OrderedBackend):
    """Locks on ZooKeeper."""

    name = BACKEND
    default_port = DEFAULT_PORT

    def __init__(self, address: Address) -> None:
        self._address = address

    @classmethod
    def from_url(cls, url: str) -> ZooKeeperBackend:
        return cls(parse(url))

    def _make_store(self) -> ZooKeeperStore:
        results = AsyncResults() if self.runtime.flavour == "asyncio" else BlockingResults()
        self._ensemble = Ensemble(self._address, self.runtime, results)
        return ZooKeeperStore(self._ensemble, self.namespace)

    def _anew(self) -> None:
        super()._anew()
        store, tenures = self._store, self._tenures
        assert isinstance(store, ZooKeeperStore)
        store.ended = tenures.ended

        async def reading(deadline: float) -> None:
            await tenures.fresh(store.waiting, 0.0, deadline)

        self._ensemble.reading = reading

    @property
    def guarantees(self) -> Guarantees:
        store = getattr(self, "_store", None)  # there is none before it is opened
        return Guarantees(
            scope="cluster",
            use_for="correctness",
            fencing="durable",
            crash_release="session",
            clock="nothing",
            failover="nothing",
            restart="nothing",
            fairness="fifo",
            wakeup="push",
            min_ttl=store.shortest if isinstance(store, ZooKeeperStore) else SHORTEST,
            max_ttl=store.longest if isinstance(store, ZooKeeperStore) else LONGEST,
            caveats=(
                "sessions count down on the leader's monotonic clock, and a new leader gives each its whole "
                "time again",
                "a client that dies is noticed within its ttl and a second, and not sooner than the "
                "ensemble's shortest session",
                "a ttl may be as short and as long as the ensemble's sessions: minSessionTimeout (4 s by "
                "default, and 1 s at least) and maxSessionTimeout (40 s by default); min_ttl and max_ttl "
                "are these once the client has connected",
                "an ensemble without a quorum grants nothing and renews nothing",
                "a lease whose znode somebody deletes is lost at its next renewal",
                "times that people read (since, age) are by the clients' clocks",
                "whoever may write below /fencelock can take and break every lock",
            ),
        )

    async def doctor(self) -> Sequence[Finding]:
        members = await self.runtime.call(ask, self._address)
        return findings(self._address, members, await self._agreed(TINY), await self._agreed(LONGEST))

    async def _agreed(self, seconds: float) -> float:
        """Return what the ensemble makes of a session that is asked for so long."""
        deadline = self.runtime.now() + LOOKING
        session = await self._ensemble.begin(seconds, deadline)
        await self._ensemble.end(session.ident, deadline)
        return session.agreed

    def forget(self, requests: Sequence[Request]) -> None:
        """End the sessions, and with them everything of this client's."""
        assert isinstance(self._store, ZooKeeperStore)
        self._store.forget()

    def __repr__(self) -> str:
        return f"<ZooKeeperBackend {self._address.label}>"
