"""A connection: kazoo's, with its protocol and its reconnecting, and with reading and writing of our own.

kazoo makes a selector for each wait and waits before each piece that it reads or writes: some thirty system
calls for one question. Here a wait is one `poll`, whatever has arrived is read at once, and all that is to be
asked goes out together.

kazoo notices a silent member by its own pings, after a third of the session, and connects for as long as a
session lasts. Here a member that owes an answer for a second or two is left for another.

kazoo hands what it hears to two more threads. Here it is told on the connection's own thread, in the order in
which the server said it: whoever has an answer knows of all deletions before it.
"""

from __future__ import annotations

import logging
import math
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from kazoo.exceptions import AuthFailedError, ConnectionDropped, KazooException  # type: ignore[import-untyped]
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler  # type: ignore[import-untyped]
from kazoo.protocol.connection import (  # type: ignore[import-untyped]
    AUTH_XID,
    CLOSE_RESPONSE,
    PING_XID,
    ConnectionHandler,
)
from kazoo.protocol.serialization import Auth, Connect, PingInstance  # type: ignore[import-untyped]

from holdfast.runtime import clock

__all__ = ["Connection", "Handler", "NotZooKeeper", "Owner", "log"]

CONNECT = 1.5
"""Seconds that one member has to accept a connection, to answer the greeting, and to take or send a piece."""
LOOK = 1.0
"""The connection's thread looks around at least this often."""
SILENCE = 2.0
"""Seconds after which a member that owes an answer is left; a part of the session if that is less."""
LONGEST_GREETING = 4096
PIECE = 65536
"""Bytes that are read at a time."""
TOGETHER = 128
"""Requests that go out together, at most: answers are to be read in between."""
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
LENGTH = struct.Struct(">i")
LONGEST_XID = 2**31 - 1


