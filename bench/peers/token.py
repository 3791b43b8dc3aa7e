"""The limit of a handoff: one token in a list, `BLPOP` takes it and `RPUSH` passes it on.

Redis serves those who wait in the order of their coming, and gives what is pushed to the first of
them at once: a fair lock at two commands a handoff. It has no owner, and nothing that expires.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from bench.peers import Make
from bench.peers.raw import Connection, pack, sections

__all__ = ["blocking"]


class Section:
    def __init__(self, url: str, name: str) -> None:
        self.connection = Connection(url)
        self.take = pack("BLPOP", f"token:{name}", 30)
        self.give = pack("RPUSH", f"token:{name}", "token")
        if self.connection.ask("SET", f"token:{name}:made", 1, "NX", "EX", 300) == b"OK":
            self.connection.send(self.give)

    def __enter__(self) -> None:
        if self.connection.send(self.take) is None:
            raise TimeoutError("the token was lost")

    def __exit__(self, *_: object) -> None:
        self.connection.send(self.give)


def blocking(url: str) -> AbstractContextManager[Make]:
    return sections(Section, url)
