"""fencelock on PostgreSQL, beside what the server allows and beside other libraries for the same thing.

Everybody works on the same server in the same minutes, each in a process of its own (`bench.children`), with
the settings that its adapter tells (`bench.peers`). The server's durability is the default one: whoever
commits a write waits for the disk.
"""

from __future__ import annotations

from bench.suites.postgres import advisory, contended, pair, wakeup

__all__ = ["SUITES"]

SUITES = (pair.SUITE, advisory.SUITE, contended.SUITE, wakeup.SUITE)
