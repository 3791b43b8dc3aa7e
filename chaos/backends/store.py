"""What the harness must know of a backend: how it is started, asked past fencelock, and hurt.

A store is made for one run. A fault says what it needs before the servers are started (`netns`, `proxies`,
`env`, `settings`); what a store cannot suffer is in `spared`, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Self

from tools.servers import Server, start

from chaos.disk import Disk, Disks
from fencelock.testing import TCPProxy

__all__ = ["Shape", "Store", "patiently"]


class Shape:
    """How large a run is: small times, many names, so that much happens in a minute."""

    def __init__(
        self,
        ttl: float,
        players: int = 6,
        lanes: int = 4,
        names: int = 40,
        section: float = 0.02,
        hands: int = 1,
    ) -> None:
        self.ttl = ttl
        self.section = section
        self.players = players
        self.lanes = lanes
        self.hands = hands
        """So many times as often a fault that hits some of the clients does so at a time."""
        self.names = [f"job-{number}" for number in range(names)]


class Store:
    """One backend, for one run."""

    word: ClassVar[str]
    """What it is called in `make chaos BACKEND=`."""
    kind: ClassVar[str]
    """What it is called in tools/servers; empty if it is no server."""
    shape: ClassVar[Shape] = Shape(0.5)
    spared: ClassVar[Mapping[str, str]] = {}
    """The faults that do not apply, each with the reason."""
    settings: ClassVar[Mapping[str, str]] = {}
    """Of the servers, as tools/servers takes them."""
    sockets: ClassVar[int] = 0
    """How many a process keeps, whatever it did with locks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.group: Any = None
        self.netns = False
        self.proxies = False
        self.env: dict[str, str] = {}
        self.options: dict[str, str] = dict(self.settings)
        self.kind_now = self.kind
        self.disks: Disks | None = None
        """What it keeps its data on, where these must be able to fail."""

    # Life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the servers."""
        place = self.disks.place if self.disks else None
        self.group = start(self.kind_now, netns=self.netns, env=self.env, settings=self.options, place=place)
        if self.disks:
            self.disks.settle()

    def stop(self) -> None:
        """End them."""
        if self.group is not None:
            self.group.stop()
        if self.disks:
            self.disks.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return str(self.group.url)

    @property
    def servers(self) -> list[Server]:
        """The members that hold locks."""
        return [] if self.group is None else list(self.group.members)

    def version(self) -> str:
        return str(self.group.version())

    def bound(self, ttl: float) -> float:
        """Seconds within which a lock must be free again, once all is well."""
        return ttl + 2.0

    def gone(self, ttl: float) -> float:
        """Seconds of silence after which a client has certainly lost its locks."""
        return ttl

    def through(self, proxies: Mapping[str, TCPProxy]) -> str:
        """The URL by way of these proxies, by the address of the server behind each."""
        url = self.url
        for address, proxy in proxies.items():
            url = url.replace(address, f"{proxy.host}:{proxy.port}")
        return url

    # Questions and harm, past fencelock -----------------------------------------------------

    def residue(self) -> list[str]:
        """What requests have left, live or not; counters of a fixed number do not count."""
        raise NotImplementedError

    def delete(self) -> None:
        """What an operator might do: delete every record, counters included."""
        raise NotImplementedError

    def is_acquire(self, data: bytes) -> bool:
        """Whether these bytes ask for a lock."""
        raise NotImplementedError

    def is_renewal(self, data: bytes) -> bool:
        """Whether these bytes renew a lease."""
        raise NotImplementedError

    def refuse(self) -> None:
        """Let the store refuse to write: a full disk, no memory, a replica that only reads."""
        raise NotImplementedError

    def accept(self) -> None:
        """Let it write again."""
        raise NotImplementedError

    def blocked(self) -> AbstractContextManager[None]:
        """Somebody else has the store locked, and nobody can write to it meanwhile."""
        raise NotImplementedError

    log: ClassVar[str] = ""
    """What stands in the paths of the files that a grant is written to first."""

    def persist(self) -> None:
        """Before it is started: let it write to disk."""

    def disk(self, name: str) -> Disk:
        """The disk of the member of this name."""
        assert self.disks is not None
        return self.disks.by_name[name]

    def fill(self, full: bool) -> None:
        """Take all room from its disks, or give it back."""
        for disk in self.disks.by_name.values() if self.disks else ():
            disk.fill(full)

    def leader(self) -> Server | None:
        """The member that leads now, where somebody does."""
        return None

    def can_stop(self, pid: int) -> bool:
        """Whether a process that is stopped now holds up nobody but itself."""
        return True

    def restarted(self, server: Server) -> None:
        """Start a server that was killed, and return once it answers."""
        server.restart()

    def recover(self) -> None:
        """Wait until the servers are all there again."""
        if self.group is not None:
            self.group.wait()


def patiently(question: Callable[[], Any], seconds: float, pause: float = 0.05) -> Any:
    """Ask until the answer is true, at most so long; return the last one."""
    deadline = time.monotonic() + seconds
    while True:
        answer = question()
        if answer or time.monotonic() > deadline:
            return answer
        time.sleep(pause)
