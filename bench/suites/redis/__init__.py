"""fencelock on one Redis, beside what the wire allows and beside other libraries for the same thing.

Everybody works on the same server in the same minutes, each in a process of its own (`bench.children`), with
the settings that its adapter tells (`bench.peers`). Nothing is written to disk by the server.
"""

from __future__ import annotations

from bench.suites.redis import contended, latency, leases, pair, tasks

__all__ = ["SUITES"]

SUITES = (pair.SUITE, tasks.SUITE, latency.SUITE, contended.SUITE, leases.SUITE)
