"""How names spread: over the 256 buckets, over the nodes of a Redis Cluster, over several servers or files.

Buckets and slots are those of the backend itself. A Cluster of n nodes is one as `redis-cli --cluster create`
makes it: each node has as many slots as the next one, in one piece. Several servers are chosen between as the
docs tell: by the CRC-32 of the name.

What a set of servers carries is decided by the one that has the most to do: with the share s of all names it
carries 1/s of what one server does, if all names are wanted equally often.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

from fencelock.backends.redis.cluster import SLOTS
from fencelock.backends.redis.keys import BUCKETS, Places

__all__ = ["NODES", "SETS", "node_of", "shares", "spread"]

NODES = (3, 6, 12)
SETS = (2, 4)
"""Servers, databases or files that do not know of each other."""
ALL_SLOTS = 16_384
COUNT = 100_000


def names(count: int = COUNT) -> Iterator[str]:
    """Yield names as people choose them: numbers, ids, paths."""
    drawn = random.Random(1)
    for number in range(count):
        match number % 3:
            case 0:
                yield f"invoice:{number}"
            case 1:
                yield f"job-{drawn.getrandbits(64):016x}"
            case _:
                yield f"/data/{drawn.randrange(100)}/part-{number:06d}.csv"


def node_of(slot: int, nodes: int) -> int:
    """Return which of so many nodes has that slot."""
    bounds = [round((node + 1) * ALL_SLOTS / nodes) for node in range(nodes)]
    return next(node for node, bound in enumerate(bounds) if slot < bound)


def buckets() -> list[int]:
    """Return how many of the names are in each bucket."""
    places = Places("default")
    counted = Counter(places.find(name).bucket for name in names())
    return [counted[bucket] for bucket in range(BUCKETS)]


def shares(nodes: int) -> list[float]:
    """Return which part of the names each node of a Cluster has."""
    return _parts([node_of(slot, nodes) for slot in SLOTS], buckets(), nodes)


def _parts(owners: Sequence[int], weights: Sequence[int], nodes: int) -> list[float]:
    total = sum(weights)
    held = [0] * nodes
    for owner, weight in zip(owners, weights, strict=True):
        held[owner] += weight
    return [weight / total for weight in held]


def split(servers: int) -> list[float]:
    """Return which part of the names each of several servers has."""
    counted = Counter(crc32(name.encode()) % servers for name in names())
    return [counted[server] / COUNT for server in range(servers)]


def spread() -> dict[str, Any]:
    """Return all that the page tells of it."""
    counted = buckets()
    owned = {nodes: Counter(node_of(slot, nodes) for slot in SLOTS) for nodes in NODES}
    return {
        "names": COUNT,
        "buckets": BUCKETS,
        "bucket": [min(counted) / COUNT, max(counted) / COUNT],
        "clusters": [
            {"nodes": nodes, "buckets": sorted(owned[nodes].values()), "shares": sorted(shares(nodes))}
            for nodes in NODES
        ],
        "sets": [{"servers": servers, "shares": sorted(split(servers))} for servers in SETS],
    }
