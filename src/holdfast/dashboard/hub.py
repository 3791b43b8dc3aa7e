"""The browsers that listen. A frame is made once, and every listener gets the same bytes.

A listener has a short box. The box of one that does not read fills up; then it is emptied, and the listener
is *behind*: no more frames are kept for it. When it reads again it is given new pictures instead, which is
all it needs. So a browser that sleeps costs the memory of its box, and delays nobody.
"""

from __future__ import annotations

import asyncio
from collections import deque

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
        self.behind = False
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

    async def get(self, timeout: float) -> bytes | None:
        """Return what has come since, once something has; `None` after `timeout`, or when it is behind."""
        try:
            async with asyncio.timeout(timeout):
                await self._news.wait()
        except TimeoutError:
            return None
        self._news.clear()
        if not self._box:
            return None
        data = b"".join(self._box)
        self._box.clear()
        self._size = 0
        return data

    def close(self) -> None:
        """Let it end."""
        self.closed = True
        self._news.set()


class Hub:
    """All who listen."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()

    def join(self) -> Listener:
        """Return a new listener; `leave` ends it."""
        listener = Listener()
        self.listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        """Keep nothing more for it."""
        self.listeners.discard(listener)

    def send(self, event: str, data: str) -> None:
        """Give everybody a frame."""
        if self.listeners:
            made = frame(event, data)
            for listener in self.listeners:
                listener.put(made)

    def close(self) -> None:
        """Let every stream end."""
        for listener in self.listeners:
            listener.close()
