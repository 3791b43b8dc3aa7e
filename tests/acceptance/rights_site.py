"""How a role of docs/reference/permissions.md reaches a store, and what it makes there in its flavour."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from redis_desk import AsyncDesk, Desk, desk_for
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from workers.databases import connected, connected_async, engine_url


def _nothing() -> None:
    """No test looks."""


@dataclass(frozen=True)
class Site:
    """How one role reaches a store."""

    url: str
    flavour: str
    folder: Path
    ttl: float = 5.0
    database: str = ""
    """The URL for modules over a connection of SQL."""
    server: str = ""
    """The URL for modules over a client of redis-py."""
    see: Callable[[], object] = _nothing

    @property
    def is_async(self) -> bool:
        return self.flavour == "asyncio"

    def desk(self) -> Desk:
        return desk_for(self.flavour, self.url)

    def client(self, desk: Desk) -> AbstractContextManager[Any]:
        """A client of redis-py."""
        module = redis.asyncio if self.is_async else redis
        kind = module.RedisCluster if "cluster" in self.url else module.Redis
        return opened(desk, kind.from_url, self.server)

    def target(self, desk: Desk) -> AbstractContextManager[Any]:
        """What modules take as a store of the user's own: a client of redis-py, or what makes connections."""
        return self.client(desk) if self.server else nullcontext(self.connect)

    @property
    def threads(self) -> bool:
        """Whether asyncio uses blocking connections, on threads: SQLite has no others."""
        return self.database.startswith("sqlite")

    def connect(self) -> Any:
        """Connect to the database; a coroutine under asyncio."""
        return (connected_async if self.is_async and not self.threads else connected)(self.database)


def made(desk: Desk, kind: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Make something; what belongs to a loop is made on it."""

    async def make() -> Any:
        return kind(*args, **options)

    return desk(make) if isinstance(desk, AsyncDesk) else kind(*args, **options)


def fresh() -> str:
    """Return a name that nothing has: what failed before may have left something."""
    return secrets.token_hex(4)


@contextmanager
def opened(desk: Desk, kind: Callable[..., Any], *args: Any, **options: Any) -> Iterator[Any]:
    """Make something, and close it in the end."""
    thing = made(desk, kind, *args, **options)
    try:
        yield thing
    finally:
        how = next(name for name in ("aclose", "close", "dispose") if hasattr(thing, name))
        desk(getattr(thing, how))


def engine(site: Site, desk: Desk) -> AbstractContextManager[Any]:
    """An engine of SQLAlchemy."""
    make = create_async_engine if site.is_async else create_engine
    url = engine_url(site.database, is_async=site.is_async)
    return opened(desk, make, url.replace("sqlite:", "sqlite+aiosqlite:") if site.is_async else url)


def on_connection(site: Site, desk: Desk, work: Any, work_async: Any, *args: Any) -> Any:
    """Do something on a connection of the site's flavour, and commit."""

    async def later() -> Any:
        conn = await connected_async(site.database)
        try:
            found = await work_async(conn, *args)
            await conn.commit()
            return found
        finally:
            await getattr(conn, "ensure_closed", conn.close)()

    if site.is_async and not site.threads:
        return desk(later)
    conn = connected(site.database)
    try:
        found = work(conn, *args)
        conn.commit()
        return found
    finally:
        conn.close()
