"""One thread that listens on many connections: those of the queries that wait.

It is there while somebody waits, and a little longer.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
from contextlib import suppress

from fencelock.backends.consul.failures import closed
from fencelock.backends.consul.link import Link
from fencelock.backends.consul.protocol import Answer, Disconnected
from fencelock.backends.consul.wire import Heard
from fencelock.runtime import locks
from fencelock.runtime.threads import join, launch

__all__ = ["Ear", "ThreadLine"]

READ = 1 << 12
LINGER = 2.0
"""Seconds that the thread stays when there is nothing to listen to."""


class ThreadLine:
    """A connection that the listening thread reads."""

    def __init__(self, ear: Ear, link: Link, heard: Heard) -> None:
        self.link = link
        self.heard = heard
        self.ended = False
        self._ear = ear
        self._turn = locks.lock()  # a TLS socket must not be read and written at once
        link.sock.setblocking(False)

    def send(self, data: bytes) -> None:
        try:
            with self._turn:
                self.link.sock.sendall(data)
        except OSError:
            self.end()

    def read(self) -> list[Answer]:
        with self._turn:
            return self.link.read()

    def end(self) -> None:
        self.ended = True
        self._ear.look()


class Ear:
    """One thread that listens on all lines of a client."""

    def __init__(self) -> None:
        self._lines: list[ThreadLine] = []
        self._lock = locks.rlock()  # a signal handler may come in the middle
        self._thread: threading.Thread | None = None
        self._bell: socket.socket | None = None
        self._closed = False

    def add(self, line: ThreadLine) -> None:
        with self._lock:
            if self._closed:
                line.link.close()
                raise closed()
            self._lines.append(line)
            if self._thread is None:
                bell, ring = socket.socketpair()
                bell.setblocking(False)
                thread = threading.Thread(
                    target=self._listen, args=(ring,), name="fencelock-consul-watch", daemon=True
                )
                launch(thread)
                self._bell, self._thread = bell, thread
            self._ring()
            if self._closed:  # by a signal handler on this thread
                self._hush()

    def look(self) -> None:
        """Let the thread see that a line has ended."""
        with self._lock:
            self._ring()

    def _ring(self) -> None:
        bell = self._bell
        if bell is not None:
            with suppress(OSError):
                bell.send(b"!")

    def _listen(self, ring: socket.socket) -> None:
        ring.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(ring, selectors.EVENT_READ, None)
            listening: set[ThreadLine] = set()
            while self._goes_on(selector, listening):
                events = selector.select(LINGER)
                if not events and not listening and self._may_end():
                    break
                for key, _ in events:
                    if key.data is None:
                        with suppress(BlockingIOError):
                            ring.recv(READ)
                    else:
                        self._read(key.data)
        ring.close()

    def _goes_on(self, selector: selectors.BaseSelector, listening: set[ThreadLine]) -> bool:
        """Bring the selector up to date; say whether the client is still open."""
        with self._lock:
            ended = [line for line in self._lines if line.ended or self._closed]
            self._lines = [line for line in self._lines if line not in ended]
            new = [line for line in self._lines if line not in listening]
        for line in ended:
            if line in listening:
                listening.remove(line)
                selector.unregister(line.link.sock)
            line.link.close()
        for line in new:
            listening.add(line)
            selector.register(line.link.sock, selectors.EVENT_READ, line)
            if isinstance(line.link.sock, ssl.SSLSocket):
                self._read(line)  # what came with the handshake is no event any more
        return not self._closed

    def _may_end(self) -> bool:
        with self._lock:
            if self._lines:
                return False
            self._thread = None
            self._hush()
            return True

    def _hush(self) -> None:
        bell, self._bell = self._bell, None
        if bell is not None:
            bell.close()

    @staticmethod
    def _read(line: ThreadLine) -> None:
        if line.ended:
            return
        try:
            for answer in line.read():
                line.heard(answer)
        except (Disconnected, OSError):
            line.ended = True
            line.heard(None)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            thread = self._thread
            self._ring()
        if thread is not None and thread is not threading.current_thread():
            join(thread, 1.0)
        with self._lock:
            self._hush()
