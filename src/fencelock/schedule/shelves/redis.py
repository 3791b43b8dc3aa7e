"""Pages on Redis or Valkey: a hash each, written by the script of `fencelock.optimistic`'s registers.

Two ways to the server: the wire that the locks use, or a client of redis-py that the user gave. Over the wire
a page is read by plain commands: a user who may only read sees how schedules have run.

NOT promised: more than the server does. One that forgets (eviction, a crash, a failover) may have a tick run
again.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any
from zlib import crc32

from fencelock.backends.redis.blocking import BlockingWire
from fencelock.backends.redis.commands import TIME, Script, micros, pack
from fencelock.backends.redis.failures import BACKEND, of_client
from fencelock.backends.redis.keys import BUCKETS
from fencelock.backends.redis.multiplexed import MultiplexedWire
from fencelock.backends.redis.topology import Topology
from fencelock.backends.redis.wire import Again, Wire
from fencelock.connections import settled
from fencelock.errors import BackendUnavailable
from fencelock.optimistic.cells.redis import SET
from fencelock.runtime import clock, ids
from fencelock.schedule.shelves.base import Page, Shelf

__all__ = ["RedisClientShelf", "RedisShelf"]

READ = Script("read", files("fencelock.schedule") / "lua")
LIMIT = 5.0


class RedisShelf(Shelf):
    """Pages on the server that keeps the locks."""

    where = BACKEND

    def __init__(self, topology: Topology, *, is_async: bool) -> None:
        self._topology = topology
        self._is_async = is_async
        self._wire = self._made()

    async def read(self, key: str) -> Page:
        bucket, name = _place(key)
        now = micros(await self._call(None, bucket, TIME))
        version, text = await self._call(None, bucket, pack("HMGET", name, "version", "value"))
        return _page((version, text, now))

    async def write(self, key: str, text: str, version: int) -> bool:
        bucket, name = _place(key)
        call = SET.call([name], b"%d" % version, text.encode(), ids.new_id().encode())
        done = await self._call(SET, bucket, call)
        if not done and isinstance(done, Again):
            raise BackendUnavailable(backend=BACKEND, detail="an answer was lost: read the page again")
        return bool(done)

    async def _call(self, script: Script | None, bucket: int, packed: bytes) -> Any:
        return await self._wire.call(script, bucket, packed, clock.now() + LIMIT)

    async def close(self) -> None:
        wire, self._wire = self._wire, self._made()
        await wire.close()

    def _made(self) -> Wire:
        return MultiplexedWire(self._topology) if self._is_async else BlockingWire(self._topology)


class RedisClientShelf(Shelf):
    """Pages by a client of redis-py, of either flavour."""

    where = BACKEND

    def __init__(self, client: Any) -> None:
        self._client = client

    async def read(self, key: str) -> Page:
        return _page(await self._eval(READ, key))

    async def write(self, key: str, text: str, version: int) -> bool:
        return bool(await self._eval(SET, key, version, text, ids.new_id()))

    async def _eval(self, script: Script, key: str, *values: str | int) -> Any:
        from redis.exceptions import RedisError

        try:
            return await settled(self._client.eval(script.text, 1, f"fencelock:schedule:{key}", *values))
        except RedisError as error:
            raise of_client(error) from error


def _place(key: str) -> tuple[int, bytes]:
    bucket = crc32(key.encode()) % BUCKETS
    return bucket, b"fencelock:schedule:{%d}:%b" % (bucket, key.encode())


def _page(found: Any) -> Page:
    version, text, micros = found
    if isinstance(text, bytes):
        text = text.decode()
    return Page(text, int(version or 0), int(micros) / 1_000_000)
