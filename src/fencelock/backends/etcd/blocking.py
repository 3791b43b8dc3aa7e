"""Connections for threads: a few, each used by one thread at a time, and one more to watch on.

A connection on which a call was interrupted is read until its answer has come, and then closed: whatever
undoes the call comes after it.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from math import ceil, inf

from fencelock.backends import watchdog
from fencelock.backends.etcd.address import Address
from fencelock.backends.etcd.failures import closed, unreachable
from fencelock.backends.etcd.protocol import Answer, Conversation, Disconnected, Status
from fencelock.backends.etcd.wire import ATTEMPT, CONNECT, Wire
from fencelock.runtime import clock, locks
from fencelock.runtime.threads import join, launch

__all__ = ["BlockingWire"]

READ = 1 << 16
IDLE = 8
"""Connections that are kept for later."""


class Link:
    """One connection."""

    def __init__(self, address: Address, endpoint: str, timeout: float) -> None:
        host, _, port = endpoint.rpartition(":")
        host = host.strip("[]")
        sock = socket.create_connection((host, int(port)), timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = address.context()
            if context is not None:
                sock = context.wrap_socket(sock, server_hostname=address.server_name or host)
            sock.settimeout(None)
            # Without TLS: `settimeout` would cost a poll for each write and read.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", ceil(ATTEMPT), 0))
        except BaseException:
            sock.close()
            raise
        self.endpoint = endpoint
        self.until = inf
        self.is_asked = False
        """A call is under way, and nothing of its answer is lost."""
        self._number = 0
        self.talk = Conversation(endpoint, "https" if address.tls else "http")
        self._sock = sock
        self._is_tls = context is not None
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        watchdog.watch(self)

    def flush(self, until: float) -> None:
        """Write what is to be written."""
        data = self.talk.outgoing()
        if data:
            if self._is_tls:
                self._sock.settimeout(max(0.001, until - clock.now()))
            self._sock.sendall(data)

    def read(self, until: float) -> list[Answer]:
        """Return what has come; raises `TimeoutError` if nothing comes in time."""
        if until != inf and not self._pending():
            left = until - clock.now()
            if left <= 0 or not self._poll.poll(left * 1000):
                raise TimeoutError("no answer in time")
        asked, self.is_asked = self.is_asked, False  # interrupted from here on, nothing can be made of it
        answers = self.talk.feed(self._sock.recv(READ))
        self.is_asked = asked and not any(answer.ended for answer in answers)
        return answers

    def _pending(self) -> bool:
        return isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0

    def call(self, path: str, metadata: tuple[tuple[str, str], ...], body: bytes, until: float) -> bytes:
        """Make a call, and return the one message of its answer."""
        self.until = until
        self._number = self.talk.begin(path, metadata)
        self.talk.send(self._number, body, last=True)
        self.is_asked = True  # an interrupt may come when it is sent, and nobody has said so yet
        self.flush(until)
        return self.finish(until)

    def finish(self, until: float) -> bytes:
        """Wait for the answer to the call that was made."""
        message: bytes | None = None
        while True:
            for answer in self.read(until):
                if answer.call != self._number:
                    continue
                if answer.messages:
                    message = answer.messages[0]
                if answer.ended is not None:
                    self.until = inf
                    if answer.ended.code != 0:
                        raise answer.ended
                    if message is None:
                        raise Disconnected("it answered with nothing")
                    return message
            # What the connection itself has to say (that it is there) goes with the next call: a write by
            # itself only wakes the server once more.
            if self.talk.is_urgent:
                self.flush(until)

    def wait(self) -> bool:
        """Wait until something has come, for as long as it takes."""
        return self._pending() or bool(self._poll.poll())

    def is_usable(self) -> bool:
        """Take in what has come since the last call; say whether another may be made."""
        try:
            while self._pending() or self._poll.poll(0):
                self.talk.feed(self._sock.recv(READ))
        except (Disconnected, OSError):
            return False
        return not self.talk.is_leaving

    def hang_up(self) -> None:
        """Let a read that is under way end at once."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        watchdog.forget(self)
        self._sock.close()

    def drop(self) -> None:
        """In a forked child: close the copy of the socket, without a goodbye."""
        with suppress(OSError):
            socket.socket.close(self._sock)


