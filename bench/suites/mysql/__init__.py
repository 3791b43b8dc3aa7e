"""fencelock on MariaDB, beside what the server allows and beside other ways to do the same thing.

Everybody works on the same server in the same minutes, each in a process of its own (`bench.children`), with
the settings that its adapter tells (`bench.peers`). The server's durability is the default one: whoever
commits a write waits for the disk.
"""

from __future__ import annotations

from bench.suites.mysql import contended, pair

__all__ = ["SUITES"]

SUITES = (pair.SUITE, contended.SUITE)
