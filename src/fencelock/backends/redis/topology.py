"""Which server a bucket is on: one server, the primary that Sentinel names, or a node of a Cluster.

A topology answers from memory (`known`), asks the servers over the wire when it does not know
(`learn`), and is told when an answer did not work out (`suspect`, `correct`): then it asks again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencelock.backends.redis.failures import said
from fencelock.backends.redis.server import Server

if TYPE_CHECKING:
    from fencelock.backends.redis.wire import Wire

__all__ = ["One", "Topology"]


class Topology(ABC):
    """Where things are."""

    label: str
    """What it is, for people to read."""
    is_sharded = False
    """Whether a script may touch keys of one bucket only."""
    silence = math.inf
    """After so many seconds without an answer a server is suspected."""

    @abstractmethod
    def known(self, bucket: int) -> Server | None:
        """Return the server of a bucket, if it is known."""

    def home(self) -> Server | None:
        """Return the server to hear pushes from, by the latest word; `None` if it is under suspicion."""
        return self.known(0)

    @abstractmethod
    async def learn(self, bucket: int, wire: Wire, deadline: float) -> Server:
        """Return the server of a bucket, asked for if it is not known."""

    @abstractmethod
    async def servers(self, wire: Wire, deadline: float) -> Sequence[Server]:
        """Return every server that has keys of ours."""

    def suspect(self, server: Server | None) -> None:
        """A server does not answer."""

    def asked(self, server: Server, text: str) -> Server:
        """Return the server that an ASK reply names."""
        raise said(server.label, text)

    async def correct(self, server: Server, text: str, wire: Wire, deadline: float) -> None:
        """A server answered with an error: return if asking again may help, else raise it."""
        raise said(server.label, text)


class One(Topology):
    """One server, for ever."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.label = server.label

    def known(self, bucket: int) -> Server:
        return self.server

    async def learn(self, bucket: int, wire: Wire, deadline: float) -> Server:
        return self.server

    async def servers(self, wire: Wire, deadline: float) -> Sequence[Server]:
        return [self.server]
