"""The uncontended pair on Redis, blocking: one thread, and eight on different names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tools.servers import start

from bench.children import Field
from bench.measure import Figure, Result, Suite
from bench.peers import Entry
from bench.placing import apart, together
from bench.suites.redis import entrants
from bench.suites.targets import named, times_faster, to_limit
from bench.verdict import Verdict

__all__ = ["RAW", "SUITE"]

RAW = Entry("raw socket, SET and script", "raw", "limit")
ALONE = [
    RAW,
    entrants.FENCELOCK,
    entrants.SCRIPTS,
    entrants.REDIS_PY,
    entrants.REDLOCK_NG,
    entrants.PYTHON_REDIS_LOCK,
    entrants.TOOZ,
    entrants.SHERLOCK,
    entrants.POTTERY,
]
THREADED = [RAW, entrants.FENCELOCK, entrants.REDIS_PY, entrants.REDLOCK_NG, entrants.PYTHON_REDIS_LOCK]
THREADS = 8


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("redis") as group:
        apart(group)
        field = Field(group.url, progress, seated=True)
        alone = field.take_turns(ALONE, "pairs", rounds=15, count=1000)
        verdicts = [*to_limit(alone, 1.4), *faster(alone, 2.4)]
        title = "Uncontended pair on redis://, blocking"
        results = [Result(title, alone, field.notes(), verdicts=verdicts, key="redis.pair")]
        together(group)
        alone = field.take_turns(ALONE, "pairs", rounds=9, count=1000)
        verdicts = [*to_limit(alone, None), *faster(alone, None)]
        title = "The same, server and client on one processor"
        results.append(Result(title, alone, field.notes(), verdicts=verdicts, key="redis.pair-together"))
        apart(group)
        many = field.take_turns(THREADED, "threads", rounds=9, count=4000, options={"threads": THREADS})
        title = f"Uncontended pair on redis:// by {THREADS} threads, each with its own name"
        verdicts = to_limit(many, 2.5)
        results.append(Result(title, many, field.notes(), verdicts=verdicts, key=f"redis.threads-{THREADS}"))
    return results


def faster(figures: Sequence[Figure], target: float | None) -> list[Verdict]:
    ours, theirs = named(figures, entrants.FENCELOCK.label), named(figures, entrants.REDIS_PY.label)
    return times_faster("times faster than redis-py's Lock", ours, theirs, target, "redis-py")


SUITE = Suite("redis", "acquire-release pair on Redis, beside the raw socket and seven libraries", measure)
