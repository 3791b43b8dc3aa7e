"""The browsers that listen. A frame is made once, and every listener gets the same bytes.

A listener has a short box. It begins *behind*: nothing is kept for it until it is given whole pictures, and
what comes after them. The box of one that does not read fills up; then it is emptied, and the listener is
behind again, until it reads and asks for new pictures. So a browser that sleeps costs the memory of its box,
delays nobody, and misses nothing when it is back.

Frames come from the thread of the watchers. Pictures take the same way, so a change never overtakes the
picture that it belongs to.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["Hub", "Listener", "frame"]

FRAMES = 64
BYTES = 8 * 1024 * 1024
"""So much may lie in a box, unless it is a single frame."""


def frame(event: str, data: str) -> bytes:
    """Return an event as it is sent: `data` is JSON on one line."""
    return f"event: {event}\ndata: {data}\n\n".encode()


class Listener:
    """One browser: what it has not read yet."""

    def __init__(self) -> None:
        self._box: deque[bytes] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self.behind = True
        self.closed = False

    def put(self, data: bytes) -> None:
        """Keep a frame for it, unless it is behind."""
        if self.behind:
            return
        self._box.append(data)
        self._size += len(data)
        if len(self._box) > FRAMES or (self._size > BYTES and len(self._box) > 1):
            self._box.clear()
            self._size, self.behind = 0, True
        self._news.set()

    def begin(self, data: bytes) -> None:
        """Give it whole pictures: it is not behind any more."""
        self.behind = False
        self.put(data)

    async def get(self, timeout: float) -> bytes:
        """Return what has come, once something has; nothing after `timeout`, or if it is behind."""
        try:
            async with asyncio.timeout(timeout):
                await self._news.wait()
        except TimeoutError:
            return b""
        self._news.clear()
        data = b"".join(self._box)
        self._box.clear()
        self._size = 0
        return data

    def close(self) -> None:
        """Let it end."""
        self.closed = True
        self._news.set()


class Hub:
    """All who listen, on the loop that serves them."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def join(self) -> Listener:
        """Return a new listener; `leave` ends it."""
        self._loop = asyncio.get_running_loop()
        listener = Listener()
        self.listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        """Keep nothing more for it."""
        self.listeners.discard(listener)

    def send(self, event: str, data: str) -> None:
        """Give everybody a frame. From any thread."""
        if self.listeners:
            self.send_made(frame(event, data))

    def send_made(self, made: bytes) -> None:
        """Give everybody a frame that is made already. From any thread."""
        if self.listeners:
            self.deliver(lambda: self._put(made))

    def _put(self, made: bytes) -> None:
        for listener in self.listeners:
            listener.put(made)

    def deliver(self, give: Callable[[], object]) -> None:
        """Give somebody something, after all that was sent before. From any thread."""
        try:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(give)
        except RuntimeError:  # the loop has ended, and with it whoever listened
            self.listeners.clear()

    def close(self) -> None:
        """Let every stream end."""
        for listener in self.listeners:
            listener.close()
