"""`consul://`: locks on Consul, by sessions, its key-value store and blocking queries.

See `fencelock.backends.ordered` for the rule.

    fencelock/NAMESPACE/NAME/e1-OWNER    a request, held by a session; the index it was made at is its token
    fencelock/NAMESPACE/~/SESSION        the sign of life of a client that waits; see `rollcall.py`

Uncontended, taking a lock is one transaction and giving it back another. A client has a session for each
ttl it uses and one for its waiters. Sessions have `Behavior=delete` and no lock delay: a holder gives up by
its own clock before anybody else can have the lock. And they belong to a node of their own in the
catalogue, `fencelock`, and have no health checks. Otherwise a host that misses a few gossip packets, or a
server that is cut off, would take the locks of its clients with it at once, whatever their ttl, and those
on the wrong side would not know.

Not promised: that a dead holder's lock is free before twice its ttl has passed (Consul gives every session
twice its time); and anything about a cluster that lost its majority's disks.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencelock.backends.consul.address import DEFAULT_PORT, Address, parse
from fencelock.backends.consul.connection import Consul
from fencelock.backends.consul.doctor import examine, pulse
from fencelock.backends.consul.failures import BACKEND
from fencelock.backends.consul.keys import Keys
from fencelock.backends.consul.queues import ConsulStore
from fencelock.backends.consul.sessions import LONGEST, SHORTEST
from fencelock.backends.ordered import OrderedBackend
from fencelock.backends.ordered.store import Store
from fencelock.core.ports import Request
from fencelock.findings import Finding, Pulse
from fencelock.guarantees import Guarantees

__all__ = ["ConsulBackend"]


class ConsulBackend(OrderedBackend):
    """Locks on Consul."""

    name = BACKEND
    default_port = DEFAULT_PORT

    def __init__(self, address: Address) -> None:
        self._address = address

    @classmethod
    def from_url(cls, url: str) -> ConsulBackend:
        return cls(parse(url))

    def _make_store(self) -> Store:
        self._consul = Consul(self.runtime, self._address)
        return ConsulStore(self.runtime, self._consul, Keys(self._address.prefix, self.namespace))

    @property
    def guarantees(self) -> Guarantees:
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
            min_ttl=SHORTEST,
            max_ttl=LONGEST,
            caveats=(
                "sessions count down on the leader's monotonic clock, and a new leader gives each its whole "
                "time again",
                "a dead client's locks are free after twice their ttl: Consul gives a session twice its time",
                "a dead waiter delays those behind it by up to five seconds; with nobody behind it, it is "
                "listed for twenty",
                "a cluster without a majority grants nothing and renews nothing",
                "a lease whose key somebody deletes is lost at its next renewal",
                "times that people read (since, age) are by the clients' clocks; expires_in is the whole ttl",
                "whoever may write the keys or end the sessions can take and break every lock",
            ),
        )

    async def doctor(self) -> Sequence[Finding]:
        return await examine(self._consul, self._address, self.runtime.now() + 5.0)

    async def pulse(self, *, deadline: float) -> Sequence[Pulse]:
        return await pulse(self._consul, deadline)

    def forget(self, requests: Sequence[Request]) -> None:
        """Nothing: the sessions end by themselves."""

    def __repr__(self) -> str:
        return f"<ConsulBackend {self._address.label}>"
