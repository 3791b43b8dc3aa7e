"""Where locks are kept, with new servers: their address, their processes, and what the system says of these.

Processor time is that of all processes and threads of a server, and of those of its children that have ended.
Memory is what the kernel holds the processes accountable for (Pss): pages that several share count once. A
limit of connections is asked of the server; what it cannot tell is written here, with its source.

Not promised: anything without /proc.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.servers import start
from tools.servers.proc import tree

__all__ = ["KINDS", "NAMES", "Place", "machine", "opened"]

TICK = os.sysconf("SC_CLK_TCK")
ESTABLISHED = "01"

NAMES = {
    "sqlite": "SQLite",
    "redis": "Redis",
    "valkey": "Valkey",
    "redlock": "Redlock of five",
    "postgres": "PostgreSQL",
    "mariadb": "MariaDB",
    "zookeeper": "ZooKeeper",
    "etcd": "etcd",
    "consul": "Consul",
}
KINDS = tuple(NAMES)

SETTINGS: Mapping[str, Mapping[str, str]] = {
    # Room for the crowd and for long leases; the limit that is told is the one without it.
    "postgres": {"max_connections": "400"},
    "mariadb": {"max_connections": "400"},
    "zookeeper": {"maxSessionTimeout": "600000"},
    "consul": {"limits": '{"http_max_conns_per_client": 2000}'},
}
DOCUMENTED = {
    "zookeeper": ("maxClientCnxns, for each host", 60),  # ZooKeeper Administrator's Guide, 3.8
    "consul": ("http_max_conns_per_client, for each host", 200),  # Consul, agent configuration, limits
}
POSTGRES = "SELECT boot_val FROM pg_settings WHERE name = 'max_connections'"
MARIADB = (
    "SELECT default_value FROM information_schema.system_variables WHERE variable_name = 'max_connections'"
)


@dataclass(frozen=True)
class Place:
    """One place: `members` are the servers, none of them where the clients do all the work."""

    kind: str
    url: str
    version: str
    members: Sequence[Any] = ()
    limit: tuple[str, int] | None = None
    """The setting that limits connections, and what it is by default."""
    ports: frozenset[str] = field(default_factory=frozenset)

    def processes(self) -> list[int]:
        return [pid for member in self.members for pid in tree(member.pid)]

    def processor(self) -> float:
        """Return the seconds of processor that the servers have taken so far."""
        roots = {member.pid for member in self.members}
        return sum(_seconds(pid, ended=pid in roots) for pid in self.processes())

    def gauges(self) -> dict[str, int]:
        """Return what the servers have open now, and how much memory."""
        pids = self.processes()
        return {
            "memory": sum(map(_memory, pids)),
            "descriptors": sum(_count(f"/proc/{pid}/fd") for pid in pids),
            "threads": sum(_count(f"/proc/{pid}/task") for pid in pids),
            "connections": self.connections(),
        }

    def connections(self) -> int:
        found = 0
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                found += words[3] == ESTABLISHED and words[1].rpartition(":")[2] in self.ports
        return found


def machine() -> tuple[float, float]:
    """Return the seconds so far in which the processors were busy, and in which they handled packets.

    The kernel has the latter on nobody's account.
    """
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _, _, hard, soft, stolen = (int(word) / TICK for word in words[1:9])
    return user + nice + system + hard + soft + stolen, hard + soft


def _seconds(pid: int, *, ended: bool) -> float:
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0  # it has ended since, and its parent has its time
    return sum(int(word) for word in words[11 : 15 if ended else 13]) / TICK


def _memory(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    line = next(line for line in text.splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) * 1024


def _count(folder: str) -> int:
    try:
        return len(os.listdir(folder))  # noqa: PTH208 - names are enough, and of all processes
    except FileNotFoundError:
        return 0


@contextmanager
def opened(kind: str) -> Iterator[Place]:
    """Start what is needed, and end it with the block."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="fencelock-bench-") as folder:
            yield Place(kind, f"sqlite://{folder}/locks.db", sqlite3.sqlite_version)
        return
    with start(kind, settings=dict(SETTINGS.get(kind, {}))) as group:
        members = list(group.members)
        ports = frozenset(f"{member.port:04X}" for member in members)
        yield Place(kind, group.url, group.version(), members, _limit(kind, members[0]), ports)


def _limit(kind: str, member: Any) -> tuple[str, int] | None:
    match kind:
        case "redis" | "valkey" | "redlock":
            return "maxclients", int(member.ask("CONFIG", "GET", "maxclients")[1])
        case "postgres":
            return "max_connections", int(member.query(POSTGRES))
        case "mariadb":
            return "max_connections", int(member.query(MARIADB))
    return DOCUMENTED.get(kind)
