"""Records on Redis or Valkey: one string each, with an expiry, and a script for every step.

    fencelock:flight:{17}:namespace:name          the record
    fencelock:flight-claim:{17}:namespace:name    the claim, during a computation

Keys lie in buckets as the locks do, so that both are in one slot of a Cluster. A hit is one script that
answers with the record and its PTTL. Records go by their expiry, claims by theirs.

`WirePlace` has connections of its own, to where the locks are or where a URL points: a large value on its way
must not hold up a renewal. `ClientPlace` uses a client of redis-py as it is.

NOT promised: more than the server does. What it forgets (eviction, a restart, a failover) is computed again.
"""

from __future__ import annotations

from abc import abstractmethod
from importlib.resources import files
from typing import Any
from zlib import crc32

from redis.exceptions import NoScriptError, RedisError

from fencelock.backends.redis.blocking import BlockingWire
from fencelock.backends.redis.commands import Script
from fencelock.backends.redis.failures import of_client
from fencelock.backends.redis.keys import BUCKETS
from fencelock.backends.redis.multiplexed import MultiplexedWire
from fencelock.backends.redis.topology import Topology
from fencelock.backends.redis.wire import Wire
from fencelock.core.ports import STEP_LIMIT
from fencelock.flight.places import CLAIM_KEPT, Place
from fencelock.flight.records import Kept, milliseconds, unpacked
from fencelock.runtime import clock

__all__ = ["ClientPlace", "WirePlace"]

LUA = files("fencelock.flight") / "lua"
LOOK, CLAIM, WRITE, DROP, PUT = (Script(name, LUA) for name in ("look", "claim", "write", "drop", "put"))
KEPT_MS = b"%d" % milliseconds(CLAIM_KEPT)


class RedisPlace(Place):
    """Records on Redis, however it is reached."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace.replace("%", "%25").replace(":", "%3A").encode()

    @abstractmethod
    async def _run(self, script: Script, bucket: int, keys: list[bytes], *arguments: bytes) -> Any:
        """Return the answer of a script."""

    async def _call(self, script: Script, key: str, *arguments: bytes) -> Any:
        name = key.encode()
        bucket = crc32(name) % BUCKETS
        rest = b"{%d}:%b:%b" % (bucket, self._namespace, name)
        keys = [b"fencelock:flight:" + rest]
        if script is not LOOK:
            keys.append(b"fencelock:flight-claim:" + rest)
        return await self._run(script, bucket, keys, *arguments)

    async def look(self, key: str) -> Kept | None:
        return _kept(await self._call(LOOK, key))

    async def claim(self, key: str, seen: bytes, owner: bytes) -> Kept | None:
        return _kept(await self._call(CLAIM, key, seen, owner, KEPT_MS))

    async def write(self, key: str, owner: bytes, record: bytes, seconds: float) -> bool:
        return bool(await self._call(WRITE, key, owner, record, b"%d" % milliseconds(seconds)))

    async def drop(self, key: str, owner: bytes) -> None:
        await self._call(DROP, key, owner)

    async def put(self, key: str, record: bytes, seconds: float) -> None:
        await self._call(PUT, key, record, b"%d" % milliseconds(seconds))

    async def forget(self, key: str) -> bool:
        return bool(await self._call(PUT, key))


class WirePlace(RedisPlace):
    """Records where the locks are, or where a URL points: one server, Sentinel's or a Cluster's."""

    def __init__(self, topology: Topology, namespace: str, *, is_async: bool) -> None:
        super().__init__(namespace)
        self._wire: Wire = MultiplexedWire(topology) if is_async else BlockingWire(topology)

    async def _run(self, script: Script, bucket: int, keys: list[bytes], *arguments: bytes) -> Any:
        return await self._wire.call(script, bucket, script.call(keys, *arguments), clock.now() + STEP_LIMIT)

    async def close(self) -> None:
        await self._wire.close()

    def leave(self) -> None:
        self._wire.drop()


class ClientPlace(RedisPlace):
    """Records behind a client of redis-py, which is used as it is and not closed."""

    def __init__(self, client: Any, namespace: str, *, is_async: bool) -> None:
        super().__init__(namespace)
        self._client = client
        self._is_async = is_async

    async def _run(self, script: Script, bucket: int, keys: list[bytes], *arguments: bytes) -> Any:
        words = (len(keys), *keys, *arguments)
        try:
            try:
                return await self._send("EVALSHA", script.sha, *words)
            except NoScriptError:
                return await self._send("EVAL", script.text, *words)
        except (RedisError, OSError) as error:
            raise of_client(error) from error

    async def _send(self, *words: Any) -> Any:
        # A client with decode_responses=True would take a record for text.
        found = self._client.execute_command(*words, NEVER_DECODE=[])
        return await found if self._is_async else found


def _kept(found: Any) -> Kept | None:
    return unpacked(found[0], found[1]) if found else None
