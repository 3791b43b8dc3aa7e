"""Many leases held by one client: what a sweep of renewals costs, in time and memory."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import holdfast
from bench.measure import Figure, Result, Suite
from holdfast.core import renew
from holdfast.runtime.blocking import run

__all__ = ["SUITE"]

TTL = 300.0
ROUNDS = 5


def resident() -> int:
    """Return the memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@contextlib.contextmanager
def held(url: str, count: int) -> Iterator[holdfast.Client]:
    with holdfast.Client(url) as locks:
        leases = [locks.lock(f"lease-{number}", ttl=TTL).acquire() for number in range(count)]
        yield locks
        del leases


def sweep(locks: holdfast.Client) -> float:
    """Renew everything once, as the renewer does; return the seconds that took."""
    session = locks._session
    holds = list(session.holds.values())
    size = session.backend.renew_batch
    started = time.perf_counter()
    for start in range(0, len(holds), size):
        run(renew._renew(session, holds[start : start + size]))
    return time.perf_counter() - started


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    results = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        for title, url in (("memory", "memory://leases"), ("sqlite", f"sqlite://{folder}/locks.db")):
            figures, notes = [], []
            for count in (1_000, 10_000):
                progress(f"{count} leases on {title}")
                before = resident()
                with held(url, count) as locks:
                    grown = resident() - before
                    rounds = [sweep(locks) for _ in range(ROUNDS)]
                figures.append(Figure(f"sweep of {count:,}", "holdfast", rounds))
                notes.append(f"{count:,} leases: RSS +{grown / 2**20:.1f} MiB")
            results.append(Result(f"Leases held by one client on {title}://", figures, notes))
    return results


SUITE = Suite("leases", "1,000 and 10,000 leases held by one client: a sweep of renewals, memory", measure)
