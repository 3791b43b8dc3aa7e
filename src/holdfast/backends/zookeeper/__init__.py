"""`zookeeper://`: locks on ZooKeeper, by ephemeral sequential znodes. See `holdfast.backends.ordered`.

`names.py` has the layout, `store.py` the steps, `sessions.py` what is done to kazoo.

Not promised: that a dead process is noticed within its ttl if that is shorter than the ensemble's shortest
session (minSessionTimeout, twice the tick).
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.backends.ordered import OrderedBackend
from holdfast.backends.zookeeper.address import Address, parse
from holdfast.backends.zookeeper.failures import BACKEND
from holdfast.backends.zookeeper.sessions import AsyncResults, BlockingResults
from holdfast.backends.zookeeper.store import ZooKeeperStore
from holdfast.guarantees import Guarantees
from holdfast.runtime.base import Runtime

__all__ = ["ZooKeeperBackend"]


class ZooKeeperBackend(OrderedBackend):
    """Locks on ZooKeeper."""

    name = BACKEND

    def __init__(self, address: Address) -> None:
        self._address = address

    @classmethod
    def from_url(cls, url: str) -> ZooKeeperBackend:
        return cls(parse(url))

    def open(self, runtime: Runtime, namespace: str, lost: Callable[[str, str], None]) -> None:
        super().open(runtime, namespace, lost)

    def _make_store(self) -> ZooKeeperStore:
        results = AsyncResults() if self.runtime.flavour == "asyncio" else BlockingResults()
        return ZooKeeperStore(self._address, self.namespace, self.runtime, results)

    def _anew(self) -> None:
        super()._anew()
        store = self._store
        assert isinstance(store, ZooKeeperStore)
        store.ended = self._tenures.ended

        async def reading(deadline: float) -> None:
            await self._tenures.fresh(store.waiting, 0.0, deadline)

        store.reading = reading

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            scope="cluster",
            use_for="correctness",
            fencing="durable",
            crash_release="session",
            clock="nothing: sessions count down on the leader's monotonic clock",
            failover="nothing: a new leader gives every session its whole time again",
            fairness="fifo",
            wakeup="push",
            min_ttl=1.0,
            caveats=(
                "a client that dies is noticed within its ttl and a second, and not sooner than the "
                "ensemble's shortest session",
                "an ensemble without a quorum grants nothing and renews nothing",
                "a lease whose znode somebody deletes is lost at its next renewal",
                "times that people read (since, age) are by the clients' clocks",
                "whoever may write below /holdfast can take and break every lock",
            ),
        )

    def __repr__(self) -> str:
        return f"<ZooKeeperBackend {self._address.label}>"
