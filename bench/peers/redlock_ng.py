"""redlock-ng, blocking and asyncio: no queue, no fencing token, no renewal.

Settings: one client for all locks; socket timeouts of 5 s instead of 0.1 s, since what times out is
swallowed there and tried again after a pause; `blocking=True`. Whether the lock was granted is asked, as its
documentation demands: the section is entered without it otherwise. Several nodes are several URLs, with
spaces between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import Any

from bench.peers import TTL, AsyncMake, Make

__all__ = ["asynchronous", "blocking"]


def _configuration(library: Any, url: str) -> Any:
    return library.RedlockConfig(masters=url.split(), socket_timeout=5.0, socket_connect_timeout=5.0)


def _with_pools(urls: str, size: int) -> str:
    return " ".join(f"{url}?max_connections={size}" for url in urls.split())


class Section:
    def __init__(self, redlock: Any, name: str) -> None:
        self.context = redlock.lock(f"redlock-ng:{name}", TTL * 1000, blocking=True)

    def __enter__(self) -> None:
        if not self.context.__enter__().valid:
            raise RuntimeError("not acquired")

    def __exit__(self, *error: object) -> None:
        self.context.__exit__(*error)


class AsyncSection(Section):
    async def __aenter__(self) -> None:
        if not (await self.context.__aenter__()).valid:
            raise RuntimeError("not acquired")

    async def __aexit__(self, *error: object) -> None:
        await self.context.__aexit__(*error)


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    library = import_module("redlock")
    redlock = library.Redlock(_configuration(library, url))
    yield lambda name: Section(redlock, name)


@asynccontextmanager
async def asynchronous(url: str, tasks: int) -> AsyncIterator[AsyncMake]:
    library = import_module("redlock")
    redlock = library.AsyncRedlock(_configuration(library, _with_pools(url, tasks + 1)))
    yield lambda name: AsyncSection(redlock, name)
    for instance in redlock.client.instances:
        await instance.aclose()
