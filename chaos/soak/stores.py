"""The stores that are soaked: what is counted in them, past fencelock, and how they hang up on their clients.

Before the figures of a lull are taken each is swept as its operator would sweep it (VACUUM, compaction): what
only waits for that is no leak."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pymysql  # type: ignore[import-untyped]
from kazoo.exceptions import KazooException  # type: ignore[import-untyped]
from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]
from tools.servers import NotReady, proc

from chaos.backends import BACKENDS, Store, patiently
from fencelock import Client
from fencelock.backends import mysql, postgres

__all__ = ["STORES", "Soaked", "private_memory"]

ESTABLISHED = "01"
ANSWER = 10.0
GOODBYE = 30.0
"""Seconds within which the session of a process that was killed has ended."""
AWAY = (OSError, NotReady, psycopg.Error, pymysql.Error, KazooException, KazooTimeoutError)
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


class Swept(Soaked):
    """A table. Rows of processes that were killed are swept by the others, after a while and in due time."""

    queue: ClassVar[str]
    grace: ClassVar[float]
    """Seconds that a row must have expired for before it is swept."""
    every: ClassVar[float]
    """Seconds between two sweeps of a client."""

    def ask(self, statement: str) -> int:
        ((number,),) = self.store.ask(statement)  # type: ignore[attr-defined]
        return int(number or 0)

    @property
    def due(self) -> float:
        """Seconds after which an expired row is gone, if anybody works."""
        return self.grace + 2 * self.every

    def in_due_time(self) -> str:
        """The rows that wait for the next sweep, in SQL."""
        raise NotImplementedError

    def rows(self, which: str) -> int:
        return self.ask(f"SELECT count(*) FROM {self.queue} WHERE {which}")

    def left(self) -> int:
        return self.rows(f"NOT ({self.in_due_time()})")

    def figures(self) -> dict[str, float]:
        return {**super().figures(), "expired": self.rows(self.in_due_time())}

    def settle(self) -> None:
        with Client(self.store.url, client_name="sweeper") as locks:

            def swept() -> bool:
                locks.lock("sweeper").acquire(timeout=ANSWER).release()
                return not self.store.residue()

            patiently(swept, self.due, 2.0)


class Postgres(Swept):
    """One PostgreSQL."""

    word = "postgresql"
    queue = "fencelock.queue"
    grace = 60.0
    every = postgres.SWEEP_EVERY

    def in_due_time(self) -> str:
        now = "clock_timestamp()"
        return f"deadline BETWEEN {now} - interval '{self.due:g} seconds' AND {now}"

    def sweep(self) -> None:
        self.store.ask("VACUUM fencelock.queue", "VACUUM fencelock.buckets")  # type: ignore[attr-defined]

    def used(self) -> float:
        of = "FROM pg_tables WHERE schemaname = 'fencelock'"
        return self.ask(f"SELECT sum(pg_total_relation_size('fencelock.' || tablename)) {of}") / 1024

    def hang_up(self) -> int:
        of = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
        return self.ask(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {of}")


class MariaDB(Swept):
    """One MariaDB. What is deleted it purges by itself."""

    word = "mariadb"
    queue = "fencelock_queue"
    grace = mysql.SWEEP_GRACE
    every = mysql.SWEEP_EVERY

    def in_due_time(self) -> str:
        now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
        return f"deadline BETWEEN {now} - {self.due * 1e6:.0f} AND {now}"

    def used(self) -> float:
        of = "information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
        return self.ask(f"SELECT sum(DATA_LENGTH + INDEX_LENGTH) FROM {of}") / 1024

    def hang_up(self) -> int:
        return self.store.cut_off()  # type: ignore[attr-defined, no-any-return]


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


class ZooKeeper(Soaked):
    """Three members. A client keeps a session while it is open, whether it holds something or not."""

    word = "zookeeper"

    def left(self) -> int:
        return len(self.store.znodes())  # type: ignore[attr-defined]

    def told(self, of: str) -> int:
        """What the members tell of themselves, summed up."""
        said = [server.ask("mntr") for server in self.store.servers]  # type: ignore[attr-defined]
        return sum(int(number) for one in said for number in re.findall(rf"^{of}\t(\d+)$", one, re.MULTILINE))

    def used(self) -> float:
        return self.told("zk_approximate_data_size") / 1024

    def figures(self) -> dict[str, float]:
        sessions = len(self.store.sessions())  # type: ignore[attr-defined]
        return {**super().figures(), "sessions": sessions, "watches": self.told("zk_watch_count")}

    def settle(self) -> None:
        patiently(lambda: not self.store.residue(), GOODBYE)

    def hang_up(self) -> int:
        return 0


SOAKED = (Redis, Postgres, Etcd, ZooKeeper, MariaDB)
STORES: Mapping[str, type[Soaked]] = {store.word: store for store in SOAKED}


def private_memory(store: Store) -> float:
    """The memory that the servers' processes share with nobody, in KiB."""
    total = 0.0
    for server in store.servers:
        for pid in proc.tree(server.pid):
            with contextlib.suppress(OSError, IndexError):  # it has ended, or is about to
                total += float(Path(f"/proc/{pid}/status").read_text().partition("RssAnon:")[2].split()[0])
    return total
