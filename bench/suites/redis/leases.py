"""Ten thousand leases on Redis held by one client: a sweep of renewals, memory, and who else feels it.

The limit renews as many bare keys, a hundred in each script. A bystander, on a connection of its own, asks
the server for nothing much all the while; its 99th percentile is taken with and without the sweeps.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from tools.servers import start

from bench.children import Child, Field
from bench.measure import Figure, Result, Suite
from bench.peers import Entry
from bench.peers.raw import Connection, pack
from bench.suites.redis import entrants
from bench.suites.targets import at_most

__all__ = ["SUITE"]

COUNTS = (1_000, 10_000)
ROUNDS = 7
SWEEPS = 5
RAW = Entry("bare keys, 100 in a script", "raw", "limit")


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with start("redis") as group:
        field = Field(group.url, progress)
        return [hold(field, count) for count in COUNTS]


def hold(field: Field, count: int) -> Result:
    field.progress(f"taking {count:,} leases")
    with contextlib.ExitStack() as stack:
        children = []
        for entry in (RAW, entrants.HOLDFAST):
            child = field.start(entry, "leases", {"count": count})
            assert child is not None  # neither is a peer
            children.append(stack.enter_context(child))
        bystander = Bystander(field.url)
        stack.callback(bystander.close)
        bare: list[float] = []
        ours: list[float] = []
        told: dict[str, Any] = {}
        alone, during = [], []
        for number in range(ROUNDS):
            field.progress(f"{count:,} leases, round {number + 1} of {ROUNDS}")
            bare += children[0].ask(1)["sweeps"]
            alone.append(bystander.watch_for(0.2))
            during.append(bystander.watch(children[1], SWEEPS))
            told = children[1].ask(1)  # this one undisturbed
            ours += told["sweeps"]
    figures = [Figure(RAW.label, RAW.role, bare), Figure("holdfast", "holdfast", ours)]
    notes = [
        *targets(statistics.median(ours), told, count),
        f"a bystander's p99: {statistics.median(during) * 1e3:.2f} ms during sweeps, "
        f"{statistics.median(alone) * 1e3:.2f} ms without (wanted: below 1 ms)",
    ]
    return Result(f"A sweep that renews {count:,} leases on redis://", figures, notes)


def targets(sweep: float, told: dict[str, Any], count: int) -> list[str]:
    grown = told["grown"] / 2**20
    notes = [f"RSS +{grown:.1f} MiB; threads +{told['threads']}"]
    if count == COUNTS[-1]:
        notes.append(at_most("sweep", sweep * 1e3, 60, " ms"))
        notes.append(at_most("RSS", grown, 40, " MiB"))
    return notes


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
    "redis-leases", "1,000 and 10,000 leases on Redis: a sweep of renewals, memory, bystanders", measure
)
