"""How bytes come and go on a connection of kazoo's, and who is told what they say.

Whatever has arrived is read at once. What is asked often is answered here, the rest kazoo's way.
"""

from __future__ import annotations

import select
import ssl
import struct
from typing import Any

from kazoo.exceptions import AuthFailedError, ConnectionDropped, ConnectionLoss  # type: ignore[import-untyped]
from kazoo.protocol.connection import (  # type: ignore[import-untyped]
    AUTH_XID,
    CLOSE_RESPONSE,
    WATCH_XID,
    ConnectionHandler,
)
from kazoo.protocol.serialization import Create2, Delete, ReplyHeader, Sync  # type: ignore[import-untyped]

from fencelock.backends.zookeeper.answers import Children
from fencelock.backends.zookeeper.handlers import CONNECT, NotZooKeeper
from fencelock.runtime import clock

__all__ = ["LENGTH", "PIECE", "Hearing"]

LONGEST_GREETING = 4096
PIECE = 65536
"""Bytes that are read at a time."""
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
LENGTH = struct.Struct(">i")
REPLY = struct.Struct(">iqi")
PLAIN = (Children, Create2, Delete, Sync)
"""Requests that are asked often, and of which there is nothing to remember unless somebody watches."""


class Hearing(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, with reading and writing of our own."""

    _greeting = False
    """Whether the member has yet to greet."""
    _heard = 0.0
    """When something was last heard."""

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
        while left:
            try:
                left = left[self._socket.send(left) :]
            except WOULD_BLOCK:
                self._await_socket(select.POLLOUT)
            except OSError as error:
                raise ConnectionDropped(error.strerror or str(error)) from error

    def _await_socket(self, event: int) -> None:
        """Wait until a piece can be read, or written."""
        poll = select.poll()
        poll.register(self._socket, event)
        if not poll.poll(CONNECT * 1000):
            raise self.handler.timeout_exception("no answer in time")

    def _read_socket(self, read_timeout: float) -> Any:
        """Read what has arrived, and answer the requests that it is for."""
        try:
            if not self.handler.buffer and not self._fill():
                return None  # TLS has something to say to itself
            response = self._hear()
            while response is not CLOSE_RESPONSE and self._is_complete():
                response = self._hear()
        except OSError as error:
            raise ConnectionDropped(error.strerror or str(error)) from error
        self._heard = clock.now()
        return response

    def _hear(self) -> Any:
        """Take one message, when all of it is there, and do what is to be done about it."""
        buffer = self.handler.buffer
        while not self._is_complete():
            if not self._fill():
                self._await_socket(select.POLLIN)
        end = LENGTH.size + LENGTH.unpack_from(buffer)[0]
        if end < LENGTH.size + REPLY.size:
            raise ConnectionDropped("it says what cannot be read")
        message = bytes(buffer[LENGTH.size : end])
        del buffer[:end]
        xid, zxid, failure = REPLY.unpack_from(message)
        if xid == WATCH_XID:
            self._read_watch_event(message, REPLY.size)
        elif xid > 0:
            return self._answer(ReplyHeader(xid, zxid, failure), message)
        elif xid == AUTH_XID and failure:
            raise AuthFailedError
        return None

    def _answer(self, header: ReplyHeader, message: bytes) -> Any:
        """Answer the oldest request. If that fails, its caller is told so."""
        pending = self.client._pending
        owed = pending[0][1] if pending else None
        try:
            if not header.err and self._hand_over(header, message):
                return None
            return self._read_response(header, message, REPLY.size)
        except Exception:
            if owed is not None:
                owed.set_exception(ConnectionLoss())  # kazoo has taken the request out of those it will tell
            raise

    def _hand_over(self, header: ReplyHeader, message: bytes) -> bool:
        """Answer a request of which kazoo has nothing to remember; say whether it was one."""
        pending = self.client._pending
        if not pending:
            return False
        request, answer, xid = pending[0]
        if xid != header.xid or not isinstance(request, PLAIN) or getattr(request, "watcher", None):
            return False
        if header.zxid > 0:
            self.client.last_zxid = header.zxid
        try:
            answer.set(request.deserialize(message, REPLY.size))
        except Exception as error:  # noqa: BLE001 (as kazoo does)
            answer.set_exception(error)
        pending.popleft()
        return True

    def _is_complete(self) -> bool:
        """Whether the next answer has arrived as a whole."""
        buffer = self.handler.buffer
        return len(buffer) >= LENGTH.size and len(buffer) - LENGTH.size >= LENGTH.unpack_from(buffer)[0]
