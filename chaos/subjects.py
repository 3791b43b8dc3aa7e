"""The lock libraries that can be put under test, by their words.

Beside fencelock there are subjects that are broken on purpose, to show that the harness sees it.

A library that keeps its locks elsewhere than fencelock, or asks for them in other words, says so: then faults
that choose what they hit find it, too. What it cannot be put through is in `spared`, with the reason.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chaos.peers import outside

if TYPE_CHECKING:
    from chaos.backends import Shape
    from chaos.stage import Stage

__all__ = ["SUBJECTS", "Library"]

Match = Callable[[bytes], bool]


@dataclass(frozen=True)
class Library:
    """A lock library: its factories, and the backends it knows (empty: all)."""

    factories: tuple[str, ...]
    backends: frozenset[str] = frozenset()
    spared: Mapping[str, str] = field(default_factory=dict)
    """The faults that it cannot be put through, each with the reason."""
    whole_seconds: bool = False
    """Whether its expiry counts in whole seconds: then the ttl of a run is rounded up."""
    is_acquire: Match | None = None
    """Whether these bytes ask for a lock; None: as the store says."""
    is_renewal: Match | None = None
    persist: bool = False
    """Whether its documentation asks for servers that write to disk."""
    delete: Mapping[str, Callable[[Any], None]] = field(default_factory=dict)
    """How an operator deletes its records, by backend; else as the store does."""

    @property
    def is_peer(self) -> bool:
        """Whether somebody else made it: then what it leaves behind is not judged, only that it lets go."""
        return self.factories[0].startswith("chaos.peers.")

    def cannot(self, backend: str, fault: str) -> str:
        """Why it cannot be put through this; empty if it can."""
        if self.backends and backend not in self.backends:
            return "it does not know this backend"
        return self.spared.get(fault, "")

    def fit(self, shape: Shape) -> Shape:
        """The shape of its runs: with a ttl that it can keep."""
        fitted = copy.copy(shape)
        fitted.ttl = math.ceil(shape.ttl) if self.whole_seconds else shape.ttl
        return fitted

    def introduce(self, stage: Stage) -> None:
        """Tell a stage how its requests and records are known, and what it asks of the servers."""
        store = stage.store
        if self.persist:
            store.persist()
        if self.is_peer:
            stage.sockets = math.inf
        stage.is_acquire = self.is_acquire or stage.is_acquire
        stage.is_renewal = self.is_renewal or stage.is_renewal
        if delete := self.delete.get(store.word):
            stage.delete = lambda: delete(store)


ONE = frozenset({"redis"})
ONE_OR_MORE = frozenset({"redis", "redlock"})
NO_RENEWALS = {"renewals": "it renews nothing by itself"}
NO_TASKS = {"cancel": "it is blocking: there is no task to cancel"}
NO_FORK = {"fork": "its maintainers ask not to use a client after a fork (python-zk/kazoo issue 728)"}
NO_END = {"full": "it waits until the store answers again: nobody can tell whether it struck"}
NO_ERRORS = {"full": "it answers an error as it does a lock that is taken: nobody can tell whether it struck"}
NODES = {"redlock": outside.flush_nodes}

SUBJECTS: Mapping[str, Library] = {
    "fencelock": Library(("chaos.ours:blocking", "chaos.ours:asyncio")),
    "redis-py": Library(
        ("chaos.peers.redis_py:blocking", "chaos.peers.redis_py:asyncio"),
        ONE,
        NO_RENEWALS,
        is_acquire=outside.is_set,
    ),
    "python-redis-lock": Library(
        ("chaos.peers.python_redis_lock:blocking",),
        ONE,
        NO_TASKS,
        whole_seconds=True,
        is_acquire=outside.is_set,
        is_renewal=outside.is_redis_lock_renewal,
    ),
    "pottery": Library(
        ("chaos.peers.pottery:blocking",),
        ONE_OR_MORE,
        NO_RENEWALS | NO_TASKS,
        is_acquire=outside.is_set,
        delete=NODES,
    ),
    "redlock-py": Library(
        ("chaos.peers.redlock_py:blocking",),
        ONE_OR_MORE,
        NO_RENEWALS | NO_TASKS | NO_ERRORS,
        is_acquire=outside.is_set,
        delete=NODES,
    ),
    "tooz": Library(
        ("chaos.peers.tooz:blocking",),
        ONE,
        NO_TASKS,
        whole_seconds=True,
        is_acquire=outside.is_set,
        is_renewal=outside.is_tooz_renewal,
        persist=True,
    ),
    "kazoo": Library(
        ("chaos.peers.kazoo:blocking",),
        frozenset({"zookeeper"}),
        NO_TASKS | NO_FORK | NO_END,
        is_acquire=outside.is_znode,
        delete={"zookeeper": outside.remove_path},
    ),
    "nolock": Library(("chaos.broken:no_lock",)),
    "wallclock": Library(("chaos.broken:wall_clock",), frozenset({"sqlite"})),
}
