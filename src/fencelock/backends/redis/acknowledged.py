"""`?min_replicas_acked=N`: a grant counts when N replicas have it.

WAIT follows the acquire script on the same connection, in the same packet: the server answers it when so
many replicas have acknowledged everything that this connection has written, or when its time is over. If
there are too few the request is withdrawn, and `BackendUnavailable` says so. A grant that was pushed has
not been waited for: it is taken as a hint, and the waiter asks for itself.

WAIT blocks its connection, so under asyncio these requests have one of their own.

Not promised: consensus. Sentinel, or the Cluster, may promote a replica that did not acknowledge; what
N replicas have is gone when all of them are; and renewals are not waited for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hiredis

from fencelock.backends.redis import RedisBackend
from fencelock.backends.redis.commands import ACQUIRE, Script, pack
from fencelock.backends.redis.failures import BACKEND, said
from fencelock.backends.redis.server import Server
from fencelock.backends.redis.topology import Topology
from fencelock.core.ports import Busy, Grant, Request
from fencelock.errors import BackendUnavailable, ConfigurationError
from fencelock.guarantees import Guarantees
from fencelock.runtime import clock

__all__ = ["ACKED", "ACK_LIMIT", "AcknowledgedBackend", "acked_of"]

ACKED = "min_replicas_acked"
ACK_LIMIT = 1.0
"""Seconds that replicas have to acknowledge a grant; less if the step has less."""


class TooFew(BackendUnavailable):
    """The grant is there, but not on enough replicas."""


def acked_of(given: dict[str, str], shown: str) -> int:
    """Return the number in a URL's options, 0 if there is none."""
    text = given.get(ACKED, "0")
    if not (text.isascii() and text.isdigit()):
        raise ConfigurationError(f"{ACKED}={text} in {shown!r} is not a number: write 0 or more")
    return int(text)


class AcknowledgedBackend(RedisBackend):
    """Locks on Redis whose grants may have to be acknowledged by replicas."""

    def __init__(self, topology: Topology | Server, min_replicas_acked: int = 0) -> None:
        super().__init__(topology)
        self._replicas = min_replicas_acked

    def _start(self) -> None:
        super()._start()
        if self._replicas:
            self._call = self._acknowledged

    @property
    def guarantees(self) -> Guarantees:
        return self.with_acks(super().guarantees)

    def with_acks(self, guarantees: Guarantees) -> Guarantees:
        """Add what the option means to what is promised without it."""
        if not self._replicas:
            return guarantees
        caveat = (
            f"a grant waits until {self._replicas} replicas have it, at most {ACK_LIMIT:g}s: that is no "
            "consensus, a replica that does not have it may still be promoted; renewals do not wait"
        )
        return replace(guarantees, caveats=(*guarantees.caveats, caveat))

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        try:
            return await super().acquire(request, wait=wait, deadline=deadline)
        except TooFew:
            try:
                await self.abandon(request, deadline=deadline)
            except BackendUnavailable:
                pass  # the caller asks again, or owes it
            raise

    async def wait(self, request: Request, deadline: float) -> Grant | None:
        pushed = await super().wait(request, deadline)
        return None if self._replicas else pushed

    async def _acknowledged(self, script: Script | None, bucket: int, packed: bytes, deadline: float) -> Any:
        if script is not ACQUIRE:
            return await self._wire.call(script, bucket, packed, deadline)
        limit = min(ACK_LIMIT, (deadline - clock.now()) / 2)
        wait = pack("WAIT", self._replicas, max(1, int(limit * 1000)))
        reply, acked = await self._wire.persist(script, bucket, packed, deadline, then=[wait])
        if not isinstance(reply, int):
            return reply  # it must wait anyhow
        if isinstance(acked, hiredis.ReplyError):
            raise said(self._topology.label, str(acked))
        if acked < self._replicas:
            told = f"{acked} of {self._replicas} replicas acknowledged the grant within {limit:.2g}s"
            raise TooFew(backend=BACKEND, detail=f"{told}: it was withdrawn")
        return reply
