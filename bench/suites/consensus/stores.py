"""The stores, who takes part on each, and what is wanted there.

The limit of a pair is what the two cheapest calls take that take a lock and give it back, by hand on a
socket. The same two calls through a driver show what the driver itself takes: it stands beside, and is no
peer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tools.servers import Group, start
from tools.servers.consul import Consul
from tools.servers.etcd import Etcd
from tools.servers.zookeeper import ZooKeeper

from bench.peers import Entry

__all__ = ["FENCELOCK", "STORES", "TAGS", "Store"]

TAGS = frozenset({"consensus"})
FENCELOCK = Entry("fencelock", "ours", "fencelock")


@dataclass(frozen=True)
class Store:
    """One of the three."""

    name: str
    logged: Callable[[Group], float]
    """How many entries the server's log has had so far."""
    pair: Entry
    drivers: Sequence[Entry]
    libraries: Sequence[Entry]
    asynchronous: Sequence[Entry]
    """Drivers and libraries that know asyncio, or those that come closest."""
    racing: Sequence[Entry]
    """All but fencelock, the limit first."""
    heartbeat: Entry
    targets: tuple[float, float]
    """Times the limit, for blocking pairs and with asyncio."""
    rival: tuple[str, float] | None = None
    """How many times somebody's handoffs are wanted."""
    settings: Mapping[str, str] = field(default_factory=dict)

    def start(self) -> Group:
        return start(self.name, settings=self.settings)


def limit(label: str, adapter: str, kind: str) -> Entry:
    """By hand on a socket; always blocking, since asyncio cannot be faster than no asyncio."""
    return Entry(label, adapter, "limit", options={"kind": kind}, drill="pairs")


def etcd_log(group: Group) -> float:
    member = group.members[0]
    assert isinstance(member, Etcd)
    return float(member.ask("maintenance/status", {})["raftIndex"])


def zookeeper_log(group: Group) -> float:
    member = group.members[0]
    assert isinstance(member, ZooKeeper)
    return float(int(member.status()["Zxid"], 16))


def consul_log(group: Group) -> float:
    member = group.members[0]
    assert isinstance(member, Consul)
    return float(member.ask("agent/self")["Stats"]["raft"]["applied_index"])


ETCD = Store(
    "etcd",
    etcd_log,
    pair=limit("raw HTTP/2, two transactions", "etcd_raw", "pair"),
    drivers=[Entry("grpcio, by hand", "grpcio_hand", "beside", environment="grpcio")],
    libraries=[
        Entry("etcd3 Lock", "etcd3", environment="etcd3"),
        Entry("etcd3gw Lock", "etcd3gw", environment="etcd3gw"),
    ],
    asynchronous=[
        Entry("grpc.aio, by hand", "grpcio_hand", "beside", environment="grpcio"),
        Entry("aetcd Lock", "aetcd", environment="aetcd"),
    ],
    racing=[
        Entry("raw queue of keys", "etcd_queue", "limit"),
        Entry("etcd's own lock service, raw", "etcd_raw", options={"kind": "service"}),
        Entry("etcd3gw Lock, tried at 50 ms", "etcd3gw", environment="etcd3gw", options={"sleep": 0.05}),
    ],
    heartbeat=limit("one bare heartbeat", "etcd_raw", "beat"),
    targets=(1.6, 1.8),
)
KAZOO_LOCK = Entry("kazoo Lock", "kazoo_lock")
ZOOKEEPER = Store(
    "zookeeper",
    zookeeper_log,
    pair=limit("raw create and delete", "zookeeper_raw", "pair"),
    drivers=[Entry("kazoo create and delete, by hand", "kazoo_hand", "beside")],
    libraries=[KAZOO_LOCK],
    asynchronous=[
        Entry("kazoo create and delete, blocking", "kazoo_hand", "beside", drill="pairs"),
        Entry("kazoo Lock, blocking", "kazoo_lock", drill="pairs"),
    ],
    racing=[
        Entry("raw sequential znodes", "zookeeper_raw", "limit", options={"kind": "queue"}),
        KAZOO_LOCK,
    ],
    heartbeat=limit("one bare ping", "zookeeper_raw", "beat"),
    targets=(2.2, 2.2),
    rival=(KAZOO_LOCK.label, 1.3),
    # Raw sessions have nobody who renews them while others are measured.
    settings={"maxSessionTimeout": "600000"},
)
CONSUL = Store(
    "consul",
    consul_log,
    pair=limit("raw KV acquire and release", "consul_raw", "pair"),
    drivers=[Entry("http.client, by hand", "consul_hand", "beside")],
    libraries=[Entry("py-consul, by hand", "py_consul", environment="py-consul")],
    asynchronous=[Entry("aiohttp, by hand", "consul_hand", "beside")],
    racing=[
        # Nothing in Consul wakes the next one alone, so the limit has nobody to hand over to.
        Entry(
            "raw KV acquire and release, nobody waiting",
            "consul_raw",
            "limit",
            options={"kind": "pair"},
            drill="alone",
        ),
        Entry("raw KV acquire, blocking query", "consul_raw", options={"kind": "herd"}),
    ],
    heartbeat=limit("one bare heartbeat", "consul_raw", "beat"),
    targets=(2.4, 3),
)
STORES = (ETCD, ZOOKEEPER, CONSUL)