class Quiet(logging.LoggerAdapter[logging.Logger]):
    """Whatever kazoo has to say is for whoever looks for it: what matters, holdfast says itself."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self.logger.isEnabledFor(logging.DEBUG):
            super().log(min(level, logging.DEBUG), msg, *args, **kwargs)


log = Quiet(logging.getLogger("holdfast.zookeeper"), {})


class NotZooKeeper(ConnectionDropped):  # type: ignore[misc]
    """What answers is something else."""


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, without those that it would hand events to."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._context = context
        self.trouble: Exception | None = None
        """Why there is no connection."""
        self.source: socket.socket | None = None
        """The connection to the member."""
        self.buffer = bytearray()
        """What has arrived from it and was not looked at."""

    def start(self) -> None:
        """Start nothing: `running` stays false, and callbacks run where they are called."""

    def stop(self) -> None:
        """Stop nothing."""

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> threading.Thread:
        thread = threading.Thread(
            target=func, args=args, kwargs=kwargs, name="holdfast-zookeeper", daemon=True
        )
        thread.start()
        return thread

    def create_connection(self, address: tuple[str, int], hostname: str, **_: Any) -> socket.socket:
        """Connect; kazoo's own would leave a socket behind where TLS fails."""
        self.buffer.clear()
        try:
            sock = socket.create_connection(address, CONNECT)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._context is not None:
                    sock = self._context.wrap_socket(sock, server_hostname=hostname)
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            self.trouble = error
            raise
        self.source = sock
        return sock

    def select(
        self, reading: Sequence[Any], writing: Sequence[Any], _: Sequence[Any], timeout: float
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait until one of these is ready; what was read already is ready."""
        poll = select.poll()
        for sock in reading:
            poll.register(sock, select.POLLIN)
        for sock in writing:
            poll.register(sock, select.POLLOUT)
        unread = [sock for sock in reading if sock is self.source and self.is_unread()]
        found = {fd for fd, _ in poll.poll(0 if unread else math.ceil(timeout * 1000))}
        readable = [sock for sock in reading if sock.fileno() in found or sock in unread]
        return readable, [sock for sock in writing if sock.fileno() in found], []

    def is_unread(self) -> bool:
        """Whether something has arrived that `source` will not be ready for."""
        return bool(self.buffer) or (isinstance(self.source, ssl.SSLSocket) and self.source.pending() > 0)

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)


class Owner(Protocol):
    """Whose connection it is: what its thread tells."""

    give_up: float
    over: threading.Event
    is_idle: Callable[[], bool]

    def connected(self, sent: float) -> None:
        """A member took the session over."""

    def failed(self, error: Exception) -> None:
        """It cannot go on."""

    def prove(self) -> None:
        """There is time to."""


class Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which gives up on the silent, and is silent itself when told so."""

    session: Owner
    agreed = 0.0
    """The length of the session that the server agreed to."""
    _asked: float | None = None
    """Since when an answer is owed."""
    _said = 0.0
    """When something was last said."""
    _greeting = False
    _xid: int

    def zk_loop(self) -> None:
        try:
            super().zk_loop()
        except Exception as error:  # noqa: BLE001 (kazoo lets through whatever a driver of TLS or SASL raises)
            known = isinstance(error, KazooException | OSError)
            self.session.failed(error if known else KazooException(f"{type(error).__name__}: {error}"))
        finally:
            with suppress(Exception):
                self.close()
            self.session.over.set()

    def _connect(self, host: Any, hostip: Any, port: Any) -> tuple[float, float]:
        sent = clock.now()
        self._greeting = True
        try:
            read, connect = super()._connect(host, hostip, port)
        except (ConnectionDropped, AuthFailedError, KazooTimeoutError) as error:
            if not isinstance(self.handler.trouble, ssl.SSLError | NotZooKeeper):
                self.handler.trouble = error.__cause__ or error.__context__ or error
            elif len(self.client.hosts) == 1:
                self.session.failed(self.handler.trouble)
            raise
        finally:
            self._greeting = False
        self.handler.trouble = None
        self.agreed = read * 1.5 / 1000.0
        self._asked = None
        self._said = clock.now()
        self.session.connected(sent)
        return min(read, LOOK * 2000.0), connect

    def _invoke(self, timeout: float, request: Any, xid: Any = None) -> Any:
        if isinstance(request, Connect):
            timeout = CONNECT
        return super()._invoke(timeout, request, xid)

    def _read(self, length: int, timeout: float) -> bytes:
        if self._greeting and not 0 <= length <= LONGEST_GREETING:
            self.handler.trouble = NotZooKeeper("it does not speak ZooKeeper's protocol")
            raise self.handler.trouble
        buffer = self.handler.buffer
        with self._socket_error_handling():
            while len(buffer) < length:
                if not self._fill():
                    self._await_socket(select.POLLIN)
        found = bytes(buffer[:length])
        del buffer[:length]
        return found

    def _fill(self) -> bool:
        """Take what has arrived; say whether there was something."""
        try:
            piece = self._socket.recv(PIECE)
        except WOULD_BLOCK:
            return False
        if not piece:
            raise ConnectionDropped("the connection was closed")
        self.handler.buffer += piece
        return True

    def _write(self, msg: bytes | bytearray, timeout: float) -> None:
        left = memoryview(msg)
        with self._socket_error_handling():
            while left:
                try:
                    left = left[self._socket.send(left) :]
                except WOULD_BLOCK:
                    self._await_socket(select.POLLOUT)

    def _await_socket(self, event: int) -> None:
        """Wait until a piece can be read, or written."""
        poll = select.poll()
        poll.register(self._socket, event)
        if not poll.poll(CONNECT * 1000):
            raise self.handler.timeout_exception("no answer in time")

    def _read_socket(self, read_timeout: float) -> Any:
        with self._socket_error_handling():
            if not self.handler.buffer and not self._fill():
                return None  # TLS has something to say to itself
        response = super()._read_socket(read_timeout)
        while response is not CLOSE_RESPONSE and self._is_complete():
            response = super()._read_socket(read_timeout)
        self._asked = clock.now() if self.client._pending else None
        return response

    def _is_complete(self) -> bool:
        """Whether the next answer has arrived as a whole."""
        buffer = self.handler.buffer
        return len(buffer) >= LENGTH.size and len(buffer) - LENGTH.size >= LENGTH.unpack_from(buffer)[0]

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """Ask whatever is to be asked: there is a byte to read for each request that was queued."""
        self._look()
        out = bytearray()
        for _ in self._read_sock.recv(TOGETHER):
            try:
                request, answer = self.client._queue.popleft()
            except IndexError:
                break  # they were given up when the connection was lost
            xid = AUTH_XID if request.type == Auth.type else self._next_xid()
            body = LENGTH.pack(xid) + LENGTH.pack(request.type) + request.serialize()
            out += LENGTH.pack(len(body)) + body
            self.client._pending.append((request, answer, xid))
        if out:
            self._write(out, connect_timeout)
            self._note()
        self.session.prove()

    def _next_xid(self) -> int:
        self._xid = self._xid % LONGEST_XID + 1
        return self._xid

    def _send_ping(self, connect_timeout: float) -> None:
        """Called when nothing was sent for a while: look around, and perhaps ping."""
        self._look()
        self.session.prove()
        if clock.now() - self._said >= self.agreed / 3 - LOOK and self.session.is_idle():
            self._submit(PingInstance, connect_timeout, PING_XID)
            self._note()

    def _look(self) -> None:
        now = clock.now()
        parts = 3 if len(self.client.hosts) > 1 else 1.5  # who knows of one member has nowhere else to go
        if self._asked is not None and now - self._asked > min(SILENCE, self.agreed / parts):
            raise ConnectionDropped("no answer for too long")
        if now > self.session.give_up:
            raise ConnectionDropped("closed")

    def _note(self) -> None:
        self._said = clock.now()
        if self._asked is None:
            self._asked = self._said
