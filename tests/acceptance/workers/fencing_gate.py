"""A resource that lives in one process, behind a `Gate`: fencing_gate.py SOCKET. Others come by the socket.

Each of them is served by a thread of its own.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from multiprocessing.connection import Connection, Listener

from resources import say

from fencelock import StaleToken
from fencelock.fencing import Gate

WORK = 0.0002
"""Seconds between the comparison and the write: time to be overtaken."""


class Texts:
    """A text that anybody may write, and one that only the newest token may."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.gate = Gate()
        self.plain = self.guarded = ""
        self.log: list[int] = []

    def read(self) -> tuple[str, str]:
        return self.plain, self.guarded

    def tokens(self) -> list[int]:
        return self.log

    def trample(self, words: str) -> None:
        self.plain = words

    def write(self, token: int, words: str) -> None:
        with self.gate.turn("shelf", token):
            time.sleep(WORK)
            self.guarded = words
            self.log.append(token)


def serve(texts: Texts, conn: Connection) -> None:
    """Do what one of them asks for, until it hangs up."""
    with contextlib.suppress(EOFError, ConnectionResetError), conn:
        while True:
            name, args = conn.recv()
            try:
                conn.send(getattr(texts, name)(*args))
            except StaleToken as error:
                conn.send(error)


def main(socket: str) -> None:
    texts = Texts()
    with Listener(socket, backlog=64) as listener:
        say(ready=True)
        while True:
            threading.Thread(target=serve, args=(texts, listener.accept()), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1])
