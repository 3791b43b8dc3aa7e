"""Servers that change places: what Sentinel's and Cluster's topologies have in common.

What is known is used until there is a sign of trouble: then it is forgotten, and asked for again by
whoever needs it next. When a server dies everybody needs it at once; one of them asks, the others
wait for the answer, and also for the failure.
"""

from __future__ import annotations

from abc import abstractmethod

from fencelock.backends.redis.failures import BACKEND
from fencelock.backends.redis.server import TLS_OPTIONS, Server
from fencelock.backends.redis.topology import Topology
from fencelock.backends.redis.wire import ATTEMPT, Wire
from fencelock.errors import BackendUnavailable, ConfigurationError
from fencelock.runtime import clock

__all__ = ["Moving", "share", "tls_of"]


def share(deadline: float, parts: int) -> float:
    """Return a deadline for the first of so many servers that are asked in turn."""
    now = clock.now()
    return min(now + ATTEMPT, now + (deadline - now) / parts)


def tls_of(given: dict[str, str], shown: str) -> bool:
    """Return whether `?tls=` asks for TLS; options of TLS without it are a mistake."""
    text = given.get("tls", "no").lower()
    if text not in {"yes", "no", "true", "false"}:
        raise ConfigurationError(f"tls={text} in {shown!r}: write yes or no")
    idle = sorted(TLS_OPTIONS & given.keys())
    if text in {"no", "false"} and idle:
        raise ConfigurationError(f"{', '.join(idle)} in {shown!r} without tls=yes: add it")
    return text in {"yes", "true"}


class Moving(Topology):
    """Servers that change places."""

    silence = ATTEMPT

    def __init__(self, like: Server) -> None:
        self._like = like
        self._servers: dict[tuple[str, int], Server] = {}
        self._looks = 0
        self._failure: BackendUnavailable | None = None

    def at(self, host: str, port: int) -> Server:
        """Return the server at an address: the same object each time, since connections are kept by it."""
        server = self._servers.get((host, port))
        if server is None:
            server = self._servers.setdefault((host, port), self._like.at(host, port))
        return server

    async def learn(self, bucket: int, wire: Wire, deadline: float) -> Server:
        known = self.known(bucket)
        if known is not None:
            return known
        looks = self._looks
        async with wire.latch(deadline):
            known = self.known(bucket)
            if known is not None:
                return known
            failure = self._failure
            if looks != self._looks and failure is not None:  # somebody has looked while we waited
                raise BackendUnavailable(backend=BACKEND, detail=failure.detail, transient=failure.transient)
            self._failure = None
            try:
                return await self.look(bucket, wire, deadline)
            except BackendUnavailable as error:
                self._failure = error
                raise
            finally:
                self._looks += 1

    @abstractmethod
    async def look(self, bucket: int, wire: Wire, deadline: float) -> Server:
        """Ask where a bucket is, and remember it. One at a time."""
