"""How the latencies of single pairs on Redis are distributed: the tail tells what a median hides.

Each pair is timed by itself, one after the other, by one thread or one task. Rounds take turns, and all
pairs of all rounds are in one distribution, so whatever else the machine did is in everybody's tail.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from tools.servers import start

from bench.children import Field
from bench.measure import Figure, Result, Suite
from bench.peers import Entry
from bench.placing import apart
from bench.show import percentiles
from bench.suites.redis import entrants
from bench.suites.redis.pair import RAW
from bench.suites.redis.tasks import BLOCKING, REDIS_ASYNCIO
from bench.suites.targets import named
from bench.verdict import Verdict

__all__ = ["SUITE"]

ROUNDS, COUNT = 9, 500
PLACES = (50, 99)

THREADS = [
    RAW,
    entrants.FENCELOCK,
    entrants.REDIS_PY,
    entrants.REDLOCK_NG,
    entrants.PYTHON_REDIS_LOCK,
    entrants.POTTERY,
]
LIMIT = Entry(BLOCKING.label, BLOCKING.adapter, "limit", drill="latencies")
TASKS = [LIMIT, entrants.FENCELOCK, REDIS_ASYNCIO, entrants.REDLOCK_NG, entrants.POTTERY, entrants.AIOREDLOCK]


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("redis") as group:
        apart(group)
        field = Field(group.url, progress, seated=True)
        return [one(field, THREADS, "blocking"), one(field, TASKS, "asyncio")]


def one(field: Field, entries: Sequence[Entry], flavour: str) -> Result:
    figures = field.collect(entries, "latencies", rounds=ROUNDS, count=COUNT, options={"flavour": flavour})
    return Result(
        f"Single pairs on redis://, {flavour}",
        figures,
        [*map(percentiles, figures), *field.notes()],
        distribution=True,
        verdicts=to_limit(figures),
        key=f"redis.latency-{flavour}",
    )


def to_limit(figures: Sequence[Figure]) -> list[Verdict]:
    """Say how far fencelock is from the limit, in the middle and in the tail."""
    ours, limit = named(figures, entrants.FENCELOCK.label), figures[0]
    if ours is None:
        return []
    return [
        Verdict(f"fencelock to the limit, p{place}", percentile(ours, place) / percentile(limit, place))
        for place in PLACES
    ]


def percentile(figure: Figure, place: int) -> float:
    return statistics.quantiles(figure.rounds, n=100, method="inclusive")[place - 1]


SUITE = Suite("redis-latency", "latencies of single pairs on Redis, and their tails", measure)
