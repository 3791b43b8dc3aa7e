"""A stream: bytes over a non-blocking socket, in both flavours.

`put` and `take` never wait. What the kernel has no room for stays in the outbox, in order, until a later
`put`. `readable` and `writable` wait, end by their deadline, and take nothing.

One thread or task at a time may read, and one may write. `hang_up` may come from anywhere.

Not promised: that a stream can be written to again after `put` was interrupted by a signal's handler, or read
after `take` was. How much was sent or taken is not known then, and `exchange.py` sees to it.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress

from fencelock.runtime.base import Readiness

__all__ = ["Stream"]

READ = 1 << 16
CLOSED = "the connection is closed"
AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: closing drops what was not sent, and resets the connection."""


class Stream:
    """Bytes over a socket that is connected, or about to be."""

    __slots__ = ("_outbox", "_ready", "_sock", "is_open")

    def __init__(self, sock: socket.socket, ready: Readiness) -> None:
        self.is_open = True
        """Whether it was neither closed nor dropped here. The server may have ended it all the same."""
        self._sock = sock
        self._ready = ready
        self._outbox = b""

    @property
    def has_unsent(self) -> bool:
        """Whether something waits in the outbox."""
        return bool(self._outbox)

    def put(self, data: bytes) -> None:
        """Append to the outbox, and hand to the kernel what it has room for. Raises `OSError`."""
        if self._outbox:
            data = self._outbox + data
        if not data:
            return
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        self._outbox = b"" if sent == len(data) else data[sent:]

    def take(self) -> bytes | None:
        """Return what has come: nothing at the end, and `None` if nothing has come. Raises `OSError`."""
        try:
            return self._sock.recv(READ)
        except BlockingIOError:
            return None

    async def readable(self, deadline: float) -> None:
        """Wait until something has come, or the end."""
        if not self.is_open:
            raise ConnectionAbortedError(CLOSED)
        await self._ready.readable(deadline)

    async def writable(self, deadline: float) -> None:
        """Wait until the kernel has room."""
        if not self.is_open:
            raise ConnectionAbortedError(CLOSED)
        await self._ready.writable(deadline)

    def hang_up(self) -> None:
        """Let a wait here see the end of the stream at once. From any thread."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self.is_open = False
        if self._sock.fileno() >= 0:
            self._ready.end()
            self._sock.close()

    def abort(self) -> None:
        """Close it, and drop what the kernel has not sent yet: it would go on trying for minutes."""
        with suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        self.close()

    def drop(self) -> None:
        """In a forked child: close the child's copy of the socket.

        Nothing is sent, and the loop is left alone: parent and child share its selector.
        """
        self.is_open = False
        descriptor = self._sock.detach()
        if descriptor >= 0:
            os.close(descriptor)
