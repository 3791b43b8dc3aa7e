"""The stores that are soaked: what is counted in them, past holdfast, and how they hang up on their clients.

Before the figures of a lull are taken each is swept as its operator would sweep it (VACUUM, compaction): what
only waits for that is no leak."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import psycopg
from tools.servers import NotReady, proc

from chaos.backends import BACKENDS, Store, patiently
from holdfast import Client
from holdfast.backends.postgres import SWEEP_EVERY

__all__ = ["STORES", "Soaked", "private_memory"]

ESTABLISHED = "01"
ANSWER = 10.0
GRACE = 60.0
"""How long a row of PostgreSQL's must have expired before it is swept."""
DUE = GRACE + 2 * SWEEP_EVERY
IN_DUE_TIME = f"deadline BETWEEN clock_timestamp() - interval '{DUE:g} seconds' AND clock_timestamp()"
AWAY = (OSError, NotReady, psycopg.Error)
"""How a server says that it cannot be asked now."""


class Soaked:
    """One of them."""

    word: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.store: Store = BACKENDS[self.word](folder)
        self.prepare()

    def prepare(self) -> None:
        """Before the servers are started."""

    def sweep(self) -> None:
        """What an operator does every night."""

    def left(self) -> int:
        """How many records there are, without the fixed counters and those that are swept in due time."""
        return len(self.store.residue())

    def settle(self) -> None:
        """When all have closed: wait until what is swept in due time is gone."""

    def used(self) -> float:
        """What the store says that it uses, in KiB."""
        raise NotImplementedError

    def hang_up(self) -> int:
        """End every connection from the server's side; return how many there were."""
        raise NotImplementedError

    def figures(self) -> dict[str, float]:
        """What the store looks like now."""
        connections = self.connections()  # first: questions are connections too
        return {"left": self.left(), "connections": connections, "used": self.used(),
                "private": private_memory(self.store)}  # fmt: skip

    def connections(self) -> int:
        """How many connections the servers have."""
        ports = {f"{server.port:04X}" for server in self.store.servers}
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        words = (line.split() for line in lines)
        return sum(one[3] == ESTABLISHED and one[1].partition(":")[2] in ports for one in words)


class Redis(Soaked):
    """With an append-only file: a server that is killed comes back with what it knew."""

    word = "redis"

    def prepare(self) -> None:
        self.store.persist()

    @property
    def server(self) -> Any:
        return self.store.servers[0]

    def sweep(self) -> None:
        self.server.ask("MEMORY", "PURGE")

    def used(self) -> float:
        return int(self.server.info("INFO", "memory")["used_memory"]) / 1024

    def hang_up(self) -> int:
        return sum(self.server.ask("CLIENT", "KILL", "TYPE", kind) for kind in ("normal", "pubsub"))


class Postgres(Soaked):
    """Rows of processes that were killed are swept by the others, after a minute and within another."""

    word = "postgresql"

    def ask(self, statement: str) -> int:
        ((number,),) = self.store.ask(statement)  # type: ignore[attr-defined]
        return int(number or 0)

    def left(self) -> int:
        return self.rows(f"NOT ({IN_DUE_TIME})")

    def rows(self, which: str) -> int:
        return self.ask(f"SELECT count(*) FROM holdfast.queue WHERE {which}")

    def figures(self) -> dict[str, float]:
        return {**super().figures(), "expired": self.rows(IN_DUE_TIME)}

    def settle(self) -> None:
        with Client(self.store.url, client_name="sweeper") as locks:

            def swept() -> bool:
                locks.lock("sweeper").acquire(timeout=ANSWER).release()
                return not self.store.residue()

            patiently(swept, GRACE + 2 * SWEEP_EVERY, 2.0)

    def sweep(self) -> None:
        self.store.ask("VACUUM holdfast.queue", "VACUUM holdfast.buckets")  # type: ignore[attr-defined]

    def used(self) -> float:
        of = "FROM pg_tables WHERE schemaname = 'holdfast'"
        return self.ask(f"SELECT sum(pg_total_relation_size('holdfast.' || tablename)) {of}") / 1024

    def hang_up(self) -> int:
        of = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
        return self.ask(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {of}")


class Etcd(Soaked):
    """Three members. They hang up on nobody: a member that is killed does."""

    word = "etcd"

    @property
    def server(self) -> Any:
        return self.store.anyone()  # type: ignore[attr-defined]

    def sweep(self) -> None:
        revision = self.server.ask("maintenance/status", {})["header"]["revision"]
        with contextlib.suppress(NotReady):  # compacted up to there before
            self.server.ask("kv/compaction", {"revision": revision, "physical": True})

    def used(self) -> float:
        return int(self.server.ask("maintenance/status", {})["dbSizeInUse"]) / 1024

    def figures(self) -> dict[str, float]:
        leases = self.server.ask("lease/leases", {}).get("leases", ())
        return {**super().figures(), "leases": len(leases)}

    def hang_up(self) -> int:
        return 0


STORES: Mapping[str, type[Soaked]] = {store.word: store for store in (Redis, Postgres, Etcd)}


def private_memory(store: Store) -> float:
    """The memory that the servers' processes share with nobody, in KiB."""
    total = 0.0
    for server in store.servers:
        for pid in proc.tree(server.pid):
            with contextlib.suppress(OSError, IndexError):  # it has ended, or is about to
                total += float(Path(f"/proc/{pid}/status").read_text().partition("RssAnon:")[2].split()[0])
    return total
