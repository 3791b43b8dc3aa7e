"""`etcd://`: locks on etcd, by leases, revisions and watches. See `fencelock.backends.ordered` for the rule.

    fencelock/NAMESPACE/NAME/e1-OWNER    a request, in a lease; its create revision is its token

Uncontended, taking a lock is one transaction and giving it back one deletion. A client has a lease for each
ttl it uses and a short one for its waiters, and one stream of watches: whoever waits watches the key
right before its own.

Not promised: anything about a cluster that lost its majority's disks; before 3.4.31 and 3.5.13, that no lease
ends early when a leader that stood still comes back; before 3.4.32 and 3.5.14, that revisions survive a crash
during a compaction. Before 3.4.38, 3.5.23 and 3.6.5 a heartbeat may succeed on a lease that is gone, so each
renewal asks for the keys as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencelock.backends.etcd.address import DEFAULT_PORT, Address, parse
from fencelock.backends.etcd.connection import Etcd
from fencelock.backends.etcd.dates import pulse
from fencelock.backends.etcd.doctor import examine
from fencelock.backends.etcd.failures import BACKEND
from fencelock.backends.etcd.keys import Keys
from fencelock.backends.etcd.queues import EtcdStore
from fencelock.backends.ordered import OrderedBackend
from fencelock.backends.ordered.store import Store
from fencelock.core.ports import LONGEST_TTL
from fencelock.findings import Finding, Pulse
from fencelock.guarantees import Guarantees

__all__ = ["EtcdBackend"]


class EtcdBackend(OrderedBackend):
    """Locks on etcd."""

    name = BACKEND
    default_port = DEFAULT_PORT

    def __init__(self, address: Address) -> None:
        self._address = address

    @classmethod
    def from_url(cls, url: str) -> EtcdBackend:
        return cls(parse(url))

    def _make_store(self) -> Store:
        return EtcdStore(self.runtime, self._etcd(self._address), self._keys())

    def _etcd(self, address: Address) -> Etcd:
        return Etcd(self.runtime, address)

    def _keys(self) -> Keys:
        return Keys(self._address.prefix, self.namespace)

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            scope="cluster",
            use_for="correctness",
            fencing="durable",
            crash_release="ttl",
            clock="nothing",
            failover="nothing",
            restart="nothing",
            fairness="fifo",
            wakeup="push",
            min_ttl=1.0,
            max_ttl=LONGEST_TTL,
            caveats=(
                "leases count down on the leader's monotonic clock, and a new leader gives each its whole "
                "time again",
                "a dead client's lock is free up to two seconds after its ttl, and not sooner than one and a "
                "half times the cluster's election timeout",
                "a cluster without a majority grants nothing and renews nothing",
                "before 3.4.31 and 3.5.13 a leader that stood still and comes back may end leases that were "
                "renewed meanwhile: a lock may then be held twice; tokens still rise",
                "before 3.4.32 and 3.5.14 a crash during a compaction may let revisions fall, and with them "
                "tokens",
                "a lease whose key somebody deletes is lost at its next renewal",
                "times that people read (since, age) are by the clients' clocks",
                "whoever may write the keys can take and break every lock",
            ),
        )

    async def doctor(self) -> Sequence[Finding]:
        return await examine(self._address, self._etcd, self._keys().queue(""))

    async def pulse(self, *, deadline: float) -> Sequence[Pulse]:
        return await pulse(self.runtime, self._address, deadline)

    def __repr__(self) -> str:
        return f"<EtcdBackend {self._address.label}>"
