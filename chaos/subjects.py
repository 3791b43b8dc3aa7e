"""The lock libraries that can be put under test, by their words.

Beside holdfast there are subjects that are broken on purpose, to show that the harness sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["SUBJECTS", "Library"]


@dataclass(frozen=True)
class Library:
    """A lock library: its factories, and the backends it knows (empty: all)."""

    factories: tuple[str, ...]
    backends: frozenset[str] = frozenset()
    faults: frozenset[str] = frozenset()
    """The faults it can be put through (empty: all)."""

    def cannot(self, backend: str, fault: str) -> str:
        """Why it cannot be put through this; empty if it can."""
        if self.backends and backend not in self.backends:
            return "it does not know this backend"
        if self.faults and fault not in self.faults:
            return "it cannot be put through this fault"
        return ""


ONE = frozenset({"redis"})
ONE_OR_MORE = frozenset({"redis", "redlock"})

SUBJECTS: Mapping[str, Library] = {
    "holdfast": Library(("chaos.ours:blocking", "chaos.ours:asyncio")),
    "redis-py": Library(("chaos.peers.redis_py:blocking", "chaos.peers.redis_py:asyncio"), ONE),
    "python-redis-lock": Library(("chaos.peers.python_redis_lock:blocking",), ONE),
    "pottery": Library(("chaos.peers.pottery:blocking",), ONE_OR_MORE),
    "redlock-py": Library(("chaos.peers.redlock_py:blocking",), ONE_OR_MORE),
    "tooz": Library(("chaos.peers.tooz:blocking",), ONE),
    "kazoo": Library(("chaos.peers.kazoo:blocking",), frozenset({"zookeeper"})),
    "nolock": Library(("chaos.broken:no_lock",)),
    "wallclock": Library(("chaos.broken:wall_clock",), frozenset({"sqlite"})),
}
