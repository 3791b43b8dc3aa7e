"""ZooKeeper, one or three. Settings are lines of its configuration.

A tick is half a second here instead of two, so sessions of one second are possible. Java is started directly,
so that the pid is that of the server and not that of a shell.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import wire
from .errors import NotReady
from .group import Group, addresses
from .server import Server
from .site import Site

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# The first jar names all others but a logger that writes to standard error, and in 3.4 the logging interface.
CLASSES = ":".join(f"/usr/share/java/{name}.jar" for name in ("zookeeper", "slf4j-api", "slf4j-simple"))
JAVA = [
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    # A server that lives for a minute earns nothing by optimising itself, which takes most of its processor.
    "-XX:TieredStopAtLevel=1",
    # Or Java would leave a folder in /tmp.
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
]


class ZooKeeper(Server):
    """A member; `peers` are all members of the ensemble, itself included, or nobody."""

    def __init__(self, site: Site, number: int, peers: list[ZooKeeper]) -> None:
        super().__init__(site, f"zookeeper-{number}")
        self.number = number
        self.peers = peers
        self.quorum_port = site.port()
        self.election_port = site.port()

    def prepare(self) -> None:
        chosen = {
            "dataDir": str(self.data),
            "clientPort": str(self.port),
            "clientPortAddress": self.host,
            "tickTime": "500",
            "maxSessionTimeout": "60000",
            "initLimit": "20",
            "syncLimit": "10",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }
        for peer in self.peers:
            chosen[f"server.{peer.number}"] = f"{peer.host}:{peer.quorum_port}:{peer.election_port}"
        chosen |= self.settings
        lines = [f"{key}={value}\n" for key, value in chosen.items()]
        (self.data / "zoo.cfg").write_text("".join(lines))
        (self.data / "myid").write_text(f"{self.number}\n")

    def command(self) -> list[str]:
        return [self.program("java"), *JAVA, "-cp", CLASSES, MAIN, str(self.data / "zoo.cfg")]

    def probe(self) -> None:
        if (said := self.ask("ruok")) != "imok":
            raise NotReady(f"{self.name} answered ruok with {said!r}")

    def version(self) -> str:
        return self.status()["Zookeeper version"].split("-")[0]

    def ask(self, word: str) -> str:
        return wire.four_letters(self.host, self.port, word)

    def status(self) -> dict[str, str]:
        """What `srvr` says; without a quorum it says nothing of use."""
        said = self.ask("srvr")
        if "Mode:" not in said:
            raise NotReady(f"{self.name}: {said.strip()}")
        return dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)


class ZooKeeperGroup(Group):
    """One ZooKeeper."""

    size = 1

    def plan(self) -> Sequence[Server]:
        ensemble: list[ZooKeeper] = []
        self.nodes = [ZooKeeper(self.site, n, ensemble) for n in range(1, self.size + 1)]
        if self.size > 1:
            ensemble += self.nodes
        self.urls["zookeeper"] = "zookeeper://" + addresses(self.nodes)
        return self.nodes

    def check(self) -> None:
        modes = sorted(node.status()["Mode"] for node in self.nodes)
        wanted = [*["follower"] * (self.size - 1), "leader"] if self.size > 1 else ["standalone"]
        if modes != wanted:
            raise NotReady(f"the members are {' '.join(modes)}")


class ZooKeeperEnsemble(ZooKeeperGroup):
    """A leader and two followers."""

    size = 3
