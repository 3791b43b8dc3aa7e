"""Three members that agree: ZooKeeper, etcd, Consul."""

from __future__ import annotations

import base64
import contextlib
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import NoNodeError, NotEmptyError  # type: ignore[import-untyped]
from tools.servers import NotReady, Server, ServerError

from chaos.backends.store import Shape, Store, patiently

__all__ = ["Consul", "Ensemble", "Etcd", "ZooKeeper"]

NOT_THE_CLOCK = "its sessions count on the members' monotonic clocks, and its program ignores the shim"
PATIENCE = 60.0
PING = struct.pack(">iii", 8, -2, 11)
HEARTBEAT = struct.pack(">i?ii", 13, False, -1, 1) + b"/"
"""In a transaction: check that the root is there."""


class Ensemble(Store):
    """Three members with a leader."""

    spared: ClassVar[Mapping[str, str]] = {
        "failover": "no replica that could lag: a majority knows of every grant",
        "pooler": "a pooler is PostgreSQL's",
    }

    def gone(self, ttl: float) -> float:
        return ttl + 2.0

    def anyone(self) -> Any:
        """A member to ask."""
        leader = patiently(self.leader, 30.0)
        if leader is None:
            raise NotReady("nobody leads")
        return leader

    def restarted(self, server: Server) -> None:
        server.restart(wait=False)
        self.group.wait()

    def refuse(self) -> None:
        self.fill(True)

    def accept(self) -> None:
        """Who cannot write may end itself, though not at once, and comes back when there is room again."""
        self.fill(False)
        if not patiently(self._is_whole, PATIENCE):
            raise NotReady("the ensemble has room again, and is not what it was")

    def _is_whole(self) -> bool:
        for server in self.servers:
            if not server.is_alive():
                server.restart(wait=False)
        try:
            self.group.wait(1.0)
        except ServerError:  # not yet, or one has ended meanwhile
            return False
        return True


class ZooKeeper(Ensemble):
    """ZooKeeper of three."""

    word = "zookeeper"
    kind = "zookeeper3"
    shape = Shape(1.5, players=5)
    settings: ClassVar[Mapping[str, str]] = {"syncLimit": "4"}
    log = "/version-2/log."

    def leader(self) -> Server | None:
        for member in self.group.members:
            with contextlib.suppress(OSError, NotReady):
                if member.status()["Mode"] == "leader":
                    return member  # type: ignore[no-any-return]
        return None

    @contextlib.contextmanager
    def operator(self) -> Iterator[Any]:
        """A client of kazoo's own."""
        client = KazooClient(self.anyone().address, timeout=10)
        client.start(30)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def residue(self) -> list[str]:
        return [*(f"session {one}" for one in self.sessions()), *self.znodes()]

    def sessions(self) -> list[str]:
        """Every session that the leader knows of."""
        told = self.anyone().ask("dump").partition("ephemeral nodes dump")[0]
        return re.findall(r"^\s+(0x[0-9a-f]+)$", told, flags=re.MULTILINE)

    def znodes(self) -> list[str]:
        """The path of every request's znode."""
        with self.operator() as client:
            client.sync("/")
            buckets = client.get_children("/fencelock") if client.exists("/fencelock") else []
            return [
                f"{bucket}/{one}" for bucket in buckets for one in client.get_children(f"/fencelock/{bucket}")
            ]

    def delete(self) -> None:
        # Somebody may make another znode in between: then the parent stays, this time.
        with self.operator() as client, contextlib.suppress(NotEmptyError, NoNodeError):
            client.delete("/fencelock", recursive=True)

    def is_acquire(self, data: bytes) -> bool:
        return b"/fencelock/" in data

    def is_renewal(self, data: bytes) -> bool:
        return HEARTBEAT in data or PING in data


class Etcd(Ensemble):
    """etcd of three."""

    word = "etcd"
    kind = "etcd3"
    shape = Shape(2.0, players=5)
    spared: ClassVar[Mapping[str, str]] = {**Ensemble.spared, "clock": NOT_THE_CLOCK}
    log = "/member/wal/"

    def leader(self) -> Server | None:
        for member in self.group.members:
            with contextlib.suppress(OSError, NotReady):
                status = member.ask("maintenance/status", {})
                if status.get("leader") == status["header"]["member_id"]:
                    return member  # type: ignore[no-any-return]
        return None

    def residue(self) -> list[str]:
        server = self.anyone()
        found = server.ask("kv/range", {**ALL, "keys_only": True}).get("kvs", ())
        leases = server.ask("lease/leases", {}).get("leases", ())
        keys = [base64.b64decode(pair["key"]).decode() for pair in found]
        return [*keys, *(f"lease {lease['ID']}" for lease in leases)]

    def delete(self) -> None:
        self.anyone().ask("kv/deleterange", ALL)

    def is_acquire(self, data: bytes) -> bool:
        return b"fencelock/" in data

    def is_renewal(self, data: bytes) -> bool:
        """A message that names a lease and nothing else; the path is compressed, and cannot be read."""
        for kind, payload in _frames(data):
            if kind == 0 and 7 <= len(payload) <= 17 and payload[5:6] == b"\x08":
                return True
        return False

    def refuse(self) -> None:
        self._alarm("ACTIVATE")

    def accept(self) -> None:
        self._alarm("DEACTIVATE")

    def _alarm(self, action: str) -> None:
        """The alarm that etcd raises when its quota of space is used up."""
        server = self.anyone()
        member = server.ask("maintenance/status", {})["header"]["member_id"]
        server.ask("maintenance/alarm", {"action": action, "memberID": member, "alarm": "NOSPACE"})


class Consul(Ensemble):
    """Consul of three."""

    word = "consul"
    kind = "consul3"
    shape = Shape(10.0, players=9, names=60, section=0.03, hands=2)
    spared: ClassVar[Mapping[str, str]] = {**Ensemble.spared, "clock": NOT_THE_CLOCK}
    log = "/raft/raft.db"

    def bound(self, ttl: float) -> float:
        return 2 * ttl + 2.0

    def gone(self, ttl: float) -> float:
        return 2 * ttl + 1.0

    def leader(self) -> Server | None:
        for member in self.group.members:
            with contextlib.suppress(OSError, NotReady):
                address = str(member.ask("status/leader"))
                for one in self.group.members:
                    if address == f"{one.host}:{one.server_port}":
                        return one  # type: ignore[no-any-return]
        return None

    def residue(self) -> list[str]:
        server = self.anyone()
        sessions = server.ask("session/list?consistent")
        keys = server.ask("kv/?keys&consistent") if self._any(server) else []
        return [*keys, *(f"session {one['ID']}" for one in sessions)]

    def _any(self, server: Any) -> bool:
        with contextlib.suppress(NotReady, OSError):  # 404: there is none
            return bool(server.ask("kv/?keys&consistent"))
        return False

    def delete(self) -> None:
        self.anyone().ask("kv/?recurse", method="DELETE")

    def is_acquire(self, data: bytes) -> bool:
        return b"/v1/txn" in data

    def is_renewal(self, data: bytes) -> bool:
        return b"/v1/session/renew/" in data


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


ALL = {"key": _coded("fencelock/"), "range_end": _coded("fencelock0")}


def _frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The frames of HTTP/2 in a chunk: kind and payload."""
    while len(data) >= 9:
        length = int.from_bytes(data[:3], "big")
        yield data[3], data[9 : 9 + length]
        data = data[9 + length :]
