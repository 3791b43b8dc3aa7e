"""The limit of a handoff: one token in a list, `BLPOP` takes it and `RPUSH` passes it on.

Redis serves those who wait in the order of their coming, and gives what is pushed to the first of
them at once: a fair lock at two commands a handoff. It has no owner, and nothing that expires.

With asyncio each task has a connection of its own as well, over a bare protocol: no stream, no time limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import hiredis

from bench.peers import AsyncMake, Make
from bench.peers.raw import Connection, pack, sections

__all__ = ["asynchronous", "blocking"]


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


class Protocol(asyncio.Protocol):
    """One connection, one command at a time."""

    def __init__(self) -> None:
        self.reader = hiredis.Reader()
        self.reply: asyncio.Future[Any] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        reply = self.reader.gets()
        if reply is not False and self.reply is not None:
            self.reply.set_result(reply)

    def send(self, packed: bytes) -> asyncio.Future[Any]:
        self.reply = asyncio.get_running_loop().create_future()
        self.transport.write(packed)
        return self.reply


class AsyncSection:
    def __init__(self, url: str, name: str, opened: list[Protocol]) -> None:
        place = urlsplit(url)
        self.place, self.opened = (place.hostname or "localhost", place.port or 6379), opened
        self.made = pack("SET", f"token:{name}:made", 1, "NX", "EX", 300)
        self.take = pack("BLPOP", f"token:{name}", 30)
        self.give = pack("RPUSH", f"token:{name}", "token")
        self.connection: Protocol | None = None

    async def __aenter__(self) -> None:
        if self.connection is None:
            _, self.connection = await asyncio.get_running_loop().create_connection(Protocol, *self.place)
            self.opened.append(self.connection)
            if await self.connection.send(self.made) == b"OK":
                await self.connection.send(self.give)
        if await self.connection.send(self.take) is None:
            raise TimeoutError("the token was lost")

    async def __aexit__(self, *_: object) -> None:
        assert self.connection is not None
        await self.connection.send(self.give)


@asynccontextmanager
async def asynchronous(url: str, tasks: int) -> AsyncIterator[AsyncMake]:
    opened: list[Protocol] = []
    yield lambda name: AsyncSection(url, name, opened)
    for connection in opened:
        connection.transport.close()
