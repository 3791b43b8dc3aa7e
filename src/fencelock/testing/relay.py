"""The inside of ``TCPProxy``: faults, and the connections that suffer them.

Everything here but ``Fault.wait`` runs on the proxy's thread, so nothing needs a lock. A connection
has two streams. A chunk read from a stream's source is judged once, when it is read (``_on_request``,
``_on_reply``, ``take``), and then waits in the stream's queue until it is due and nothing blocks it.
The end of a stream is passed on like its bytes: after them, and not while they are held.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple

Direction = Literal["requests", "replies", "both"]
Match = Callable[[bytes], bool]

_CHUNK = 65536
ONE_BY_ONE = {"fail", "swallow", "cut"}
"""Kinds of faults that choose requests; the others last."""
QUEUE_LIMIT = 4 << 20


class Counters(NamedTuple):
    """What has gone through a proxy so far; bytes as they were delivered."""

    accepted: int
    open: int
    requests: int
    replies: int
    dropped: int
    resets: int


class Fault:
    """A fault in force; ``struck`` counts the chunks (or requests) it has hit."""

    def __init__(
        self,
        cancel: Callable[[Fault], None],
        kind: Literal["hold", "swallow", "cut", "fail", "delay", "blackhole"],
        direction: Direction,
        match: Match | None = None,
        left: int | None = None,
        *,
        hang: bool = False,
        seconds: float = 0.0,
    ) -> None:
        self.kind = kind
        self.direction = direction
        self.match = match
        self.hang = hang
        self.seconds = seconds
        self.struck = 0
        self.left = left
        self._cancel = cancel
        self._changed = threading.Condition()

    def wait(self, timeout: float = 5.0, *, times: int = 1) -> bool:
        """Wait until the fault has struck so many times; return whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self.struck >= times, timeout)

    def cancel(self) -> None:
        """End the fault; what it held goes on its way. Cancelling twice is fine."""
        self._cancel(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.cancel()

    def touches(self, direction: Direction) -> bool:
        """Whether it works in this direction."""
        return self.direction in {"both", direction}

    def chooses(self, request: bytes) -> bool:
        """Whether it is for the connection of this request."""
        return self.left != 0 and (self.match is None or self.match(request))

    def take(self) -> None:
        """Use up one of the requests that a limited fault may still choose."""
        if self.left is not None:
            self.left -= 1

    def strike(self) -> None:
        """Count one hit, and tell those who wait for it."""
        with self._changed:
            self.struck += 1
            self._changed.notify_all()


class Relay:
    """What the connections of one proxy share."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.connections: set[Connection] = set()
        self.faults: list[Fault] = []
        self.accepted = self.requests = self.replies = self.dropped = self.resets = 0

    def count(self) -> Counters:
        """Return the counters as they stand."""
        live = len(self.connections)
        return Counters(self.accepted, live, self.requests, self.replies, self.dropped, self.resets)

    def end(self, fault: Fault) -> None:
        """Take a fault out of force."""
        if fault in self.faults:
            self.faults.remove(fault)
            for connection in [*self.connections]:
                connection.end(fault)

    def reset(self) -> int:
        """Reset every connection, and return how many there were."""
        connections = [*self.connections]
        for connection in connections:
            connection.reset()
        return len(connections)

    def next_due(self) -> float | None:
        """Return when the next delayed chunk is due."""
        streams = (stream for connection in self.connections for stream in connection.streams)
        due = (stream.due for stream in streams if not stream.clogged)
        return min((when for when in due if when is not None), default=None)


class Stream:
    """One direction of a connection: what was read from ``source`` and not yet sent to ``sink``."""

    def __init__(
        self, relay: Relay, direction: Direction, source: socket.socket, sink: socket.socket
    ) -> None:
        self.relay = relay
        self.direction = direction
        self.source = source
        self.sink = sink
        self.queue: deque[tuple[float, bytes]] = deque()
        self.size = 0
        self.ended = False  # the source has said its last byte
        self.aborted = False  # and with a reset
        self.finished = False  # and the sink has been told
        self.clogged = False  # the sink takes nothing now; the selector says when it does
        self.mute = False  # whatever still comes is dropped
        self.caught: set[Fault] = set()  # the matching faults that have chosen this connection
        self.doom: Fault | None = None  # swallows or cuts the next reply
        self.hole: Fault | None = None  # has lost bytes to this fault

    @property
    def due(self) -> float | None:
        """When the next chunk may be sent; None if there is none, or it is held."""
        return None if not self.queue or self.blocked else self.queue[0][0]

    @property
    def blocked(self) -> bool:
        return any(fault.kind in {"hold", "blackhole"} for fault in self.faults())

    @property
    def hungry(self) -> bool:
        return not self.ended and self.size < QUEUE_LIMIT

    def faults(self) -> list[Fault]:
        """The lasting faults that are in force on this stream."""
        return [
            fault
            for fault in self.relay.faults
            if fault.kind in {"hold", "delay", "blackhole"}
            and fault.touches(self.direction)
            and (fault.match is None or fault in self.caught)
        ]

    def take(self, data: bytes) -> None:
        """Put a chunk into the queue, as the lasting faults will have it."""
        faults = self.faults()
        for fault in faults:
            fault.strike()
        self.hole = next((fault for fault in faults if fault.kind == "blackhole"), self.hole)
        if self.mute or self.hole:
            self.relay.dropped += len(data)
            return
        wait = sum(fault.seconds for fault in faults)
        last = self.queue[-1][0] if self.queue else 0.0
        self.queue.append((max(last, time.monotonic() + wait), data))
        self.size += len(data)

    def send(self) -> None:
        """Send what is due, as far as the sink takes it."""
        self.clogged = False
        while not self.clogged and self.due is not None and self.due <= time.monotonic():
            due, data = self.queue.popleft()
            try:
                sent = self.sink.send(data)
            except BlockingIOError:
                sent = 0
            self._count(sent)
            if sent < len(data):
                self.queue.appendleft((due, data[sent:]))
                self.clogged = True

    def _count(self, sent: int) -> None:
        self.size -= sent
        if self.direction == "requests":
            self.relay.requests += sent
        else:
            self.relay.replies += sent


class Connection:
    """A client's connection and ours to the server; lives on the proxy's thread."""

    def __init__(self, relay: Relay, client: socket.socket, server: socket.socket) -> None:
        self.relay = relay
        self.client = client
        self.server = server
        self.connected = False
        self.requests = Stream(relay, "requests", client, server)
        self.replies = Stream(relay, "replies", server, client)
        self.streams = (self.requests, self.replies)
        self.requests.clogged = True  # until connected
        self._interest: dict[socket.socket, int] = {client: 0, server: 0}
        self._listen_to_both()

    def pump(self) -> None:
        """Send what is due, pass on the ends, and say what to wake up for."""
        for stream in self.streams:
            if stream is self.requests and not self.connected:
                continue
            try:
                stream.send()
            except OSError:  # the sink is gone, so nothing more can come from it either
                self._abort(self._opposite(stream))
        self._pass_on_ends()
        if self in self.relay.connections:
            self._listen_to_both()

    def end(self, fault: Fault) -> None:
        """Forget a fault that is over; a stream that lost bytes to it cannot go on."""
        for stream in self.streams:
            stream.caught.discard(fault)
            if stream.doom is fault:
                stream.doom = None
        if any(stream.hole is fault for stream in self.streams):
            self.reset()

    def reset(self) -> None:
        """Close both ends with a reset instead of a farewell."""
        self.relay.resets += 1
        for sock in (self.client, self.server):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """Close both ends."""
        if self in self.relay.connections:
            self.relay.connections.discard(self)
            for sock in (self.client, self.server):
                self._listen_for(sock, 0)
                sock.close()

    def _pass_on_ends(self) -> None:
        for stream in self.streams:
            if stream.ended and not stream.finished and not stream.queue and not self._hangs(stream):
                if stream.aborted:
                    self.reset()
                    return
                stream.finished = True
                with contextlib.suppress(OSError):
                    stream.sink.shutdown(socket.SHUT_WR)
        # Once the client has gone, nobody is left to be kept hanging.
        if self.requests.finished and (self.replies.finished or self.replies.mute):
            self.close()

    def _hangs(self, stream: Stream) -> bool:
        return stream.blocked or stream.hole is not None or (stream is self.requests and not self.connected)

    def _listen_to_both(self) -> None:
        for stream in self.streams:
            sock, other = stream.source, self._opposite(stream)
            if sock is self.server and not self.connected:
                self._listen_for(sock, 0 if stream.ended else selectors.EVENT_WRITE)
                continue
            reading = selectors.EVENT_READ if stream.hungry else 0
            self._listen_for(sock, reading | (selectors.EVENT_WRITE if other.clogged else 0))

    def _listen_for(self, sock: socket.socket, events: int) -> None:
        if events == self._interest[sock]:
            return
        if not events:
            self.relay.selector.unregister(sock)
        elif self._interest[sock]:
            self.relay.selector.modify(sock, events, self._handler(sock))
        else:
            self.relay.selector.register(sock, events, self._handler(sock))
        self._interest[sock] = events

    def _handler(self, sock: socket.socket) -> Callable[[int], None]:
        stream = self.requests if sock is self.client else self.replies
        return lambda mask: self._on_ready(stream, mask)

    def _on_ready(self, stream: Stream, mask: int) -> None:
        if self not in self.relay.connections:  # reset by another event of the same round
            return
        if stream is self.replies and not self.connected:
            self._on_connect()
        elif mask & selectors.EVENT_READ:
            self._read(stream)

    def _on_connect(self) -> None:
        if self.server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._abort(self.replies)
        else:
            self.connected = True

    def _read(self, stream: Stream) -> None:
        try:
            data = stream.source.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self._abort(stream)
            return
        if not data:
            stream.ended = True
        elif stream is self.requests:
            self._on_request(data)
        else:
            self._on_reply(data)

    def _on_request(self, data: bytes) -> None:
        for fault in [*self.relay.faults]:
            if (fault.match is None and fault.kind not in ONE_BY_ONE) or not fault.chooses(data):
                continue
            if fault.kind == "fail":
                self._spend(fault)
                self.relay.dropped += len(data)
                self.reset()
                return
            if fault.kind not in ONE_BY_ONE:
                self.requests.caught.add(fault)
                self.replies.caught.add(fault)
            elif self.replies.doom is None:
                fault.take()
                self.replies.doom = fault
        self.requests.take(data)

    def _on_reply(self, data: bytes) -> None:
        fault, self.replies.doom = self.replies.doom, None
        if fault is None:
            self.replies.take(data)
            return
        if fault.kind == "cut":
            half = len(data) // 2
            self.replies.take(data[:half])
            data = data[half:]
        self.relay.dropped += len(data)
        if fault.kind == "cut":
            self._abort(self.replies)  # the half arrives first
            self._retire(fault)
        elif fault.hang:
            self.replies.mute, self.replies.hole = True, fault
            fault.strike()
        else:
            self.reset()
            self._retire(fault)

    def _spend(self, fault: Fault) -> None:
        fault.take()
        self._retire(fault)

    def _retire(self, fault: Fault) -> None:
        """Count a strike, and drop the fault once it has no more to do."""
        if fault.left == 0 and fault in self.relay.faults and not self._is_doom(fault):
            self.relay.faults.remove(fault)
        fault.strike()

    def _is_doom(self, fault: Fault) -> bool:
        return any(connection.replies.doom is fault for connection in self.relay.connections)

    def _abort(self, stream: Stream) -> None:
        """The source is gone; what it said before still arrives, what it would be told does not."""
        stream.ended = stream.aborted = True
        opposite = self._opposite(stream)
        opposite.mute = True
        opposite.queue.clear()

    def _opposite(self, stream: Stream) -> Stream:
        return self.replies if stream is self.requests else self.requests
