"""Redis and Valkey: one server, five independent ones, a Cluster of six, a primary under Sentinel.

Nothing is written to disk unless asked for (`settings={"appendonly": "yes"}`): a restarted server is an empty
one, but a Cluster node remembers who it is. The Cluster, and Sentinel, take a primary for dead after two
seconds of silence. Settings are lines of redis.conf, for the servers and not for the Sentinels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from . import wire
from .errors import NotReady
from .group import Group, addresses
from .server import START_SECONDS, Server
from .site import Site
from .waiting import until

SLOTS = 16384
SERVICE = "mymaster"
FAILURE_MS = 2000


class Redis(Server):
    """One server. `extra` are the settings its role asks for; those of the caller come last and win."""

    binary = "redis-server"

    def __init__(self, site: Site, name: str, **extra: str) -> None:
        super().__init__(site, name)
        self.extra = {key.replace("_", "-"): value for key, value in extra.items()}

    def prepare(self) -> None:
        chosen = {
            "bind": self.host,
            "port": str(self.port),
            "dir": str(self.data),
            "protected-mode": "no",
            "save": '""',
            # The default of five seconds waits for more replicas that might want the same snapshot.
            "repl-diskless-sync-delay": "0",
            **self.extra,
            **self.settings,
        }
        # A file and not arguments, since a failover writes the new role into it.
        lines = [f"{key} {value}\n" for key, value in chosen.items()]
        (self.data / "redis.conf").write_text("".join(lines))

    def command(self) -> list[str]:
        return [self.program(self.binary), str(self.data / "redis.conf")]

    def probe(self) -> None:
        if (said := self.ask("PING")) != "PONG":
            raise NotReady(f"{self.name} answered PING with {said!r}")

    def version(self) -> str:
        told = self.info("INFO", "server")
        return told.get("valkey_version") or told["redis_version"]

    def ask(self, *words: str | int) -> wire.Reply:
        """One command and its reply."""
        return wire.redis(self.host, self.port, *words)

    def info(self, *words: str) -> dict[str, str]:
        return wire.redis_info(self.host, self.port, *words)

    def is_primary(self) -> bool:
        return self.info("INFO", "replication")["role"] == "master"

    def check_link(self) -> None:
        """A replica is in step with its primary."""
        if self.info("INFO", "replication").get("master_link_status", "up") != "up":
            raise NotReady(f"{self.name} has no link to its primary")


class Valkey(Redis):
    """The same, under its own name."""

    binary = "valkey-server"


class ClusterNode(Redis):
    """A node of a Redis Cluster; its identity is part of its data."""

    can_be_wiped = False

    def __init__(self, site: Site, name: str) -> None:
        super().__init__(site, name, cluster_enabled="yes", cluster_node_timeout=str(FAILURE_MS))
        # The bus would be at port + 10000, which may be no free port, or none at all.
        self.bus = site.port()
        self.extra["cluster-port"] = str(self.bus)


class Sentinel(Redis):
    """A Sentinel; it is told what to monitor once the replicas are known to the primary."""

    def __init__(self, site: Site, name: str, primary: Redis) -> None:
        super().__init__(site, name)
        self.primary = primary

    def prepare(self) -> None:
        text = f"bind {self.host}\nport {self.port}\ndir {self.data}\nprotected-mode no\n"
        (self.data / "redis.conf").write_text(text)

    def command(self) -> list[str]:
        return [*super().command(), "--sentinel"]

    def monitor(self) -> None:
        """Watches the primary; two of three must agree that it is down."""
        self.ask("SENTINEL", "MONITOR", SERVICE, self.primary.host, self.primary.port, 2)
        self.ask("SENTINEL", "SET", SERVICE, "down-after-milliseconds", FAILURE_MS, "failover-timeout", 3000)

    def rejoin(self) -> None:
        self.monitor()

    def check_view(self, primary: Redis, replicas: int, sentinels: int) -> None:
        """It names the primary, sees it alive, and as many replicas and other Sentinels as there are."""
        reply = self.ask("SENTINEL", "MASTER", SERVICE)
        words = [str(word) for word in reply] if isinstance(reply, list) else []
        view = dict(zip(words[::2], words[1::2], strict=True))
        seen = (view["flags"], view["num-slaves"], view["num-other-sentinels"])
        if seen != ("master", str(replicas), str(sentinels)):
            raise NotReady(f"{self.name} sees {seen[0]}, {seen[1]} replicas, {seen[2]} other sentinels")
        if (named := f"{view['ip']}:{view['port']}") != primary.address:
            raise NotReady(f"{self.name} names {named}, and the primary is {primary.address}")


class RedisGroup(Group):
    """One Redis."""

    def plan(self) -> Sequence[Server]:
        server = Redis(self.site, "redis")
        self.urls["redis"] = f"redis://{server.address}"
        return [server]


class ValkeyGroup(Group):
    """One Valkey."""

    def plan(self) -> Sequence[Server]:
        server = Valkey(self.site, "valkey")
        self.urls["valkey"] = f"valkey://{server.address}"
        return [server]


class RedlockGroup(Group):
    """Five servers that know nothing of each other."""

    def plan(self) -> Sequence[Server]:
        servers = [Redis(self.site, f"redis-{n}") for n in range(1, 6)]
        self.urls["redlock"] = "redlock://" + addresses(servers)
        return servers


class ClusterGroup(Group):
    """Three primaries that share the slots, and a replica for each."""

    def plan(self) -> Sequence[Server]:
        self.nodes = [ClusterNode(self.site, f"node-{n}") for n in range(1, 7)]
        self.urls["cluster"] = "redis+cluster://" + addresses(self.nodes)
        return self.nodes

    def form(self) -> None:
        primaries, replicas = self.nodes[:3], self.nodes[3:]
        for number, node in enumerate(self.nodes, 1):
            # Distinct epochs from the beginning, or the nodes spend a while agreeing on them.
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number)
        for number, node in enumerate(primaries):
            first, end = SLOTS * number // 3, SLOTS * (number + 1) // 3
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        self._meet()
        for primary, replica in zip(primaries, replicas, strict=True):
            identity = str(primary.ask("CLUSTER", "MYID"))
            # Refused until the replica has heard of its primary.
            until(partial(replica.ask, "CLUSTER", "REPLICATE", identity), START_SECONDS, replica.name)

    def _meet(self) -> None:
        # Each meets each: leaving it to gossip would take seconds.
        for node in self.nodes:
            for other in self.nodes:
                if other is not node:
                    node.ask("CLUSTER", "MEET", other.host, other.port, other.bus)

    def check(self) -> None:
        for node in self.nodes:
            told = node.info("CLUSTER", "INFO")
            state, slots = told["cluster_state"], told["cluster_slots_ok"]
            if state != "ok" or slots != str(SLOTS):
                raise NotReady(f"{node.name}: state {state}, {slots} slots")
            self._check_roles(node)
            node.check_link()

    def _check_roles(self, node: ClusterNode) -> None:
        lines = str(node.ask("CLUSTER", "NODES")).splitlines()
        flags = [line.split()[2].removeprefix("myself,") for line in lines]
        if flags.count("master") != 3 or flags.count("slave") != 3:
            raise NotReady(f"{node.name} sees the roles {' '.join(flags)}")


class SentinelGroup(Group):
    """A primary with two replicas, under three Sentinels; the names tell who was what in the beginning."""

    def plan(self) -> Sequence[Server]:
        self.primary = Redis(self.site, "primary")
        follow = f"{self.primary.host} {self.primary.port}"
        self.replicas = [Redis(self.site, f"replica-{n}", replicaof=follow) for n in (1, 2)]
        self.sentinels = [Sentinel(self.site, f"sentinel-{n}", self.primary) for n in (1, 2, 3)]
        self.urls["sentinel"] = f"redis+sentinel://{addresses(self.sentinels)}/{SERVICE}"
        return [self.primary, *self.replicas, *self.sentinels]

    def form(self) -> None:
        # A Sentinel asks the primary for its replicas when it first connects and then only every ten seconds.
        for replica in self.replicas:
            until(replica.check_link, START_SECONDS, replica.name, replica.tail)
        for sentinel in self.sentinels:
            sentinel.monitor()

    def check(self) -> None:
        servers = [self.primary, *self.replicas]
        for server in servers:
            server.check_link()
        # After a failover the old primary comes back believing in itself, until a Sentinel talks to it.
        primaries = [server for server in servers if server.is_primary()]
        if len(primaries) != 1:
            raise NotReady(f"{len(primaries)} servers take themselves for the primary")
        for sentinel in self.sentinels:
            sentinel.check_view(primaries[0], replicas=2, sentinels=2)
