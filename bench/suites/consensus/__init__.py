"""fencelock on etcd, ZooKeeper and Consul, beside what the servers allow and beside other libraries.

Everybody works on the same server in the same minutes, each in a process of its own (`bench.children`), with
the settings that its adapter tells (`bench.peers`). It is one server, not an ensemble: every change is
written to its log and synced, but no other member is asked. All suites have the tag `consensus`.
"""

from __future__ import annotations

from bench.suites.consensus import contended, leases, pair
from bench.suites.consensus.stores import STORES

__all__ = ["SUITES"]

SUITES = tuple(kind.suite(store) for kind in (pair, contended, leases) for store in STORES)
