"""A set of blocking connections, one to each node, that one thread uses at a time.

A question is sent to all nodes, then one `poll` waits for whoever answers, until the votes decide. Answers
that come later are read the next time the set is used: each connection knows what it was
asked, in order.

A node that owes an answer for longer than its time is not asked for votes any more, until the answer
comes. What gives a lock back is sent to it all the same: over the same connection, so it cannot overtake
the request that took the lock.

Connecting blocks (names, TLS, passwords), so it is done on short-lived threads; who needs a quorum waits
for them, others go on without.

Whatever interrupts a question may have read half an answer: then the whole set is closed.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import hiredis

from fencelock.backends.redlock.failures import broke, late
from fencelock.backends.redlock.link import Link, greet
from fencelock.backends.redlock.node import Hello, Node
from fencelock.backends.redlock.rounds import Round, Undoing
from fencelock.core.quorum import quorum
from fencelock.runtime import clock
from fencelock.runtime.threads import launch

if TYPE_CHECKING:
    from fencelock.backends.redlock.blocking import BlockingWire

__all__ = ["DIAL", "FAREWELL", "GRACE", "HOPELESS", "LEAST", "Deliver", "Links"]

DIAL = 2.0
"""Seconds that connecting to a node may take, on its thread."""
HOPELESS = 10.0
"""Seconds without an answer after which a connection is given up and made anew."""
READS = 100
LEAST = 0.5
"""Seconds that nodes have to answer, however little time the caller has left: who does not hear the votes
cannot tell a lock that is held from nodes that are down."""
FAREWELL = 0.25
"""Seconds that nodes have to take what was sent before a connection is closed."""
GRACE = 0.3
"""Seconds for which the first question waits for the last connections, when a quorum stands."""

Deliver = Callable[[int, Any], None]


class Links:
    """A connection to each node, or the attempt at one. `deliver` takes what was not asked for: pushes."""

    def __init__(self, wire: BlockingWire, deliver: Deliver | None = None) -> None:
        self.wire = wire
        self.deliver = deliver
        self.opening: Callable[[], bytes] = bytes
        """What to send first over a new connection."""
        self.links: list[Link | None] = [None] * len(wire.nodes)
        self.whole = False
        self.closed = False
        self.notes: deque[Round] = deque()
        """What others have to send over these connections and no others."""
        self._poller = select.poll()
        self._by_fd: dict[int, Link] = {}
        self._dialled: deque[tuple[int, socket.socket | Exception, Hello]] = deque()
        self._dialling: set[int] = set()
        self._bell, self._rope = os.pipe()
        for end in (self._bell, self._rope):
            os.set_blocking(end, False)
        self._poller.register(self._bell, select.POLLIN)

    async def ask(
        self, asked: Round, deadline: float, *, everyone: bool = False, only: Collection[int] | None = None
    ) -> None:
        """Ask the nodes, or `only` these, and return when the round is over.

        `everyone` asks those too that owe answers.
        """
        try:
            now = clock.now()
            if not self.whole:
                self.connect(now, self._limit(now, deadline))
                now = clock.now()
            limit = self._limit(now, deadline)
            self._send(asked, now, everyone, only)
            while not asked.over:
                left = limit - clock.now()
                if left <= 0:
                    asked.expire()
                    return
                self.pump(left)
        except BaseException:
            self._take_back(asked)
            self.close()
            raise

    def _limit(self, now: float, deadline: float) -> float:
        return now + min(self.wire.node_timeout, max(deadline - now, LEAST))

    def _take_back(self, *rounds: Round) -> None:
        """Over the same connections, before they are closed: over new ones it might come first."""
        for link in [*self._by_fd.values()]:
            for asked in rounds or [*link.pending]:
                if asked.undo:
                    undoing = Undoing(len(self.links), asked.undo)
                    self._post(link.index, undoing, undoing.call)

    def tell(self, asked: Round, only: Collection[int] | None = None) -> None:
        """Send, and let the answers be read some day."""
        try:
            self._send(asked, clock.now(), True, only)
        except BaseException:
            self.close()
            raise

    def _send(self, asked: Round, now: float, everyone: bool, only: Collection[int] | None) -> None:
        asked.sent = now
        call, stale = asked.call, now - self.wire.node_timeout
        for index, link in enumerate(self.links):
            if only is not None and index not in only:
                continue
            behind = link is not None and link.pending and link.pending[0].sent < stale
            if link is not None and behind and not self._caught_up(link, stale, now) and not everyone:
                asked.miss(index, late())
            elif not self._post(index, asked, call):
                self._miss(index, asked)

    def _post(self, index: int, asked: Round, call: bytes) -> bool:
        link = self.links[index]
        if link is None:
            return False
        try:
            link.post(call)
        except OSError as error:
            self._break(link, error)
            return False
        link.pending.append(asked)
        return True

    def post(self, link: Link, call: bytes) -> None:
        """Send something that no round waits for."""
        try:
            link.post(call)
        except OSError as error:
            self._break(link, error)

    def _miss(self, index: int, asked: Round) -> None:
        node = self.wire.nodes[index]
        if asked.owed_until:
            node.owe(asked.call, asked.owed_until)
        asked.miss(index, node.trouble)

    def _caught_up(self, link: Link, stale: float, now: float) -> bool:
        """Whether the answers were there, and only not read since the votes were decided."""
        for _ in range(READS):
            if not link.pending or link.fd not in dict(self._poller.poll(0)):
                break
            self._receive(link)
        if link.pending and link.pending[0].sent < now - HOPELESS:
            self._break(link, TimeoutError())
        return not link.pending or link.pending[0].sent >= stale

    def pump(self, seconds: float) -> None:
        """Wait for answers, for so long at most, and take what has come."""
        for fd, _ in self._poller.poll(seconds * 1000):
            link = self._by_fd.get(fd)
            if link is not None:
                self._receive(link)
            elif fd == self._bell:
                os.read(fd, 4096)
                self._adopt()

    def _receive(self, link: Link) -> None:
        try:
            if not link.read():
                raise ConnectionResetError("it closed the connection")
            answer = link.reader.gets()
            while answer is not False:
                self._take(link, answer)
                answer = link.reader.gets()
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except (OSError, hiredis.ProtocolError) as error:
            self._break(link, error)

    def _take(self, link: Link, answer: Any) -> None:
        if self.deliver is not None:
            self.deliver(link.index, answer)
            return
        asked = link.pending.popleft()
        if isinstance(answer, hiredis.ReplyError) and asked.script and str(answer).startswith("NOSCRIPT"):
            link.post(asked.script.in_full(asked.call))
            link.pending.append(asked)
        else:
            asked.take(link.index, answer)

    def _break(self, link: Link, error: Exception) -> None:
        node = self.wire.nodes[link.index]
        node.failed(broke(node.label, error), clock.now())
        self._forget(link)
        while link.pending:
            self._miss(link.index, link.pending.popleft())

    def _forget(self, link: Link) -> None:
        if self.links[link.index] is not link:
            return
        self.whole = False
        self.links[link.index] = None
        if self._by_fd.pop(link.fd, None) is not None:
            self._poller.unregister(link.fd)
        link.sock.close()

    # Connecting ---------------------------------------------------------------------------

    def wake(self) -> None:
        """Let `pump`, on whatever thread, return."""
        if self.closed:
            return  # the number may be another file's by now
        try:
            os.write(self._rope, b"!")
        except OSError:
            return  # full, so it wakes anyway

    def connect(self, now: float, limit: float) -> None:
        """Take what has been connected, begin what is due; wait for it if there are too few without."""
        self._adopt()
        needed = not self.is_usable()
        for node in self.wire.nodes:
            if (
                self.links[node.index] is None
                and node.index not in self._dialling
                and node.is_due(now, needed)
            ):
                self._dial(node)
        while needed and self._dialling:
            until = min(limit, now + GRACE) if self.is_usable() else limit
            left = until - clock.now()
            if left <= 0:
                break
            self.pump(left)
        self.wire.check_twins()

    def is_usable(self) -> bool:
        """Whether connections to a quorum stand."""
        return sum(link is not None for link in self.links) >= quorum(len(self.links))

    def _dial(self, node: Node) -> None:
        self._dialling.add(node.index)
        try:
            launch(threading.Thread(target=self._dial_one, args=(node,), name="fencelock-dial", daemon=True))
        except BaseException:
            self._dialling.discard(node.index)
            raise

    def _dial_one(self, node: Node) -> None:
        """Runs on a thread of its own; touches nothing but the queue and the rope."""
        result: socket.socket | Exception
        hello = Hello("", True)
        try:
            result = node.server.dial(DIAL)
            try:
                result.settimeout(DIAL)
                hello = greet(result, node, self.wire.max_ttl)
            except BaseException:
                result.close()
                raise
        except Exception as error:  # noqa: BLE001 - whatever it was, the node has no connection
            result = error
        self._dialled.append((node.index, result, hello))
        if self.closed:
            self._close_dialled()
        else:
            self.wake()

    def _adopt(self) -> None:
        if not self._dialled:
            return
        while self._dialled:
            index, result, hello = self._dialled.popleft()
            node = self.wire.nodes[index]
            self._dialling.discard(index)
            if isinstance(result, Exception):
                node.failed(node.explain(result), clock.now())
                continue
            node.connected(hello)
            if not hello.is_member:
                self.wire.alarm()
            self._add(Link(index, result), node)
        self.whole = None not in self.links

    def _add(self, link: Link, node: Node) -> None:
        self.links[link.index] = link
        self._by_fd[link.fd] = link
        self._poller.register(link.fd, select.POLLIN)
        try:
            if self.deliver is None:
                for call in node.owed(clock.now()):
                    undoing = Undoing(len(self.links), call)
                    link.post(undoing.call)
                    link.pending.append(undoing)
            elif opening := self.opening():
                link.post(opening)
        except OSError as error:
            self._break(link, error)

    # Ending -------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every socket; the set may be used again."""
        for link in [*self._by_fd.values()]:
            self._forget(link)
            for asked in link.pending:
                asked.miss(link.index, late())
        self._close_dialled()

    def _close_dialled(self) -> None:
        while self._dialled:
            index, result, _ = self._dialled.popleft()
            self._dialling.discard(index)
            if isinstance(result, socket.socket):
                result.close()

    def end(self, give_up: float | None = None) -> None:
        """Close it for good, when the nodes have taken what was sent, or at `give_up`."""
        if not self.closed:
            self._take_back()
            self._drain(clock.now() + FAREWELL if give_up is None else give_up)
            self.drop()

    def _drain(self, give_up: float) -> None:
        """Let the nodes answer: one that cannot deliver an answer does not read on, whatever it was sent."""
        while any(link.pending for link in self._by_fd.values()) and (left := give_up - clock.now()) > 0:
            self.pump(left)

    def drop(self) -> None:
        """Close it for good, without a word: in a forked child the connections are the parent's."""
        if not self.closed:
            self.closed = True
            self.close()
            os.close(self._bell)
            os.close(self._rope)

    def __del__(self) -> None:
        self.end()
