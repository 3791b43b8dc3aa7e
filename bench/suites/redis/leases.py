"""1,000 to 100,000 leases on Redis held by one client: a sweep of renewals, memory, and who else feels it.

The limit renews as many bare keys, a hundred in each script. Peers know no sweep: they renew each lock by
itself, in turn, up to 10,000. A bystander, on a connection of its own, asks the server for nothing much all
the while; its 99th percentile is taken with and without the sweeps.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from tools.servers import start

from bench import effort
from bench.children import Child, Field
from bench.measure import Result, Suite
from bench.peers import Entry
from bench.peers.raw import Connection, pack
from bench.suites.leases import COUNTS, FENCELOCK, figure, grown, growth, holder, series
from bench.suites.redis import entrants
from bench.suites.targets import at_most
from bench.verdict import Verdict

__all__ = ["SUITE"]

ROUNDS = 7
SWEEPS = 5
RAW = Entry("bare keys, 100 in a script", "raw", "limit")
PEERS = [entrants.REDIS_PY, entrants.PYTHON_REDIS_LOCK]


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("redis") as group:
        field = Field(group.url, progress)
        return growth([hold(field, count) for count in COUNTS])


def hold(field: Field, count: int) -> Result:
    entries = [RAW, FENCELOCK, *(PEERS if count < COUNTS[-1] else [])]
    with contextlib.ExitStack() as stack:
        children: dict[Entry, Child] = {}
        for entry in entries:
            child = holder(field, entry, count)
            if child is not None:
                children[entry] = stack.enter_context(child)
        bystander = Bystander(field.url)
        stack.callback(bystander.close)
        told: dict[Entry, list[dict[str, Any]]] = {entry: [] for entry in children}
        alone, during = [], []
        for number in range(effort.rounds(ROUNDS)):
            field.progress(f"{count:,} leases, round {number + 1} of {ROUNDS}")
            alone.append(bystander.watch_for(0.2))
            during.append(bystander.watch(children[FENCELOCK], SWEEPS))
            for entry, child in children.items():
                told[entry].append(child.ask(1))  # these undisturbed
    figures = [
        figure(entry, [second for one in said for second in one["sweeps"]], said[-1])
        for entry, said in told.items()
    ]
    ours = next(one for one in figures if one.role == "fencelock")
    return Result(
        f"A sweep that renews {count:,} leases on redis://",
        figures,
        [*grown(figures), *field.notes()],
        verdicts=judged(ours.median, ours.extra, statistics.median(during), statistics.median(alone), count),
        key=f"redis.leases-{count}",
        series=series("redis://", count),
    )


def judged(sweep: float, extra: Any, during: float, alone: float, count: int) -> list[Verdict]:
    """Judge ten thousand leases; of other numbers, only tell how a bystander fares."""
    aside = f"{alone * 1e3:.2f} ms without sweeps"
    feels = Verdict("a bystander's p99 during sweeps", during * 1e3, unit=" ms", aside=aside)
    if count != COUNTS[1]:
        return [feels]
    return [
        at_most("sweep", sweep * 1e3, 60, " ms", key="sweep"),
        at_most("RSS", extra["rss"] / 2**20, 40, " MiB", key="memory"),
        at_most("threads", extra["threads"], 1, key="threads"),
        Verdict(feels.what, feels.value, 1, "most", " ms", "bystander", aside),
    ]


class Bystander:
    """Somebody else's work on the same server: a short command, again and again."""

    def __init__(self, url: str) -> None:
        self.connection = Connection(url)
        self.command = pack("GET", "bystander")

    def watch(self, child: Child, sweeps: int) -> float:
        """Return the p99 of the latency while the child sweeps."""
        child.tell(sweeps)
        latencies = [self.once()]
        while not child.has_answered():
            latencies.append(self.once())
        child.answer()
        return percentile(latencies)

    def watch_for(self, seconds: float) -> float:
        """Return the p99 of the latency while nobody does anything."""
        until = time.monotonic() + seconds
        latencies = [self.once()]
        while time.monotonic() < until:
            latencies.append(self.once())
        return percentile(latencies)

    def once(self) -> float:
        started = time.perf_counter()
        self.connection.send(self.command)
        return time.perf_counter() - started

    def close(self) -> None:
        self.connection.close()


def percentile(latencies: Sequence[float]) -> float:
    return sorted(latencies)[int(len(latencies) * 0.99)]


SUITE = Suite(
    "redis-leases", "1,000 to 100,000 leases on Redis: a sweep of renewals, memory, bystanders", measure
)
