"""The asyncio wire: one connection to each node, shared by all tasks of a client.

Questions that tasks ask in the same turn of the loop leave together. Answers come in order, so each
connection keeps the rounds that it owes one to; a round counts the votes and wakes its task once. No
round has a timer of its own: a watchdog looks at all that are open.

Connecting is done by tasks of their own, so that a step which is cancelled does not take it along.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

import hiredis

from fencelock.backends.redis.multiplexed import inherited
from fencelock.backends.redis.server import Stream
from fencelock.backends.redlock.failures import Silence, broke, late
from fencelock.backends.redlock.links import DIAL, FAREWELL, GRACE, HOPELESS, LEAST, Deliver
from fencelock.backends.redlock.node import Hello, Node, check_twins, greeting
from fencelock.backends.redlock.rounds import Collecting, Round, Undoing
from fencelock.core.quorum import quorum
from fencelock.runtime import clock

__all__ = ["MultiplexedWire"]

LOOK_EVERY = 0.02
SHORT = 0.002
Spawn = Callable[[Coroutine[Any, Any, None], str], Any]


class Connection(asyncio.Protocol):
    """One connection to one node, and the rounds that it owes an answer to."""

    def __init__(self, wire: MultiplexedWire, index: int, stream: Stream) -> None:
        self.wire = wire
        self.index = index
        self.stream = stream
        self.reader = hiredis.Reader()
        self.pending: deque[Round] = deque()
        self.unsent: list[bytes] = []
        self.deliver: Deliver | None = None
        self._write = stream.transport.write
        stream.transport.set_protocol(self)
        stream.transport.resume_reading()

    def send(self, asked: Round, call: bytes) -> None:
        """Send with whatever else is sent in this turn of the loop."""
        self.pending.append(asked)
        self.post(call)

    def post(self, call: bytes) -> None:
        """Send something that no round waits for."""
        self.unsent.append(call)
        self.wire.flush_soon()

    def flush(self) -> None:
        if self.unsent:
            self._write(self.unsent[0] if len(self.unsent) == 1 else b"".join(self.unsent))
            self.unsent.clear()

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        try:
            answer = self.reader.gets()
            while answer is not False:
                self._take(answer)
                answer = self.reader.gets()
        except hiredis.ProtocolError as error:
            self.stream.close()
            self.wire.broken(self, broke(self.wire.nodes[self.index].label, error))

    def _take(self, answer: Any) -> None:
        if self.deliver is not None:
            self.deliver(self.index, answer)
            return
        asked = self.pending.popleft()
        if isinstance(answer, hiredis.ReplyError) and asked.script and str(answer).startswith("NOSCRIPT"):
            self.send(asked, asked.script.in_full(asked.call))
        else:
            asked.take(self.index, answer)

    def connection_lost(self, error: Exception | None) -> None:
        label = self.wire.nodes[self.index].label
        self.wire.broken(self, broke(label, error or ConnectionResetError("it closed the connection")))

    def is_late(self, now: float) -> bool:
        """Whether an answer is overdue."""
        return bool(self.pending) and self.pending[0].sent < now - self.wire.node_timeout


class MultiplexedWire:
    """A connection to each node, or the attempt at one."""

    def __init__(
        self,
        nodes: Sequence[Node],
        node_timeout: float,
        max_ttl: float,
        spawn: Spawn,
        deliver: Deliver | None = None,
    ) -> None:
        self.nodes = nodes
        self.node_timeout = node_timeout
        self.max_ttl = max_ttl
        self.deliver = deliver
        self.opening: Callable[[], bytes] = bytes
        self.alarm: Callable[[], None] = lambda: None
        self.connections: list[Connection | None] = [None] * len(nodes)
        self.closed = False
        self._whole = False
        self._spawn = spawn
        self._dialling: set[int] = set()
        self._changed: asyncio.Event | None = None
        self._open: set[Round] = set()
        self._watchdog: asyncio.TimerHandle | None = None
        self._flushing = False

    # As the blocking wire has it ----------------------------------------------------------

    def take(self, owner: str = "") -> MultiplexedWire:
        """Return itself: all tasks share the connections."""
        return self

    def settle(self, owner: str, links: MultiplexedWire) -> None:
        """Nothing to settle: there is one connection, and it keeps the order."""

    def give(self, links: MultiplexedWire) -> None:
        """Nothing to put back."""

    def leave(self, owner: str, links: MultiplexedWire, note: Round | None = None) -> None:
        """Nothing to note, either."""

    async def ask(
        self, asked: Round, deadline: float, *, everyone: bool = False, only: Collection[int] | None = None
    ) -> None:
        """Ask the nodes, or `only` these, and return when the round is over.

        `everyone` asks those too that owe answers.
        """
        now = clock.now()
        if not self._whole:
            await self.connect(self._limit(now, deadline))
            now = clock.now()
        asked.deadline = self._limit(now, deadline)
        alone = not self._open and not self._flushing
        self._flushing = self._flushing or alone  # alone: there is nobody to wait for
        self._send(asked, now, everyone, only)
        if alone:
            self._flush()
        if asked.over:
            return
        loop = asyncio.get_running_loop()
        self._open.add(asked)
        if self._watchdog is None:
            self._watchdog = loop.call_later(LOOK_EVERY, self._look, loop)
        try:
            await asked.future(loop)
        finally:
            self._open.discard(asked)

    def _limit(self, now: float, deadline: float) -> float:
        return now + min(self.node_timeout, max(deadline - now, LEAST))

    def tell(self, asked: Round, only: Collection[int] | None = None) -> None:
        """Send, and wait for nothing."""
        self._send(asked, clock.now(), True, only)

    def _send(self, asked: Round, now: float, everyone: bool, only: Collection[int] | None) -> None:
        asked.sent = now
        for index, connection in enumerate(self.connections):
            if only is not None and index not in only:
                continue
            if connection is None:
                self._miss(index, asked, self.nodes[index].trouble)
            elif not everyone and connection.is_late(now):
                asked.miss(index, late())
            else:
                connection.send(asked, asked.call)

    def _miss(self, index: int, asked: Round, silence: Silence) -> None:
        if asked.owed_until:
            self.nodes[index].owe(asked.call, asked.owed_until)
        asked.miss(index, silence)

    def flush_soon(self) -> None:
        """Send at the end of this turn of the loop, with what other tasks have to say."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        for connection in self.connections:
            if connection is not None:
                connection.flush()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """The watchdog: give up what is overdue, and look again while anything is open."""
        now = clock.now()
        for asked in [*self._open]:
            if now >= asked.deadline:
                asked.expire()
        for connection in self.connections:
            if connection is not None and connection.is_late(now):
                if connection.pending[0].sent < now - HOPELESS:
                    connection.stream.close()
                for asked in connection.pending:
                    asked.miss(connection.index, late())
        self._watchdog = loop.call_later(LOOK_EVERY, self._look, loop) if self._open else None

    # Connecting ---------------------------------------------------------------------------

    async def connect(self, limit: float) -> None:
        """Begin to connect what is due; wait for it if there are too few without."""
        now = clock.now()
        enough = quorum(len(self.nodes))
        needed = self._usable() < enough
        for node in self.nodes:
            missing = self.connections[node.index] is None and node.index not in self._dialling
            if missing and node.is_due(now, needed):
                self._dialling.add(node.index)
                self._spawn(self._dial(node), "fencelock-dial")
        while needed and self._dialling and not self.closed:
            until = min(limit, now + GRACE) if self._usable() >= enough else limit
            left = until - clock.now()
            if left <= 0:
                break
            await self._wait_for_change(left)
        check_twins(self.nodes)

    async def _wait_for_change(self, seconds: float) -> None:
        changed = self._changed = self._changed or asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            return

    def _usable(self) -> int:
        return sum(connection is not None for connection in self.connections)

    async def _dial(self, node: Node) -> None:
        try:
            async with asyncio.timeout(DIAL):
                stream = await node.server.dial_async(DIAL)
                connection = Connection(self, node.index, stream)
                try:
                    hello = await self._greet(connection, node)
                except BaseException:
                    stream.close()
                    raise
            node.connected(hello)
            if not hello.is_member:
                self.alarm()
            self._adopt(connection, node)
        except Exception as error:  # noqa: BLE001 - whatever it was, the node has no connection
            node.failed(node.explain(error), clock.now())
        finally:
            self._dialling.discard(node.index)
            if self._changed is not None:
                self._changed.set()
                self._changed = None

    async def _greet(self, connection: Connection, node: Node) -> Hello:
        talk = greeting(node, self.max_ttl)
        calls = next(talk)
        loop = asyncio.get_running_loop()
        while True:
            rounds = [Collecting(1, call, None) for call in calls]
            futures = [asked.future(loop) for asked in rounds]
            for asked in rounds:
                connection.pending.append(Relayed(asked))
            connection.stream.transport.write(b"".join(calls))
            await asyncio.gather(*futures)
            replies = [asked.answers[0] for asked in rounds]
            for reply in replies:
                if isinstance(reply, Silence):
                    raise ConnectionResetError(reply.why)
            try:
                calls = talk.send(replies)
            except StopIteration as done:
                hello: Hello = done.value
                return hello

    def _adopt(self, connection: Connection, node: Node) -> None:
        if self.closed:
            connection.stream.close()
            return
        self.connections[node.index] = connection
        self._whole = None not in self.connections
        connection.deliver = self.deliver
        if self.deliver is None:
            for call in node.owed(clock.now()):
                undoing = Undoing(len(self.nodes), call)
                connection.send(undoing, undoing.call)
        elif opening := self.opening():
            connection.post(opening)

    def broken(self, connection: Connection, silence: Silence) -> None:
        """A connection is gone: whoever waits for its answers waits for nothing."""
        if self.connections[connection.index] is connection:
            self.connections[connection.index] = None
            self._whole = False
            self.nodes[connection.index].failed(silence, clock.now())
        while connection.pending:
            self._miss(connection.index, connection.pending.popleft(), silence)

    # Ending -------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close every connection, and let what was sent arrive first."""
        self.closed = True
        self._flush()
        give_up = clock.now() + FAREWELL
        while any(each is not None and each.pending for each in self.connections) and clock.now() < give_up:
            await asyncio.sleep(SHORT)
        for connection in self.connections:
            if connection is not None:
                connection.stream.transport.close()
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        while self._dialling:
            await self._wait_for_change(DIAL)
        await asyncio.sleep(0)

    def drop(self) -> None:
        """In a forked child: close our copies of the sockets; the parent goes on with its own."""
        for connection in self.connections:
            if connection is not None:
                inherited(connection.stream)


class Relayed(Round):
    """A round of one node alone, wherever that node stands among the others."""

    __slots__ = ("_asked",)

    def __init__(self, asked: Round) -> None:
        super().__init__(0, asked.call, None)
        self._asked = asked
        self.sent = clock.now()

    def take(self, node: int, answer: Any) -> None:
        self._asked.take(0, answer)

    def miss(self, node: int, silence: Silence) -> None:
        self._asked.miss(0, silence)
