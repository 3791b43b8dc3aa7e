"""Redis or Valkey: a hash for each name, a field for each record.

    fencelock:crdt:NAME      AUTHOR-SEQ.whole, AUTHOR-SEQ.delta

The digest is HKEYS, bodies are read by HMGET; a record enters by HSET, and once that is acknowledged
those that it replaces leave by HDEL. One key for each name, so a cluster needs nothing more.

Redis may lose what it has acknowledged, or all of it. Then each replica that misses its own records
at its next `sync()` writes its whole state again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fencelock.connections import is_redis_client
from fencelock.crdt.exchange.base import Exchange, Record, record_from
from fencelock.errors import ConfigurationError
from fencelock.names import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RedisExchange"]

PREFIX = "fencelock:crdt:"


class RedisExchange(Exchange):
    """Records in Redis or Valkey, through your own client of redis-py.

    Example:
        >>> import redis
        >>> RedisExchange(redis.Redis(port=6379))
        <RedisExchange>
    """

    def __init__(self, client: Any) -> None:
        """Use a `redis.Redis` or `redis.RedisCluster`; it stays yours to close."""
        if not callable(getattr(client, "hkeys", None)) or not callable(getattr(client, "get_encoder", None)):
            raise ConfigurationError(f"client={shown(client)} is not a client of redis-py")
        if is_redis_client(client, "redis.asyncio"):
            raise ConfigurationError(
                "client is asynchronous: give redis.Redis, AsyncReplica uses it on a thread"
            )
        if client.get_encoder().decode_responses:
            raise ConfigurationError("client has decode_responses=True: records are bytes, leave it out")
        self._client = client
        self._owned = False

    @classmethod
    def from_url(cls, url: str) -> RedisExchange:
        """Return an exchange with a client of its own."""
        try:
            import redis
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                "redis:// needs the package 'redis': pip install 'fencelock[redis]'"
            ) from error
        plain = url.replace("valkey", "redis", 1) if url.startswith("valkey") else url
        try:
            made = cls(redis.Redis.from_url(plain, socket_timeout=10, socket_connect_timeout=5))
        except ValueError as error:
            raise ConfigurationError(f"the URL of the exchange cannot be used: {error}") from error
        made._owned = True
        return made

    def records(self, name: str) -> list[Record]:
        with self._failures():
            labels = self._client.hkeys(PREFIX + name)
        found = (record_from(label.decode("latin-1")) for label in labels)
        return [record for record in found if record is not None]

    def read(self, name: str, records: Sequence[Record]) -> dict[Record, bytes]:
        if not records:
            return {}
        with self._failures():
            bodies = self._client.hmget(PREFIX + name, [record.label() for record in records])
        return {one: body for one, body in zip(records, bodies, strict=True) if body is not None}

    def write(self, name: str, record: Record, body: bytes, replaced: Sequence[Record]) -> None:
        with self._failures():  # not one pipeline: there a refused HSET would be followed by the HDEL
            self._client.hset(PREFIX + name, record.label(), body)
        self.remove(name, replaced)

    def remove(self, name: str, records: Sequence[Record]) -> None:
        if records:
            with self._failures():
                self._client.hdel(PREFIX + name, *(one.label() for one in records))

    def close(self) -> None:
        if self._owned:
            self._client.close()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        from redis.exceptions import RedisError

        from fencelock.backends.redis.failures import of_client

        try:
            yield
        except (RedisError, OSError) as error:
            raise of_client(error) from error

    def __repr__(self) -> str:
        return "<RedisExchange>"
