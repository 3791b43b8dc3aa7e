"""What people write by hand for Consul: a key is acquired for a session, and released; nothing else.

Settings: blocking with http.client and one connection that is kept, asyncio with aiohttp and its pool.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from bench.peers import AsyncMake, Make
from bench.peers.consul_raw import SESSION, place_of

__all__ = ["asynchronous", "blocking"]


class Section:
    def __init__(self, connection: http.client.HTTPConnection, name: str, session: str) -> None:
        self.connection = connection
        self.take, self.give = _paths(name, session)

    def __enter__(self) -> None:
        _must(put(self.connection, self.take, "bench"))

    def __exit__(self, *_: object) -> None:
        _must(put(self.connection, self.give, "bench"))


class AsyncSection:
    def __init__(self, client: Any, name: str, session: str) -> None:
        self.client = client
        self.take, self.give = _paths(name, session)

    async def __aenter__(self) -> None:
        async with self.client.put(self.take, data=b"bench") as answer:
            _must(await answer.read())

    async def __aexit__(self, *_: object) -> None:
        async with self.client.put(self.give, data=b"bench") as answer:
            _must(await answer.read())


def _paths(name: str, session: str) -> tuple[str, str]:
    return f"/v1/kv/hand/{name}?acquire={session}", f"/v1/kv/hand/{name}?release={session}"


def _must(answer: bytes) -> None:
    if not answer.startswith(b"true"):
        raise RuntimeError("it was held already, or not held")


def put(connection: http.client.HTTPConnection, path: str, body: str) -> bytes:
    connection.request("PUT", path, body)
    return connection.getresponse().read()


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    connection = http.client.HTTPConnection(*place_of(url))
    session = json.loads(put(connection, "/v1/session/create", json.dumps(SESSION)))["ID"]
    yield lambda name: Section(connection, name, session)
    put(connection, f"/v1/session/destroy/{session}", "")
    connection.close()


@asynccontextmanager
async def asynchronous(url: str, tasks: int) -> AsyncIterator[AsyncMake]:
    import aiohttp

    host, port = place_of(url)
    async with aiohttp.ClientSession(f"http://{host}:{port}") as client:
        async with client.put("/v1/session/create", json=SESSION) as answer:
            session = (await answer.json())["ID"]
        yield lambda name: AsyncSection(client, name, session)
        async with client.put(f"/v1/session/destroy/{session}") as answer:
            await answer.read()
