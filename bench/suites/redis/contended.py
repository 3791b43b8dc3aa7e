"""One lock on Redis, an empty section, 2, 8 and 32 processes: handoffs, fairness, work for the server.

What a handoff and a share are is told in `bench.races`. Script calls are counted by the server, for each
handoff.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tools.servers import start

from bench.children import Field
from bench.measure import Figure, Result, Suite
from bench.peers import Entry
from bench.races import Race, figures_of, races, typical
from bench.suites.redis import entrants
from bench.suites.targets import at_least, at_most, best_peer, named

__all__ = ["SUITE"]

SECONDS = 1.0
ROUNDS = 3

TOKEN = Entry("token passed by RPUSH and BLPOP", "token", "limit")
ENTRIES = [
    TOKEN,
    entrants.HOLDFAST,
    Entry("redis-py Lock, sleep 0.1", "redis_py", environment="redis-py", options={"sleep": 0.1}),
    Entry("redis-py Lock, sleep 0.001", "redis_py", environment="redis-py", options={"sleep": 0.001}),
    entrants.PYTHON_REDIS_LOCK,
    entrants.POTTERY,
]
THREADED = [TOKEN, entrants.HOLDFAST, entrants.PYTHON_REDIS_LOCK]


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("redis") as group:
        field = Field(group.url, progress)
        results = []
        for entries, drill, sizes in ((ENTRIES, "processes", (2, 8, 32)), (THREADED, "contenders", (32,))):
            raced = races(field, entries, drill, sizes, rounds=ROUNDS, seconds=SECONDS)
            results += [_result(field, drill, size, seen) for size, seen in raced]
        return results


def _result(field: Field, drill: str, size: int, seen: dict[Entry, list[Race]]) -> Result:
    figures, medians = figures_of(seen), typical(seen)
    notes = [
        f"{name}: smallest share {one['share']:.2f}, {one['calls']:.1f} script calls a handoff, "
        f"{one['acquisitions']:,.0f} acquisitions/s"
        for name, one in medians.items()
    ]
    if drill == "processes":
        notes += targets(figures, medians["holdfast"])
        title = f"Handoffs among {size} processes on redis://"
    else:
        title = f"Handoffs among {size} threads of one process on redis://"
    return Result(title, figures, [*notes, *field.missing()], rate=True)


def targets(figures: Sequence[Figure], typical: Race) -> list[str]:
    limit, ours, peer = named(figures, TOKEN.label), named(figures, "holdfast"), best_peer(figures)
    if limit is None or ours is None:
        return []
    notes = [at_least("holdfast's part of the limit", limit.median / ours.median, 0.65)]
    if peer is not None:
        notes.append(at_least(f"times the best peer ({peer.name})", peer.median / ours.median, 3))
    notes.append(at_least("smallest share", typical["share"], 0.9))
    notes.append(at_most("script calls a handoff", typical["calls"], 3))
    return notes


SUITE = Suite("redis-contended", "one lock on Redis, 2, 8 and 32 processes, beside a bare token", measure)
