"""`redis+cluster://`: each bucket on the node that has its slot, wherever that goes.

A bucket's counter and all its locks have the same hash tag, so they are in one slot and on one node. The map
of slots is asked for at first use (CLUSTER SLOTS, from any node that answers) and kept. It is asked for
again when a node says that a slot has moved (MOVED, from the node that it names), does not answer,
or finds the cluster down.

While a slot moves its keys are in two places. A script on one key goes where ASK points to. One on
several keys is answered TRYAGAIN unless all of them are in the same place, and a lock that does not exist is
in none: to acquire a free lock takes until the slot has moved. Renewals fall back to one key each.

Pushes need no map: what is published on one node reaches the subscribers of all.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import hiredis
from redis.crc import key_slot

from fencelock.backends.redis.acknowledged import ACKED, AcknowledgedBackend, acked_of
from fencelock.backends.redis.failures import BACKEND, said
from fencelock.backends.redis.keys import BUCKETS, counter
from fencelock.backends.redis.moving import Moving, share, tls_of
from fencelock.backends.redis.renewals import outcomes_of, renewing
from fencelock.backends.redis.server import DEFAULT_PORT, OPTIONS, Server, options_of
from fencelock.backends.redis.wire import Wire
from fencelock.backends.url import addresses, hide_password, split
from fencelock.core.ports import Outcome, Renewal
from fencelock.errors import BackendUnavailable, ConfigurationError
from fencelock.guarantees import Guarantees
from fencelock.runtime import clock

__all__ = ["Cluster", "ClusterBackend"]

CLUSTER_OPTIONS = OPTIONS | {ACKED, "tls"}
PAUSE = 0.02
"""Seconds between two tries while a slot is moving."""
SLOTS = [key_slot(counter(bucket)) for bucket in range(BUCKETS)]
CHANGED = ("CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING", "UNBLOCKED")


def parse_slots(reply: Any, asked: str) -> Iterator[tuple[int, int, list[tuple[str, int]]]]:
    """Yield first and last slot of each range, and the addresses of its primary and its replicas.

    A node that does not know its own address leaves it out: it is the one that was asked.
    """
    for first, last, *nodes in reply:
        yield first, last, [address for node in nodes if (address := _address(node[0], node[1], asked))]


def _address(host: Any, port: int, asked: str) -> tuple[str, int] | None:
    text = host.decode() if isinstance(host, bytes) else host or ""
    return None if text == "?" else (text or asked, port)


def redirected(text: str, asked: str) -> tuple[int, str, int]:
    """Return slot, host and port of `MOVED 3999 127.0.0.1:6381`; no host means the one that was asked."""
    _, slot, place = text.split(" ")[:3]
    host, _, port = place.rpartition(":")
    return int(slot), host.strip("[]") or asked, int(port)


class Cluster(Moving):
    """The nodes that have the buckets."""

    is_sharded = True

    def __init__(self, addresses: Iterable[tuple[str, int]], like: Server) -> None:
        """`like` has the credentials of all nodes."""
        super().__init__(like)
        self._seeds = [self.at(host, port) for host, port in addresses]
        self.label = f"cluster of {', '.join(seed.label for seed in self._seeds)}"
        self._map: list[Server | None] = [None] * BUCKETS
        self._primaries: set[Server] = set()
        self._replicas: set[Server] = set()
        self._suspects: set[Server] = set()

    def known(self, bucket: int) -> Server | None:
        return self._map[bucket]

    def suspect(self, server: Server | None) -> None:
        if server is not None:
            self._suspects.add(server)
            self._map = [None if one is server else one for one in self._map]

    async def servers(self, wire: Wire, deadline: float) -> Sequence[Server]:
        await self._ask_around(wire, deadline)
        return sorted(self._primaries, key=lambda server: server.label)

    async def look(self, bucket: int, wire: Wire, deadline: float) -> Server:
        await self._ask_around(wire, deadline)
        found = self._map[bucket]
        if found is None:
            raise said(self.label, "CLUSTERDOWN")
        return found

    def asked(self, server: Server, text: str) -> Server:
        _, host, port = redirected(text, server.host)
        return self.at(host, port)

    async def correct(self, server: Server, text: str, wire: Wire, deadline: float) -> None:
        if text.startswith("MOVED "):
            await self._moved(server, text, wire, deadline)
            return
        if text.startswith("TRYAGAIN") and deadline - clock.now() > PAUSE:
            await wire.pause(PAUSE)
            return
        if text.startswith(CHANGED):
            self._map = [None] * BUCKETS
        raise said(server.label, text)

    async def _moved(self, server: Server, text: str, wire: Wire, deadline: float) -> None:
        slot, host, port = redirected(text, server.host)
        named = self.at(host, port)
        moved = [bucket for bucket in range(BUCKETS) if SLOTS[bucket] == slot]
        if all(self._map[bucket] is named for bucket in moved):
            return  # somebody has been told already
        try:
            self._read(await self._ask(named, wire, share(deadline, 2)), named)
        except BackendUnavailable:
            self._suspects.add(named)
        fresh = list(self._map)
        for bucket in moved:
            fresh[bucket] = named  # it may not have heard of it itself
        self._map = fresh

    async def _ask_around(self, wire: Wire, deadline: float) -> None:
        """Read the map of slots from whichever node answers first."""
        nodes = list(dict.fromkeys([*self._primaries, *self._replicas, *self._seeds]))
        nodes.sort(key=lambda node: (node in self._suspects, node not in self._primaries, random.random()))
        failures: list[BackendUnavailable] = []
        for left, node in zip(range(len(nodes), 0, -1), nodes, strict=True):
            try:
                reply = await self._ask(node, wire, share(deadline, left))
            except BackendUnavailable as error:
                self._suspects.add(node)
                failures.append(error)
            else:
                self._suspects.discard(node)
                self._read(reply, node)
                return
        passing = [failure for failure in failures if failure.transient]
        told = "; ".join(dict.fromkeys(failure.detail for failure in passing or failures))
        raise BackendUnavailable(backend=BACKEND, detail=told, transient=bool(passing))

    async def _ask(self, node: Server, wire: Wire, deadline: float) -> Any:
        try:
            reply = await wire.tell(node, "CLUSTER", "SLOTS", deadline=deadline)
        finally:
            if node not in self._primaries:
                await wire.part(node)
        if isinstance(reply, hiredis.ReplyError):
            if "cluster support disabled" in str(reply):
                detail = f"{node.label}: it is not in cluster mode: write redis://…"
                raise BackendUnavailable(backend=BACKEND, detail=detail, transient=False)
            raise said(node.label, str(reply))
        return reply

    def _read(self, reply: Any, asked: Server) -> None:
        fresh: list[Server | None] = [None] * BUCKETS
        primaries, replicas = set(), set()
        for first, last, places in parse_slots(reply, asked.host):
            nodes = [self.at(host, port) for host, port in places]
            primaries.update(nodes[:1])
            replicas.update(nodes[1:])
            for bucket, slot in enumerate(SLOTS):
                if nodes and first <= slot <= last:
                    fresh[bucket] = nodes[0]
        self._map, self._primaries, self._replicas = fresh, primaries, replicas
        living = primaries | replicas | set(self._seeds)
        self._suspects &= living
        self._servers = {place: server for place, server in self._servers.items() if server in living}


class ClusterBackend(AcknowledgedBackend):
    """Locks on the nodes of a Redis Cluster."""

    default_port = None  # the first node gives the addresses of the others
    renew_batch = 1000  # what is for one node it is sent together

    @classmethod
    def from_url(cls, url: str) -> ClusterBackend:
        parts, shown = split(url), hide_password(url)
        options = options_of(url, CLUSTER_OPTIONS)
        if parts.path.strip("/") not in {"", "0"} or options.pop("db", 0) != 0:
            raise ConfigurationError(f"{shown!r} names a database: a Cluster has only number 0, leave it out")
        like = Server(tls=tls_of(parts.options, shown), **options)
        nodes = addresses(parts.hosts, DEFAULT_PORT, shown)
        return cls(Cluster(nodes, like), acked_of(parts.options, shown))

    @property
    def guarantees(self) -> Guarantees:
        return self.with_acks(
            replace(
                super().guarantees,
                caveats=(
                    "leases expire by each node's clock: set forward, it ends them early; set back, it keeps "
                    "dead holders longer",
                    "a promoted replica may not know of the latest grants, renewals and places in the queue: "
                    "a lock may have two holders, the older of which learns of its loss at its next renewal; "
                    "tokens rise as long as the nodes' clocks agree, also when slots move",
                    "a primary that is cut off together with its clients goes on granting until "
                    "cluster-node-timeout is over",
                    "while a slot moves its free locks cannot be acquired; leases in it are renewed and "
                    "released",
                    "a node that loses its data and is not replaced (restart without persistence before it "
                    "is taken for dead) loses the locks on it; tokens still rise with its clock",
                    "whoever can write to the nodes can take and break every lock on them",
                ),
            )
        )

    async def renew(self, renewals: Sequence[Renewal], *, deadline: float) -> Sequence[Outcome]:
        if len(renewals) == 1:
            return await super().renew(renewals, deadline=deadline)
        now = clock.now()
        try:
            outcomes = list(await super().renew(renewals, deadline=now + (deadline - now) / 2))
        except BackendUnavailable:
            outcomes = [Outcome.UNKNOWN] * len(renewals)
        # Keys of a slot that is moving are in two places: what no script can reach together, each by itself.
        unknown = [index for index, outcome in enumerate(outcomes) if outcome is Outcome.UNKNOWN]
        calls = [renewing([renewals[index]], self._places) for index in unknown]
        for index, reply in zip(unknown, await self._wire.each(calls, deadline), strict=True):
            if not isinstance(reply, Exception):
                (outcomes[index],) = outcomes_of(reply)
        return outcomes
