"""`redis://` and its kin: locks on a Redis or Valkey server, in Sentinel's care, or on a Cluster.

A lock in use is one hash that holds its queue (`lua/queue.lua` has the layout); a lock that is
not in use is nothing at all. Every step is one script, so it happens as a whole or not at all, and
takes one round trip. Whoever leaves the queue hands the lock to the next waiter in the same script,
and publishes the grant on that waiter's channel: it holds the lock from then on without asking.

Expiry is by the server's clock; each request has its own deadline, and the hash expires with the
last of them, so a crash leaves nothing. A waiter that was handed the lock keeps its waiter's deadline
until it renews for the first time: if it died meanwhile, the others wait seconds, not a ttl.

The token is `max(last token of the bucket + 1, server's time in µs)`: it rises across releases, expiry,
deletion by an operator, and restarts without persistence, as long as the server's clock does not
fall behind.

Not promised: exclusion across a failover (replication is asynchronous: the new primary may not know
of the latest grants, nor of the latest tokens), or after the server lost its data while leases were
held. Use the token at the resource for what must be correct, or a store with consensus.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Any, ClassVar, TypeVar
from urllib.parse import unquote

from fencelock.backends.pushes import Listener
from fencelock.backends.redis.blocking import BlockingWire
from fencelock.backends.redis.commands import ACQUIRE, BREAK, LEAVE, TIME, micros, pack, word
from fencelock.backends.redis.failures import BACKEND, said
from fencelock.backends.redis.keys import Places
from fencelock.backends.redis.listening import ThreadSubscription
from fencelock.backends.redis.multiplexed import MultiplexedWire
from fencelock.backends.redis.records import Waiting, entry, state, tail
from fencelock.backends.redis.renewals import outcomes_of, renewing
from fencelock.backends.redis.server import DEFAULT_PORT, OPTIONS, Server, database, options_of
from fencelock.backends.redis.subscription import TaskSubscription
from fencelock.backends.redis.topology import One, Topology
from fencelock.backends.redis.wire import Again, Call, Replies, Wire
from fencelock.backends.resent import as_sent
from fencelock.backends.url import address, hide_password, split
from fencelock.core.ports import (
    CAPABILITIES,
    LONGEST_TTL,
    Backend,
    Busy,
    Grant,
    Outcome,
    Renewal,
    Request,
    patience,
)
from fencelock.errors import ConfigurationError
from fencelock.findings import Finding, Pulse
from fencelock.guarantees import Guarantees
from fencelock.runtime import blocking as blocking_runtime
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime
from fencelock.state import Entry, LockState

__all__ = ["RedisBackend"]

T = TypeVar("T")

CHUNK = 48
"""So many leases are renewed by one script: a bystander waits for one or two, less than a millisecond."""
SCANNED = 1000
FORGET_LIMIT = 1.0

REMEMBERED = 256
WAIT, NO_WAIT = b"$4\r\nwait\r\n", b"$0\r\n\r\n"
ACQUIRE_HEAD = ACQUIRE.head(2, 6)
LEAVE_HEAD = LEAVE.head(1, 2)


class RedisBackend(Backend):
    """Locks on a Redis or Valkey server."""

    name = BACKEND
    capabilities = CAPABILITIES
    renew_batch = 2500
    default_port: ClassVar[int | None] = DEFAULT_PORT

    def __init__(self, topology: Topology | Server) -> None:
        self._topology = One(topology) if isinstance(topology, Server) else topology

    @classmethod
    def from_url(cls, url: str) -> RedisBackend:
        parts, shown = split(url), hide_password(url)
        options = options_of(url, OPTIONS | {"min_replicas_acked"})
        if parts.scheme == "unix":
            path = unquote(parts.path)
            if not path.strip("/") or parts.hosts:
                raise ConfigurationError(f"{shown!r} names no socket: write unix:///path/redis.sock")
            return cls._acknowledged_by_replicas(Server(path=path, **options), parts.options, shown)
        host, port = address(parts.hosts or "localhost", DEFAULT_PORT, shown)
        number = parts.path.strip("/")
        if number:
            options["db"] = database(unquote(number), shown)
        server = Server(tls=parts.scheme in {"rediss", "valkeys"}, host=host, port=port, **options)
        return cls._acknowledged_by_replicas(server, parts.options, shown)

    @classmethod
    def _acknowledged_by_replicas(cls, server: Server, given: dict[str, str], shown: str) -> RedisBackend:
        from fencelock.backends.redis.acknowledged import AcknowledgedBackend, acked_of

        wanted = acked_of(given, shown)
        return AcknowledgedBackend(server, wanted) if wanted else cls(server)

    def open(self, runtime: Runtime, namespace: str, lost: Callable[[str, str], None]) -> None:
        super().open(runtime, namespace, lost)
        self._places = Places(namespace)
        self._start()

    def _start(self) -> None:
        self._channel = b"fencelock:%b" % os.urandom(8).hex().encode()
        self._times: dict[float, bytes] = {}
        self._tails: dict[tuple[str, int, str | None], bytes] = {}
        self._waiting: dict[str, int] = {}
        self._wire: Wire
        self._listener: Listener
        if self.runtime.flavour == "asyncio":
            wire = self._wire = MultiplexedWire(self._topology)
            self._listener = TaskSubscription(wire, self._channel, self.lost)
        else:
            plain = self._wire = BlockingWire(self._topology)
            self._listener = ThreadSubscription(plain, self._channel, self.lost)
        self._call = self._wire.call

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            scope="cluster",
            use_for="efficiency",
            fencing="best-effort",
            crash_release="ttl",
            clock="exclusion",
            failover="exclusion",
            restart="exclusion",
            fairness="fifo",
            wakeup="push",
            min_ttl=0.05,
            max_ttl=LONGEST_TTL,
            caveats=(
                "leases expire by the server's clock: set forward, it ends them early; set back, it keeps "
                "dead holders longer",
                "a replica that is promoted may not know of the latest grants: two holders, and a token "
                "given twice if its clock is behind",
                "a server that loses its data (restart without persistence, FLUSHALL, eviction) loses the "
                "locks that are held; tokens still rise with its clock",
                "whoever can write to the server can take and break every lock on it",
            ),
        )

    # The steps ----------------------------------------------------------------------------

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        place = self._places.find(request.name)
        times = self._times.get(request.ttl) or self._pack_times(request.ttl)
        packed = b"%b%b$32\r\n%b\r\n%b%b%b" % (
            ACQUIRE_HEAD,
            place.with_counter,
            request.owner.encode(),
            times,
            self._tails.get((request.mode, request.limit, request.metadata)) or self._pack_tail(request),
            WAIT if wait else NO_WAIT,
        )
        reply = await self._call(ACQUIRE, place.bucket, packed, deadline)
        if reply.__class__ is int:
            return Grant(reply, request.ttl)
        if reply.__class__ is Again:
            return Grant(int(reply), request.ttl)
        return self._busy(request, reply, wait)

    def _busy(self, request: Request, reply: Sequence[Any], wait: bool) -> Busy:
        if len(reply) == 2:
            raise ConfigurationError(
                f"limit={request.limit} for semaphore {request.name!r}: it is in use with limit {reply[1]}, "
                "give the same one everywhere"
            )
        answer = Waiting(reply)
        if wait:
            self._waiting[request.owner] = answer.token
        return answer

    def _pack_times(self, ttl: float) -> bytes:
        packed = b"".join(word(b"%d" % time) for time in (ttl * 1e6, ceil(ttl * 1e3), patience(ttl) * 1e6))
        return _remember(self._times, ttl, packed)

    def _pack_tail(self, request: Request) -> bytes:
        packed = word(tail(request, self._channel))
        return _remember(self._tails, (request.mode, request.limit, request.metadata), packed)

    async def wait(self, request: Request, deadline: float) -> Grant | None:
        token = self._waiting.pop(request.owner, 0)
        if await self._listener.wait(request.owner, token, deadline):
            # The record has still a waiter's deadline: the lease is good for no longer until it is renewed.
            return Grant(token, min(request.ttl, patience(request.ttl)))
        return None

    def wake(self) -> None:
        self._listener.wake()

    async def renew(self, renewals: Sequence[Renewal], *, deadline: float) -> Sequence[Outcome]:
        outcomes = [Outcome.UNKNOWN] * len(renewals)
        chunks = list(self._chunks([renewal.request.name for renewal in renewals]))
        calls = (renewing([renewals[index] for index in chunk], self._places) for chunk in chunks)
        together = self._topology.is_sharded  # there are several servers, and many small calls
        asked = self._wire.each(list(calls), deadline) if together else self._wire.in_turn(calls, deadline)
        failure: Exception | None = None
        heard = False
        for chunk, reply in zip(chunks, await asked, strict=False):
            if isinstance(reply, Exception):
                failure = reply
                continue
            heard = True
            sent = [renewals[index] for index in chunk]
            found = as_sent(sent, outcomes_of(reply), twice=reply.__class__ is Replies)
            for index, outcome in zip(chunk, found, strict=True):
                outcomes[index] = outcome
        if failure is not None and not heard:
            raise failure
        return outcomes

    def _chunks(self, names: Sequence[str]) -> Iterator[Sequence[int]]:
        """Yield places in `names` whose locks one script may touch: of one bucket where slots matter."""
        groups: list[Sequence[int]] = [range(len(names))]
        if self._topology.is_sharded:
            buckets: dict[int, list[int]] = {}
            for index, name in enumerate(names):
                buckets.setdefault(self._places.find(name).bucket, []).append(index)
            groups = list(buckets.values())
        for group in groups:
            for start in range(0, len(group), CHUNK):
                yield group[start : start + CHUNK]

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        place = self._places.find(request.name)
        packed = b"%b%b$32\r\n%b\r\n$16\r\n%016d\r\n" % (
            LEAVE_HEAD,
            place.packed,
            request.owner.encode(),
            token,
        )
        reply = await self._call(LEAVE, place.bucket, packed, deadline)
        # Sent twice and not there: the first sending may have done it, and a lease that is held by the
        # clock was there a moment ago.
        return bool(reply) or reply.__class__ is Again

    async def abandon(self, request: Request, *, deadline: float) -> None:
        self._waiting.pop(request.owner, None)
        place = self._places.find(request.name)
        await self._call(LEAVE, place.bucket, self._abandonment(request), deadline)

    def _abandonment(self, request: Request) -> bytes:
        place = self._places.find(request.name)
        return LEAVE.call([place.key], request.owner.encode(), b"")

    # Looking --------------------------------------------------------------------------------

    async def inspect(self, name: str, *, deadline: float) -> LockState:
        (found,) = await self._look([name], deadline)
        return found

    async def list(self, prefix: str, *, deadline: float) -> Sequence[LockState]:
        names: set[str] = set()
        for server in await self._topology.servers(self._wire, deadline):
            names.update(await self._scan(server, prefix, deadline))
        states = await self._look(sorted(names), deadline)
        return sorted((one for one in states if not one.is_free), key=lambda one: one.name)

    async def _look(self, names: Sequence[str], deadline: float) -> Sequence[LockState]:
        """Read queues; those of one chunk by the time of one server."""
        chunks = [[names[index] for index in chunk] for chunk in self._chunks(names)]
        calls = []
        for chunk in chunks:
            places = [self._places.find(name) for name in chunk]
            calls.append(Call(None, places[0].bucket, TIME))
            calls += [Call(None, place.bucket, pack("HGETALL", place.key)) for place in places]
        replies = await self._wire.each(calls, deadline)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        states, read = [], iter(replies)
        for chunk in chunks:
            now = micros(next(read))
            states += [state(name, next(read), now) for name in chunk]
        return states

    async def _scan(self, server: Server, prefix: str, deadline: float) -> Sequence[str]:
        pattern = self._places.pattern(prefix)
        names, cursor = [], b"0"
        while True:
            reply = await self._wire.tell(
                server, "SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED, deadline=deadline
            )
            if isinstance(reply, Exception):
                raise said(server.label, str(reply))
            cursor, keys = reply
            found = [self._places.name_of(key) for key in keys]
            names += [name for name in found if name is not None and name.startswith(prefix)]
            if cursor == b"0":
                return names

    async def force_release(self, name: str, owner: str | None, *, deadline: float) -> Sequence[Entry]:
        place = self._places.find(name)
        now, *broken = await self._call(
            BREAK, place.bucket, BREAK.call([place.key], (owner or "").encode()), deadline
        )
        return [entry(*pair, int(now)) for pair in zip(broken[::2], broken[1::2], strict=True)]

    # The rest -------------------------------------------------------------------------------

    async def doctor(self) -> Sequence[Finding]:
        from fencelock.backends.redis.doctor import examine

        return await examine(self._wire, self.runtime.now() + 5.0, self.namespace)

    async def pulse(self, *, deadline: float) -> Sequence[Pulse]:
        from fencelock.backends.redis.facts import pulse

        return await pulse(self._wire, deadline)

    async def close(self) -> None:
        await self._listener.close()
        await self._wire.close()

    def forget(self, requests: Sequence[Request]) -> None:
        """On a connection of its own, whatever the flavour: the event loop is gone."""
        wire = BlockingWire(self._topology)
        calls = [
            Call(LEAVE, self._places.find(request.name).bucket, self._abandonment(request))
            for request in requests
        ]
        blocking_runtime.run(wire.each(calls, clock.now() + FORGET_LIMIT))
        blocking_runtime.run(wire.close())

    def forked(self) -> None:
        self._listener.drop()
        self._wire.drop()
        self._start()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._topology.label}>"


def _remember(known: dict[T, bytes], key: T, packed: bytes) -> bytes:
    """Keep what is asked for again and again, but not without end."""
    if len(known) >= REMEMBERED:
        known.clear()
    known[key] = packed
    return packed
