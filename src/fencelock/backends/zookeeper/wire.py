"""A connection: kazoo's, with its protocol and its reconnecting, and with reading and writing of our own.

kazoo makes a selector for each wait and waits before each piece that it reads or writes: some thirty system
calls for one question. Here a wait is one `poll`, whatever has arrived is read at once, and all that is to be
asked goes out together.

kazoo notices a silent member by its own pings, after a third of the session, and connects for as long as a
session lasts. Here a member that owes an answer for a second or two is left for another.

kazoo hands what it hears to two more threads. Here the connection's thread tells it, in the order in which
the server said it: a caller that has its answer knows of all deletions before it. That thread alone reads and
writes. Callers queue what they ask and wake it, without a lock that an interrupt (Ctrl-C) could leave taken.
"""

from __future__ import annotations

import math
import ssl
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from socket import MSG_DONTWAIT
from typing import Any, Protocol

from kazoo.exceptions import (  # type: ignore[import-untyped]
    AuthFailedError,
    ConnectionClosedError,
    ConnectionDropped,
    KazooException,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]
from kazoo.protocol.connection import AUTH_XID, PING_XID  # type: ignore[import-untyped]
from kazoo.protocol.serialization import Auth, Connect, PingInstance  # type: ignore[import-untyped]
from kazoo.protocol.states import KeeperState  # type: ignore[import-untyped]

from fencelock.backends.bugs import BUGS
from fencelock.backends.zookeeper.handlers import CONNECT, Flag, NotZooKeeper
from fencelock.backends.zookeeper.hearing import LENGTH, PIECE, Hearing
from fencelock.runtime import clock

__all__ = ["Connection", "Owner"]

LOOK = 1.0
"""The connection's thread looks around at least this often."""
SILENCE = 2.0
"""Seconds after which a member that owes an answer is left; a part of the session if that is less."""
TOGETHER = 128
"""Requests that go out together, at most: answers are to be read in between."""
REQUEST = struct.Struct(">ii")
Asked = tuple[Any, Any]
"""A request of kazoo's, and what its answer will be found in."""
LONGEST_XID = 2**31 - 1
OVER = {
    KeeperState.AUTH_FAILED: AuthFailedError,
    KeeperState.CLOSED: ConnectionClosedError,
    KeeperState.EXPIRED_SESSION: SessionExpiredError,
}
"""States from which there is no way back, and what is said to whoever asks in them."""


class Owner(Protocol):
    """Whose connection it is: what its thread tells."""

    give_up: float
    over: Flag
    is_idle: Callable[[], bool]

    def connected(self, sent: float) -> None:
        """A member took the session over."""

    def failed(self, error: Exception) -> None:
        """It cannot go on."""

    def prove(self) -> None:
        """There is time to."""


class Connection(Hearing):
    """kazoo's connection, which gives up on the silent, and is silent itself when told so."""

    session: Owner
    agreed = 0.0
    """The length of the session that the server agreed to."""
    _asked: float | None = None
    """When something was asked while no answer was owed."""
    _said = 0.0
    """When something was last said."""
    _pinged = 0.0
    _xid: int

    def zk_loop(self) -> None:
        try:
            super().zk_loop()
        except Exception as error:  # noqa: BLE001 (kazoo lets through whatever a driver of TLS or SASL raises)
            known = isinstance(error, (KazooException, OSError, *BUGS))
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
        self.agreed = round(read * 1.5 / 1000.0, 3)
        self._asked = None
        self._pinged = 0.0
        self._heard = self._said = clock.now()
        self.session.connected(sent)
        return min(read, LOOK * 2000.0), connect

    def _invoke(self, timeout: float, request: Any, xid: Any = None) -> Any:
        if isinstance(request, Connect):
            timeout = CONNECT
        return super()._invoke(timeout, request, xid)

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """Send what is queued: this thread was woken for it."""
        self._look()
        self._read_sock.recv(PIECE)
        self._send_queued()
        self.session.prove()

    def _send_queued(self) -> None:
        """Send what is queued, together; this thread wakes itself for what is too much."""
        queue, pending = self.client._queue, self.client._pending
        if queue and not pending:
            self._asked = clock.now()
        out = bytearray()
        for _ in range(min(len(queue), TOGETHER)):
            request, answer = queue.popleft()
            xid = AUTH_XID if request.type == Auth.type else self._next_xid()
            pending.append((request, answer, xid))
            body = REQUEST.pack(xid, request.type) + request.serialize()
            out += LENGTH.pack(len(body)) + body
        if out:
            self._write(out, CONNECT)
            self._said = clock.now()
        if queue:
            self.wake()

    def ask(self, asked: Sequence[Asked]) -> None:
        """Ask these together, from any thread; the answers are told of a failure.

        The connection's thread asks them when there is a connection, unless there never will be one.
        """
        self.client._queue.extend(asked)
        self.wake()
        failure = OVER.get(self.client._state)
        if failure is not None:
            for _, answer in asked:
                answer.set_exception(failure())

    def wake(self) -> None:
        """Let the connection's thread look at what is queued.

        Never waits: a socket that is full wakes it already. The thread calls this too, and only it reads.
        """
        with suppress(OSError, AttributeError):
            self._write_sock.send(b"\0", MSG_DONTWAIT)

    def _next_xid(self) -> int:
        self._xid = self._xid % LONGEST_XID + 1
        return self._xid

    def _send_ping(self, connect_timeout: float) -> None:
        """Called when nothing was sent for a while: look around, and perhaps ping."""
        self._look()
        self._send_queued()  # a caller may have been interrupted before it woke this thread
        self.session.prove()
        if clock.now() - self._said >= self.agreed / 3 - LOOK and self.session.is_idle():
            self._submit(PingInstance, connect_timeout, PING_XID)
            self._said = self._pinged = clock.now()

    def _look(self) -> None:
        now = clock.now()
        parts = 3 if len(self.client.hosts) > 1 else 1.5  # who knows of one member has nowhere else to go
        if now - self._owed_since() > min(SILENCE, self.agreed / parts):
            raise ConnectionDropped("no answer for too long")
        if now > self.session.give_up:
            raise ConnectionDropped("closed")

    def _owed_since(self) -> float:
        """Since when the member has said nothing though it owes an answer."""
        if self.client._pending:
            return max(self._asked or 0.0, self._heard)
        return self._pinged if self._pinged > self._heard else math.inf
