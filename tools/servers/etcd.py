"""etcd, one or three. Settings are its flags, without the dashes; `also-listen` is a further URL for clients.

A member whose data was wiped cannot simply come back, since its peers would believe it still knew what it had
acknowledged: it is removed from the cluster and added anew, which takes a quorum of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from . import wire
from .errors import NotReady
from .group import Group, addresses
from .server import START_SECONDS, Server
from .site import Site
from .waiting import until


class Etcd(Server):
    """A member; `peers` are all members, itself included."""

    def __init__(self, site: Site, number: int, peers: list[Etcd]) -> None:
        super().__init__(site, f"etcd-{number}")
        self.peers = peers
        self.peer_url = f"http://{self.host}:{site.port()}"
        self.state = "new"

    def command(self) -> list[str]:
        client_url = f"http://{self.address}"
        settings = dict(self.settings)
        listen = [client_url, *filter(None, [settings.pop("also-listen", "")])]
        chosen = {
            "name": self.name,
            "data-dir": str(self.data),
            "listen-client-urls": ",".join(listen),
            "advertise-client-urls": client_url,
            "listen-peer-urls": self.peer_url,
            "initial-advertise-peer-urls": self.peer_url,
            "initial-cluster": ",".join(f"{peer.name}={peer.peer_url}" for peer in self.peers),
            "initial-cluster-state": self.state,
            "logger": "zap",
            **settings,
        }
        return [self.program("etcd"), *(f"--{key}={value}" for key, value in chosen.items())]

    def probe(self) -> None:
        self.version()

    def version(self) -> str:
        return str(wire.call(self.host, self.port, "/version")["etcdserver"])

    def ask(self, path: str, body: object) -> Any:
        """One call of the JSON gateway."""
        return wire.call(self.host, self.port, f"/v3/{path}", body)

    def check_health(self, size: int) -> None:
        """It has a leader, and knows as many members as there are."""
        if wire.call(self.host, self.port, "/health").get("health") != "true":
            raise NotReady(f"{self.name} is not healthy")
        members = self.ask("cluster/member/list", {})["members"]
        if len(members) != size or not all(member.get("clientURLs") for member in members):
            raise NotReady(f"{self.name} knows {len(members)} members")

    def leave(self) -> None:
        other = next((peer for peer in self.peers if peer is not self and peer.is_alive()), None)
        if other is None:
            self.state = "new"
            return
        until(partial(self._remove, other), START_SECONDS, f"the cluster without {self.name}")
        # Refused while the cluster fears that a further stranger would endanger its quorum.
        add = partial(other.ask, "cluster/member/add", {"peerURLs": [self.peer_url]})
        until(add, START_SECONDS, f"the cluster without {self.name}")
        self.state = "existing"

    def _remove(self, other: Etcd) -> None:
        """May be repeated when its reply was lost, as it is while a new leader is elected."""
        for member in other.ask("cluster/member/list", {})["members"]:
            if member.get("name") == self.name:
                other.ask("cluster/member/remove", {"ID": member["ID"]})


class EtcdGroup(Group):
    """One etcd."""

    size = 1
    # A leader spends seconds on offering its office to members that are going down as well.
    stop_seconds = 1.0

    def plan(self) -> Sequence[Server]:
        self.nodes: list[Etcd] = []
        for number in range(1, self.size + 1):
            self.nodes.append(Etcd(self.site, number, self.nodes))
        self.urls["etcd"] = "etcd://" + addresses(self.nodes)
        return self.nodes

    def check(self) -> None:
        for node in self.nodes:
            node.check_health(self.size)


class EtcdCluster(EtcdGroup):
    """Three members with a leader."""

    size = 3
