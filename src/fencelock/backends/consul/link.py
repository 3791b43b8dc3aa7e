"""One connection of a thread's."""

from __future__ import annotations

import select
import socket
import ssl
import struct
from contextlib import suppress
from math import inf

from fencelock.backends import watchdog
from fencelock.backends.consul.protocol import Answer, Reader
from fencelock.runtime import clock

__all__ = ["Link", "cut_off"]

READ = 1 << 16
AT_ONCE = struct.pack("ii", 1, 0)


def cut_off(sock: socket.socket) -> None:
    """Let closing drop what was not sent yet: the kernel would go on trying for minutes."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)


class Link:
    """One connection."""

    def __init__(
        self, endpoint: str, context: ssl.SSLContext | None, server_name: str | None, timeout: float
    ) -> None:
        host, _, port = endpoint.rpartition(":")
        host = host.strip("[]")
        sock = socket.create_connection((host, int(port)), timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                sock = context.wrap_socket(sock, server_hostname=server_name or host)
            sock.settimeout(None)
        except BaseException:
            sock.close()
            raise
        self.endpoint = endpoint
        self.until = inf
        self.is_asked = False
        """Whether a request may have been sent whose answer nobody has read."""
        self.unread: Answer | None = None
        self.used = clock.now()
        self.sock = sock
        self._reader = Reader()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        watchdog.watch(self)

    def ask(self, data: bytes, until: float) -> Answer:
        """Send a request and return its answer; raises `TimeoutError` if none comes in time."""
        self.until = until
        self.unread = None
        self.sock.settimeout(max(0.001, until - clock.now()))
        self.is_asked = True  # an interrupt may come when it is sent, and nobody has said so yet
        self.sock.sendall(data)
        return self.answer(until)

    def answer(self, until: float) -> Answer:
        """Return the answer to what was sent."""
        while self.unread is None:
            self.unread = self._reader.next()  # an interrupted call may have left what it had received
            if self.unread is None:
                if not self._pending():
                    left = until - clock.now()
                    if left <= 0 or not self._poll.poll(left * 1000):
                        raise TimeoutError("no answer in time")
                self._reader.add(self.sock.recv(READ))
        self.until = inf
        return self.unread

    def read(self) -> list[Answer]:
        """Return what has come, without waiting for more."""
        answers: list[Answer] = []
        while True:
            try:
                answer = self._reader.feed(self.sock.recv(READ))
            except (BlockingIOError, ssl.SSLWantReadError):
                return answers
            if answer is not None:
                answers.append(answer)

    def _pending(self) -> bool:
        return isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0

    def is_usable(self) -> bool:
        """Whether another request may be made: nothing has come since the last answer, not even the end."""
        return self._reader.is_clean and not self._pending() and not self._poll.poll(0)

    def hang_up(self) -> None:
        """Let a read that is under way end at once."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        watchdog.forget(self)
        if self.is_asked and self.unread is None:
            cut_off(self.sock)
        self.sock.close()

    def drop(self) -> None:
        """In a forked child: close the copy of the socket, without a goodbye."""
        with suppress(OSError):
            socket.socket.close(self.sock)
