"""One lock on Redis, an empty section, 2, 8 and 32 processes: handoffs, fairness, work for the server.

A *handoff* is an acquisition by another process than the one before: whoever takes the lock back at once
has handed it to nobody. The share is the least-served process's part of the best-served one's. Script
calls are counted by the server, for each handoff.
"""

from __future__ import annotations

import contextlib
import random
import statistics
from collections.abc import Callable, Mapping, Sequence

from tools.servers import start

from bench.children import Child, ChildFailed, Field
from bench.measure import Figure, Result, Suite
from bench.peers import Entry
from bench.suites.redis import entrants
from bench.suites.redis.entrants import at_least, at_most, best_peer, named

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

Race = Mapping[str, float]


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("redis") as group:
        field = Field(group.url, progress)
        results = races(field, ENTRIES, "processes", (2, 8, 32))
        return [*results, *races(field, THREADED, "contenders", (32,))]


def races(field: Field, entries: Sequence[Entry], drill: str, sizes: Sequence[int]) -> list[Result]:
    with contextlib.ExitStack() as stack:
        children: dict[Entry, Child] = {}
        for entry in entries:
            field.progress(f"starting {entry.label}")
            child = field.start(entry, drill, {"seconds": SECONDS})
            if child is not None:
                children[entry] = stack.enter_context(child)
        return [_result(field, drill, size, _rounds(field, children, size)) for size in sizes]


def _rounds(field: Field, children: dict[Entry, Child], size: int) -> dict[Entry, list[Race]]:
    order = random.Random(size)
    seen: dict[Entry, list[Race]] = {entry: [] for entry in children}
    for number in range(ROUNDS):
        for entry, child in order.sample(list(children.items()), len(children)):
            if entry.label in field.absent:
                continue
            field.progress(f"{size} contenders, round {number + 1} of {ROUNDS}: {entry.label}")
            try:
                seen[entry].append(child.ask(size))
            except ChildFailed as error:
                field.fail(entry, error)
    return {entry: rounds for entry, rounds in seen.items() if len(rounds) == ROUNDS}


def _result(field: Field, drill: str, size: int, seen: dict[Entry, list[Race]]) -> Result:
    figures = [
        Figure(entry.label, entry.role, [1 / max(one["rate"], 1e-9) for one in rounds])
        for entry, rounds in seen.items()
    ]
    typical = {entry.label: _median(rounds) for entry, rounds in seen.items()}
    notes = [
        f"{name}: smallest share {one['share']:.2f}, {one['calls']:.1f} script calls a handoff, "
        f"{one['acquisitions']:,.0f} acquisitions/s"
        for name, one in typical.items()
    ]
    if drill == "processes":
        notes += targets(figures, typical["holdfast"])
        title = f"Handoffs among {size} processes on redis://"
    else:
        title = f"Handoffs among {size} threads of one process on redis://"
    missing = [f"left out: {label} ({reason})" for label, reason in field.absent.items()]
    return Result(title, figures, [*notes, *missing], rate=True)


def _median(rounds: Sequence[Race]) -> Race:
    return {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}


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
