"""A register on Redis or Valkey: a hash of version, value and the id of the last write.

The id of a write is kept beside the value, so a write whose answer was lost is recognised as long as nobody
has written after it. A register begins at the server's time in microseconds and counts from there: one that
was deleted or evicted does not go through its old versions again.

NOT promised: more than the server does. A failover or a crash can lose the last writes; then a version that
was read is gone, and a write on it is a conflict.
"""

from __future__ import annotations

from importlib.resources import files
from zlib import crc32

from fencelock.backends.redis.blocking import BlockingWire
from fencelock.backends.redis.commands import Script, pack
from fencelock.backends.redis.failures import BACKEND
from fencelock.backends.redis.keys import BUCKETS
from fencelock.backends.redis.multiplexed import MultiplexedWire
from fencelock.backends.redis.topology import Topology
from fencelock.backends.redis.wire import Again, Wire
from fencelock.optimistic.cells import Cell, Value, unknown
from fencelock.runtime import ids

__all__ = ["RedisCell"]

SET = Script("set", files("fencelock.optimistic") / "lua")


class RedisCell(Cell):
    """One register on Redis."""

    def __init__(self, topology: Topology, name: str, *, is_async: bool) -> None:
        self._name = name
        self._bucket = crc32(name.encode()) % BUCKETS
        self._key = b"fencelock:register:{%d}:%b" % (self._bucket, name.encode())
        self._wire: Wire = MultiplexedWire(topology) if is_async else BlockingWire(topology)

    async def read(self, deadline: float) -> Value:
        call = pack("HMGET", self._key, "version", "value")
        version, value = await self._wire.call(None, self._bucket, call, deadline)
        return Value(value, int(version)) if version is not None else Value(None, 0)

    async def set(self, value: bytes, version: int, deadline: float) -> Value | None:
        call = SET.call([self._key], b"%d" % version, value, ids.new_id().encode())
        found = await self._wire.call(SET, self._bucket, call, deadline)
        if found:
            return Value(value, int(found))
        if isinstance(found, Again):
            raise unknown(BACKEND, self._name)
        return None

    async def close(self, deadline: float) -> None:
        await self._wire.close()

    def drop(self) -> None:
        self._wire.drop()
