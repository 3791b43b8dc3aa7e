"""Many schedules on all cores: counted, judged, and thrown away unless they fail.

A *schedule* is one seed in one flavour of the lease machine (the core in the simulator), or one seed of the
quorum's token protocol. Seeds are dealt out in small chunks to one process per core; what comes back is
counts, and the text of the first failures. A failing schedule is replayed from its seed, so no history is
kept.

Not promised: that the counts of an interrupted sweep are those of its whole range. They say how many
schedules they are of.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from fencelock.runtime.simulated.world import Flavour
from fencelock.testing.simulation import quorum
from fencelock.testing.simulation.run import quiet, simulate

__all__ = ["Job", "Machine", "Tally", "commit", "cores", "save", "sweep"]

Machine = Literal["lease", "quorum"]

CHUNK = 100
"""Seeds that a process runs before it says what became of them, and before the collector runs."""
MOST_FAILURES = 20
"""Failures whose text is kept."""


class Job(NamedTuple):
    """What is run of each seed."""

    machine: Machine = "lease"
    flavours: tuple[Flavour, ...] = ("blocking", "asyncio")
    kinds: tuple[str, ...] | None = None


@dataclass
class Tally:
    """What became of some schedules."""

    schedules: int = 0
    grants: int = 0
    failed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """What else happened: losses, writes that a guard refused, …"""
    faults: Counter[str] = field(default_factory=Counter)
    """Of the lease machine: schedules that have such a fault. Of the quorum: how often it struck."""
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count these too."""
        self.schedules += other.schedules
        self.grants += other.grants
        self.failed += other.failed
        self.counts.update(other.counts)
        self.faults.update(other.faults)
        self.failures = [*self.failures, *other.failures][:MOST_FAILURES]

    def fail(self, what: str) -> None:
        """One schedule broke a rule."""
        self.failed += 1
        self.failures = [*self.failures, what][:MOST_FAILURES]

    def summary(self, job: Job, seeds: range, seconds: float, commit: str) -> dict[str, object]:
        """Return everything a reader of the figures wants to know, as JSON carries it."""
        return {
            "machine": job.machine,
            "schedules": self.schedules,
            "seeds": [seeds.start, seeds.stop],
            "flavours": list(job.flavours) if job.machine == "lease" else [],
            "grants": self.grants,
            "violations": self.failed,
            "faults": dict(sorted(self.faults.items())),
            "counts": dict(sorted(self.counts.items())),
            "failures": self.failures,
            "seconds": round(seconds, 1),
            "schedules_per_second": round(self.schedules / max(seconds, 1e-9)),
            "python": platform.python_version(),
            "commit": commit,
        }


def sweep(
    job: Job, seeds: range, processes: int = 1, progress: Callable[[Tally], object] | None = None
) -> Tally:
    """Run all these seeds; `progress` is told of the counts so far, again and again.

    Ctrl-C ends it early: what is returned then counts what was run.
    """
    total = Tally()
    try:
        for part in _parts(job, seeds, processes):
            total.add(part)
            if progress is not None:
                progress(total)
    except KeyboardInterrupt:
        total.counts["interrupted"] = 1
    return total


def cores() -> int:
    """Return how many processes can run at once."""
    return len(os.sched_getaffinity(0))


def commit() -> str:
    """Return the commit that is run, with a + if the package differs from it; empty outside a checkout."""
    package = Path(__file__).parents[2]
    try:
        head = _git(package, "rev-parse", "--short=12", "HEAD")
        return head.stdout.strip() + "+" * _git(package, "diff", "--quiet", "HEAD", ".").returncode
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    asked = ("git", "-C", str(folder), *command)
    return subprocess.run(asked, capture_output=True, text=True, check=command[0] == "rev-parse")


def save(path: Path, summary: dict[str, object]) -> None:
    """Write a summary where a report will find it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=2) + "\n")


def _parts(job: Job, seeds: range, processes: int) -> Iterator[Tally]:
    chunks = [(job, seeds[start : start + CHUNK]) for start in range(0, len(seeds), CHUNK)]
    if processes <= 1:
        yield from map(_run, chunks)
        return
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap_unordered(_run, chunks)


def _run(chunk: tuple[Job, Sequence[int]]) -> Tally:
    job, seeds = chunk
    tally = Tally()
    with quiet():
        for seed in seeds:
            if job.machine == "quorum":
                _vote(tally, seed)
            else:
                for flavour in job.flavours:
                    _lease(tally, seed, flavour, job.kinds)
    gc.collect()  # `quiet` keeps the collector from running in the middle of a schedule
    return tally


def _lease(tally: Tally, seed: int, flavour: Flavour, kinds: tuple[str, ...] | None) -> None:
    result = simulate(seed, flavour, kinds)
    report = result.report
    tally.schedules += 1
    tally.grants += report.grants
    tally.counts.update(
        losses=report.losses,
        renewals=report.renewals,
        crashes=report.crashes,
        rejected=report.rejected,
        lost_updates=report.lost_updates,
    )
    tally.faults.update(result.plan.kinds or ("none",))
    if not result.ok:
        tally.fail(str(result))


def _vote(tally: Tally, seed: int) -> None:
    outcome = quorum.simulate(seed)
    tally.schedules += 1
    tally.grants += len(outcome.grants)
    tally.faults.update(outcome.faults)
    tally.counts.update(readmitted=outcome.readmitted)
    if outcome.duplicates or outcome.disorders:
        tally.fail(str(outcome))
