"""A TCP proxy on the loopback interface that can misbehave on command.

One thread runs one ``select`` loop that owns every socket; a command is a function sent to that
thread, so nothing is locked and a command has taken effect when it returns. Each connection has
two streams, *requests* (client to server) and *replies* (server to client). A chunk read from
one end goes through the faults in force and then into the queue of the other end.

A fault answers with a ``Fault``: ``wait()`` until it has struck, ``cancel()`` it, or use it in a
``with`` block. ``match`` is a predicate on the bytes of a *request* (one chunk as it was read, which on
loopback is one small request): the fault then strikes only that request or the replies that follow
it on its connection. So ``proxy.fail(match=lambda data: b"RENEW" in data)`` fails renewals only.

hold        bytes wait, in order, until the fault is cancelled
swallow     the request arrives, its reply does not; then the connection is reset, or hangs
cut         the request arrives, and the first half of its reply; then the connection is reset
fail        the request does not arrive; its connection is reset
delay       bytes arrive later, in order
blackhole   bytes vanish; connections that lost some are reset when it ends, since a TCP stream
            never goes on with a hole in it
refuse      nobody is listening
reset       every connection is reset, once

Memory is bounded: a stream with 4 MiB in its queue is not read until it drains.
``close`` (or the end of the ``with`` block) ends the thread and closes every socket; a forked child
closes its copies at once, so a reset by the parent is a reset.

Not promised: what happens below TCP. A blackhole still completes the handshake of a new connection,
and a reset cannot reach a client that the kernel already gave the data to.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Literal, TypeVar

from fencelock.testing.relay import Connection, Counters, Direction, Fault, Match, Relay

_COMMAND_TIMEOUT = 10.0
_R = TypeVar("_R")


class TCPProxy:
    """A proxy in front of ``upstream_host:upstream_port``; connect to ``host``, ``port`` instead.

    Use it as a context manager, or ``start()`` and ``close()`` it.
    """

    def __init__(
        self, upstream_host: str, upstream_port: int, *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self._upstream = socket.getaddrinfo(upstream_host, upstream_port, type=socket.SOCK_STREAM)[0]
        # Bound but never listening: it keeps the port ours, and connecting to it refused, while
        # the listener is closed.
        self._anchor = _bound(host, port)
        self.host: str = host
        self.port: int = self._anchor.getsockname()[1]
        self._listener: socket.socket | None = None
        self._relay = Relay()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._commands: deque[tuple[Callable[[], object], Future[object]]] = deque()
        self._thread: threading.Thread | None = None
        self._stopping = False

    @property
    def address(self) -> tuple[str, int]:
        """Where to connect to."""
        return self.host, self.port

    def start(self) -> TCPProxy:
        """Listen, and serve on a thread of its own."""
        if self._thread is None and not self._stopping:
            self._relay.selector.register(self._wake_in, selectors.EVENT_READ, self._drain_wakeups)
            self._listen()
            self._thread = threading.Thread(target=self._run, name=f"proxy-{self.port}", daemon=True)
            _live.add(self)
            self._thread.start()
        return self

    def close(self) -> None:
        """End the thread and close every socket; closing twice is fine."""
        self._stopping = True
        if self._thread is not None:
            self._wake()
            self._thread.join(_COMMAND_TIMEOUT)
            self._thread = None
        self._close_sockets()

    def __enter__(self) -> TCPProxy:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -------------------------------------------------------------------------------- commands

    def hold(self, direction: Direction = "replies", *, match: Match | None = None) -> Fault:
        """Hold back bytes, in order, until ``let_go()`` or ``cancel()``.

        With ``match``, only on connections that carried such a request, from that request on (or
        from its reply on).
        """
        return self._add(Fault(self._cancel, "hold", direction, match))

    def let_go(self) -> None:
        """End every hold: what was held arrives."""
        self._call(self._release_holds)

    def swallow(
        self, n: int = 1, *, then: Literal["reset", "hang"] = "reset", match: Match | None = None
    ) -> Fault:
        """Let the next ``n`` (matching) requests reach the server, but not their replies to the client.

        When the reply has come, the connection is reset, or left open without another byte.
        """
        return self._add(Fault(self._cancel, "swallow", "replies", match, n, hang=then == "hang"))

    def cut(self, n: int = 1, *, match: Match | None = None) -> Fault:
        """Let the client have the first half of the replies to the next ``n`` (matching) requests."""
        return self._add(Fault(self._cancel, "cut", "replies", match, n))

    def fail(self, n: int | None = None, *, match: Match | None = None) -> Fault:
        """Reset the connection on each (matching) request, before the server has seen it."""
        return self._add(Fault(self._cancel, "fail", "requests", match, n))

    def delay(self, seconds: float, direction: Direction = "both", *, match: Match | None = None) -> Fault:
        """Deliver bytes so much later, in order; several delays add up."""
        return self._add(Fault(self._cancel, "delay", direction, match, seconds=seconds))

    def blackhole(self, direction: Direction = "both") -> Fault:
        """Make all bytes vanish, on old and new connections."""
        return self._add(Fault(self._cancel, "blackhole", direction))

    def reset(self) -> int:
        """Reset every connection now; return how many there were."""
        return self._call(self._relay.reset)

    def refuse(self) -> None:
        """Refuse new connections from now on."""
        self._call(self._deafen)

    def accept(self) -> None:
        """Take new connections again."""
        self._call(self._listen)

    def heal(self) -> None:
        """End every fault."""
        self._call(self._heal)

    @property
    def counters(self) -> Counters:
        """What has gone through so far."""
        return self._call(self._relay.count)

    def _add(self, fault: Fault) -> Fault:
        self._call(lambda: self._relay.faults.append(fault))
        return fault

    def _cancel(self, fault: Fault) -> None:
        if self._thread is not None:
            self._call(lambda: self._relay.end(fault))

    def _call(self, command: Callable[[], _R]) -> _R:
        """Run a command on the proxy's thread and return its result."""
        if self._thread is None or self._stopping:
            raise RuntimeError("the proxy is not running")
        result: Future[object] = Future()
        self._commands.append((command, result))
        self._wake()
        return result.result(_COMMAND_TIMEOUT)  # type: ignore[return-value]

    # ------------------------------------------------------------------------- the proxy's thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                for key, mask in self._relay.selector.select(self._patience()):
                    key.data(mask)
                self._obey()
                for connection in [*self._relay.connections]:
                    connection.pump()
        finally:  # also when a predicate of the user's raised
            self._stopping = True
            for _, result in self._commands:
                result.set_exception(RuntimeError("the proxy was closed"))

    def _obey(self) -> None:
        while self._commands:
            command, result = self._commands.popleft()
            try:
                result.set_result(command())
            except Exception as error:
                result.set_exception(error)

    def _patience(self) -> float | None:
        first = self._relay.next_due()
        return None if first is None else max(0.0, first - time.monotonic())

    def _wake(self) -> None:
        # Full means that it will wake anyway; closed, that it has stopped.
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_out.send(b"!")

    def _drain_wakeups(self, _mask: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_in.recv(4096)

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = _bound(self.host, self.port)
            self._listener.listen(128)
            self._listener.setblocking(False)
            self._relay.selector.register(self._listener, selectors.EVENT_READ, self._accept_one)

    def _deafen(self) -> None:
        if self._listener is not None:
            self._relay.selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _accept_one(self, _mask: int) -> None:
        if self._listener is None:
            return
        try:
            client, _ = self._listener.accept()
        except OSError:  # gone again before we took it
            return
        self._relay.accepted += 1
        family, kind, protocol, _, address = self._upstream
        server = socket.socket(family, kind, protocol)
        for sock in (client, server):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.connect_ex(address)  # finished, or failed, when it turns writable
        self._relay.connections.add(Connection(self._relay, client, server))

    def _release_holds(self) -> None:
        for fault in [*self._relay.faults]:
            if fault.kind == "hold":
                self._relay.end(fault)

    def _heal(self) -> None:
        for fault in [*self._relay.faults]:
            self._relay.end(fault)
        self._listen()

    def _close_sockets(self) -> None:
        # The selector is only closed, nothing is unregistered: in a forked child its kernel side
        # is still the parent's.
        self._relay.selector.close()
        for connection in self._relay.connections:
            connection.client.close()
            connection.server.close()
        self._relay.connections.clear()
        for sock in (self._listener, self._anchor, self._wake_in, self._wake_out):
            if sock is not None:
                sock.close()


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


_live: weakref.WeakSet[TCPProxy] = weakref.WeakSet()


def _forget_in_child() -> None:
    for proxy in [*_live]:
        proxy._thread = None
        proxy._stopping = True
        proxy._close_sockets()
    _live.clear()


os.register_at_fork(after_in_child=_forget_in_child)
