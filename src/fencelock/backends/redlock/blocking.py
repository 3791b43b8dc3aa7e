"""The blocking wire: sets of connections, and who uses which.

A thread takes a set out of the idle ones and puts it back; the last one put back is taken first, so a
thread that works alone has always the same. What gives a lock back must not overtake what took it, on
no node: so a request prefers the set of its earlier steps, and if another thread has that just
then, leaves a note for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from fencelock.backends.redlock.links import FAREWELL, Links
from fencelock.backends.redlock.node import Node, check_twins
from fencelock.backends.redlock.rounds import Round
from fencelock.runtime import clock

__all__ = ["BlockingWire"]

HOMES = 1024
LOOK = 0.001
LONGEST_LOOK = 0.1


class BlockingWire:
    """The sets of all threads."""

    def __init__(self, nodes: Sequence[Node], node_timeout: float, max_ttl: float) -> None:
        self.nodes = nodes
        self.node_timeout = node_timeout
        self.max_ttl = max_ttl
        self.closed = False
        self.alarm: Callable[[], None] = lambda: None
        """Called when a node that was connected to does not vote."""
        self._idle: list[Links] = []
        self._homes: dict[str, Links] = {}
        self._all: weakref.WeakSet[Links] = weakref.WeakSet()

    def take(self, owner: str = "") -> Links:
        """Return a set for one step: that of the owner's earlier steps, if nobody else uses it."""
        home = self._homes.get(owner)
        if home is not None:
            try:
                self._idle.remove(home)
                return home
            except ValueError:
                pass
        try:
            return self._idle.pop()
        except IndexError:
            return self._another()

    def settle(self, owner: str, links: Links) -> None:
        """The owner's lock is being taken over these."""
        if self._homes.get(owner) is not links:
            while len(self._homes) >= HOMES:
                self._homes.pop(next(iter(self._homes)), None)
            self._homes[owner] = links

    def _another(self) -> Links:
        """Return a new set, or one that others put back before the new one stands: that is often sooner."""
        links = Links(self)
        alone = not self._all
        self._all.add(links)
        give_up = clock.now() + LONGEST_LOOK
        while not alone and not links.is_usable() and clock.now() < give_up:
            links.connect(clock.now(), 0.0)
            links.pump(LOOK)
            try:
                other = self._idle.pop()
            except IndexError:
                continue
            self._idle.insert(0, links)
            return other
        return links

    def give(self, links: Links) -> None:
        """Put a set back."""
        while links.notes:
            links.tell(links.notes.popleft())
        if self.closed:
            links.end()
            return
        self._idle.append(links)
        if links.notes or self.closed:  # since then
            self._visit(links)

    def leave(self, owner: str, links: Links, note: Round | None = None) -> None:
        """The lock was given back over `links`; where it was taken, the request may still be under way."""
        home = self._homes.pop(owner, None)
        if note is not None and home is not None and home is not links:
            home.notes.append(note)
            self._visit(home)

    def _visit(self, links: Links) -> None:
        try:
            self._idle.remove(links)
        except ValueError:
            return  # whoever uses it will see
        self.give(links)

    def check_twins(self) -> None:
        """Two addresses that lead to one server would give it two votes."""
        check_twins(self.nodes)

    async def close(self) -> None:
        """Close every set that nobody uses; the others are closed when they come back."""
        self.closed = True
        give_up = clock.now() + FAREWELL
        while self._idle:
            try:
                links = self._idle.pop()
            except IndexError:
                return
            links.end(give_up)

    def drop(self) -> None:
        """In a forked child: close our copies of the sockets; the parent goes on with its own."""
        for links in [*self._all]:
            links.drop()
