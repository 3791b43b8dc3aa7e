"""The channel between fencelock and the keeper: messages of a word and a value, a line of JSON each."""

from __future__ import annotations

import json
import socket
from typing import Any

__all__ = ["Channel"]


class Channel:
    """One end of it. Its end of file is how either side learns that the other is gone."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._rest = b""
        self.closed = False

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, word: str, value: Any = None) -> None:
        """Send; a side that is gone does not mind."""
        try:
            self._end.sendall(json.dumps([word, value]).encode() + b"\n")
        except OSError:
            pass  # the end of file tells

    def receive(self) -> list[tuple[str, Any]]:
        """Return what has arrived; blocks while there is nothing at all. Sets `closed` at the end."""
        try:
            data = self._end.recv(65536)
        except ConnectionError:
            data = b""
        self.closed = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [(word, value) for word, value in map(json.loads, lines)]

    def close(self) -> None:
        self._end.close()
