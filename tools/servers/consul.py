"""Consul, one server or three. Settings are keys of its configuration, their values JSON or plain text.

Node ids are fixed, so that a member whose data was wiped comes back as the member it was.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

from . import wire
from .errors import NotReady
from .group import Group, addresses
from .server import Server
from .site import Site


class Consul(Server):
    """A server agent; `peers` are all servers, itself included."""

    def __init__(self, site: Site, number: int, peers: list[Consul]) -> None:
        super().__init__(site, f"consul-{number}")
        self.peers = peers
        self.node_id = str(uuid.uuid4())
        self.server_port = site.port()
        self.serf_port = site.port()

    def prepare(self) -> None:
        chosen: dict[str, object] = {
            "server": True,
            "bootstrap_expect": len(self.peers),
            "node_name": self.name,
            "node_id": self.node_id,
            "data_dir": str(self.data),
            "bind_addr": self.host,
            "client_addr": self.host,
            "retry_join": [f"{peer.host}:{peer.serf_port}" for peer in self.peers if peer is not self],
            "retry_interval": "1s",
            "ports": {
                "http": self.port,
                "server": self.server_port,
                "serf_lan": self.serf_port,
                "serf_wan": -1,
                "dns": -1,
            },
            # Elections as in production; the default is meant for very small machines.
            "performance": {"raft_multiplier": 1},
            "disable_update_check": True,
            **{key: _value(text) for key, text in self.settings.items()},
        }
        (self.folder / "consul.json").write_text(json.dumps(chosen, indent=2))

    def command(self) -> list[str]:
        return [self.program("consul"), "agent", f"-config-file={self.folder / 'consul.json'}"]

    def probe(self) -> None:
        self.version()

    def version(self) -> str:
        return str(self.ask("agent/self")["Config"]["Version"])

    def ask(self, path: str, body: object = None, method: str = "") -> Any:
        """One call of the HTTP interface."""
        return wire.call(self.host, self.port, f"/v1/{path}", body, method)

    def check_view(self, size: int) -> None:
        """It knows the leader, and as many peers as there are."""
        leader, peers = self.ask("status/leader"), self.ask("status/peers")
        if not leader or len(peers) != size:
            raise NotReady(f"{self.name} knows {len(peers)} peers and {leader or 'no leader'}")


class ConsulGroup(Group):
    """One Consul."""

    size = 1

    def plan(self) -> Sequence[Server]:
        self.nodes: list[Consul] = []
        for number in range(1, self.size + 1):
            self.nodes.append(Consul(self.site, number, self.nodes))
        self.urls["consul"] = "consul://" + addresses(self.nodes)
        return self.nodes

    def check(self) -> None:
        for node in self.nodes:
            node.check_view(self.size)


class ConsulCluster(ConsulGroup):
    """Three servers with a leader."""

    size = 3


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
