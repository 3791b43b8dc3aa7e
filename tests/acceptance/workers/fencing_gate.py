"""A resource that lives in one process, behind a `Gate`: fencing_gate.py SOCKET. Others come by the socket.

Each of them is served by a thread of its own.
"""

from __future__ import annotations

import sys
import time
from multiprocessing.managers import BaseManager

from resources import say

from holdfast.fencing import Gate

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


if __name__ == "__main__":
    texts = Texts()
    BaseManager.register("texts", callable=lambda: texts)
    server = BaseManager(address=sys.argv[1], authkey=b"shelf").get_server()
    say(ready=True)
    server.serve_forever()
