"""A group: the members of one server or ensemble, started together, ready together, gone together.

Ready means: every member answers by itself, the group was formed (once), and the group's own check holds,
such as one leader and two followers. `stop()`, the end of the `with` block and the interpreter's exit leave
no process and no folder; even the owner's SIGKILL leaves none, thanks to the keeper.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from . import keeper
from .errors import ServerError
from .server import START_SECONDS, STOP_SECONDS, Server
from .site import Site
from .waiting import until

_running: list[Group] = []


class Group:
    """Families derive from it. `members` and `urls` are set by `plan()`."""

    stop_seconds = STOP_SECONDS
    """How long `stop()` asks politely."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.owner = os.getpid()
        self.urls: dict[str, str] = {}
        self.members: Sequence[Server] = self.plan()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    # What a family says.

    def plan(self) -> Sequence[Server]:
        """Makes the members, starting none, and fills `urls`."""
        raise NotImplementedError

    def form(self) -> None:
        """Joins the members, which all answer, into one; done once."""

    def check(self) -> None:
        """Raises NotReady or OSError until the group as a whole is in shape."""

    # What everybody may call.

    @property
    def url(self) -> str:
        """The URL that fencelock connects to; the first, where there are several."""
        return next(iter(self.urls.values()))

    def __getitem__(self, name: str) -> Server:
        """The member of that name."""
        return next(member for member in self.members if member.name == name)

    def start(self, seconds: float = START_SECONDS) -> None:
        """Starts every member and waits until the group is ready."""
        deadline = time.monotonic() + seconds
        _running.append(self)
        for member in self.members:
            member.start()
        for member in self.members:
            member.wait(deadline - time.monotonic())
        self.form()
        self.wait(deadline - time.monotonic())

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Waits until every member answers and the group is in shape, after a fault for example."""
        until(self._check, seconds, type(self).__name__, self._tails)

    def cut(self, source: Server | None, target: Server | None) -> None:
        """What `source` sends no longer reaches `target`; the other way stays open. None is the clients here.

        Needs `start(..., netns=True)`, as do the next two.
        """
        if target is not None:
            self.site.network.cut(source.host if source else self.site.network.clients, target.netns)
        elif source is not None:
            self.site.network.mute(source.netns)
        else:
            raise ServerError("a cut needs a member on at least one side")

    def partition(self, *minority: Server, clients: bool = False) -> None:
        """Cuts every path between the minority and the other members; `clients`: and those to us."""
        rest: list[Server | None] = [member for member in self.members if member not in minority]
        if clients:
            rest.append(None)
        for one in minority:
            for other in rest:
                self.cut(one, other)
                self.cut(other, one)

    def heal(self) -> None:
        """Undoes every cut and partition."""
        self.site.network.heal()

    def version(self) -> str:
        """The version that the first member reports."""
        return self.members[0].version()

    def stop(self) -> None:
        """Stops every member and removes every trace; may be called again.

        In a forked child it does nothing: the servers are the parent's.
        """
        if self.owner != os.getpid():
            return
        deadline = time.monotonic() + self.stop_seconds
        for member in self.members:
            member.ask_to_stop()
        for member in self.members:
            member.wait_stopped(deadline - time.monotonic())
        self.site.close()
        if self in _running:
            _running.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _check(self) -> None:
        for member in self.members:
            member.check()
        self.check()

    def _tails(self) -> str:
        return "".join(f"\n{member.name}:{member.tail(5)}" for member in self.members)


def addresses(servers: Sequence[Server]) -> str:
    """`host:port` of each, with commas, as URLs of ensembles have it."""
    return ",".join(server.address for server in servers)


@atexit.register
def _stop_all() -> None:
    for group in _running[:]:
        group.stop()
    keeper.close()