class ThreadStream:
    """A stream that a thread of its own reads."""

    def __init__(
        self,
        link: Link,
        path: str,
        metadata: tuple[tuple[str, str], ...],
        heard: Callable[[bytes | None], None],
    ) -> None:
        self._link = link
        self._heard = heard
        self._turn = locks.rlock()
        self._sender = 0
        """The thread that is in the middle of a message."""
        self._number = link.talk.begin(path, metadata)
        self._thread = threading.Thread(target=self._read, name="fencelock-etcd-watch", daemon=True)
        launch(self._thread)

    def send(self, message: bytes) -> None:
        me = threading.get_ident()
        if self._sender == me:  # a signal handler in the middle of another message
            self._link.hang_up()
            return
        with self._turn:
            try:
                self._sender = me
                self._link.talk.send(self._number, message, last=False)
                self._link.flush(clock.now() + CONNECT)
            except (Disconnected, OSError):
                self._link.hang_up()
            finally:
                self._sender = 0

    def _read(self) -> None:
        link = self._link
        try:
            while link.wait():
                with self._turn:
                    answers = link.read(inf)
                    link.flush(clock.now() + CONNECT)
                for answer in answers:
                    if answer.call == self._number:
                        for message in answer.messages:
                            self._heard(message)
                        if answer.ended is not None:
                            return
        except (Disconnected, OSError):
            return
        finally:
            link.close()
            self._heard(None)

    def end(self) -> None:
        self._link.hang_up()
        # Not for a signal handler in the middle of a message: the reader may wait for that to be whole.
        if self._thread is not threading.current_thread() and self._sender != threading.get_ident():
            join(self._thread, 1.0)


class BlockingWire(Wire):
    """Calls on the caller's thread."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._idle: list[Link] = []
        self._interrupted: list[Link] = []
        self._links: weakref.WeakSet[Link] = weakref.WeakSet()

    async def _call(self, turn: int, path: str, body: bytes, deadline: float) -> bytes:
        until = min(deadline, clock.now() + ATTEMPT)
        link = self._take(turn, until)
        try:
            answer = link.call(path, self._metadata, body, until)
        except Status:
            self._give(link)
            raise
        except Exception:
            link.close()
            raise
        except BaseException:
            if link.is_asked:
                self._interrupted.append(link)
            else:
                link.close()
            raise
        self._give(link)
        return answer

    async def settle(self, deadline: float) -> None:
        while self._interrupted:
            link = self._interrupted.pop()
            with suppress(Status, Disconnected, OSError):
                link.finish(min(deadline, clock.now() + ATTEMPT))
            link.close()

    def _take(self, turn: int, until: float) -> Link:
        endpoint = self.address.endpoints[turn]
        while self._idle:
            try:
                link = self._idle.pop()
            except IndexError:
                break
            if link.endpoint == endpoint and link.is_usable():
                return link
            link.close()
        return self._dial(endpoint, until)

    def _dial(self, endpoint: str, until: float) -> Link:
        if self._closed:
            raise closed()
        link = Link(self.address, endpoint, max(0.001, min(CONNECT, until - clock.now())))
        self._links.add(link)
        if self._closed:  # by a signal handler on this thread
            link.close()
            raise closed()
        return link

    def _give(self, link: Link) -> None:
        if self._closed or len(self._idle) >= IDLE or link.talk.is_leaving:
            link.close()
        else:
            self._idle.append(link)

    async def stream(self, path: str, heard: Callable[[bytes | None], None], deadline: float) -> ThreadStream:
        turn = self._turn
        endpoint = self.address.endpoints[turn]
        try:
            return ThreadStream(self._dial(endpoint, deadline), path, self._metadata, heard)
        except (OSError, Disconnected) as error:
            self.move_on(turn)
            raise unreachable(endpoint, error, tls=self.address.tls) from error

    async def _pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 (nothing suspends here)

    async def close(self) -> None:
        self._closed = True
        for links in (self._idle, self._interrupted):
            while links:
                links.pop().close()
        for link in list(self._links):
            link.hang_up()

    def drop(self) -> None:
        for link in list(self._links):
            link.drop()
