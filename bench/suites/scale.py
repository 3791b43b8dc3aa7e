"""How much a backend carries: many names, one lock that everybody wants, clients at rest, renewals.

    python -m bench scale                        all backends: `bench/results/scales.json`
    python -m bench.suites.scale redis           one, as JSON

Each backend has a process of its own, with new servers beside it. Two processes hold the clients, asyncio all
of them. A load is so many clients with so many tasks each; of each the rate, the times, and the processor
time of both sides for one pair are told. What is full on this machine is worked out in `bench/scale`.

A sweep renews all leases of a client once, as the renewer does. One lease tells what the sign of life of a
client costs; many tell what each further lease adds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import effort
from bench.keep import RESULTS, about
from bench.measure import Figure, Result, Suite
from bench.scale.crowd import Crowd
from bench.scale.places import KINDS, NAMES, Place, opened
from bench.suites.leases import held, sweep

__all__ = ["CLIENTS", "HOT", "LOADS", "SUITE"]

LOADS = ((1, 1), (1, 8), (4, 4), (8, 8), (16, 8))
"""Clients, and tasks of each."""
HOT = (2, 8, 32)
"""Clients that want one lock."""
SECTION = 0.005
"""Seconds in which one of them keeps it, in a window of its own."""
CLIENTS = (8, 40)
"""At rest: what is between the two is divided."""
UNORDERED = {"redlock"}
"""Nobody sees who waits there."""
LEASES = effort.count(400)
SWEEPING = effort.seconds(0.8)
"""Seconds of sweeps, so that ticks of the processor's clock are small beside them."""
ROOT = Path(__file__).resolve().parents[2]


def scaled(kind: str) -> dict[str, Any]:
    """Measure one backend."""
    with opened(kind) as place:
        with Crowd(place) as crowd:
            crowd.open(max(clients for clients, _ in LOADS))
            loads = [
                {**crowd.window("pairs", clients, tasks=tasks), "tasks": tasks} for clients, tasks in LOADS
            ]
        with Crowd(place) as crowd:
            resting = [crowd.open(clients) for clients in CLIENTS]
            waiting = _waiting(crowd)
            crowd.all("rest")
            hot = [crowd.window("hot", clients, name=f"hot-{clients}", section=0.0) for clients in HOT]
            kept = crowd.window("hot", HOT[1], name="kept", section=SECTION)
        limit = place.limit
        return {
            "kind": kind,
            "version": place.version,
            "members": len(place.members),
            "limit": None if limit is None else {"setting": limit[0], "connections": limit[1]},
            "loads": loads,
            "hot": hot,
            "kept": {**kept, "section": SECTION},
            "resting": _each(resting[0], resting[1], CLIENTS[1] - CLIENTS[0]),
            "waiting": _each(resting[1], waiting, CLIENTS[1] - 1),
            "beat": _renewals(place, 1),
            "renewal": _renewals(place, LEASES),
        }


def _waiting(crowd: Crowd) -> dict[str, float]:
    """Return what is open while all but one wait."""
    crowd.one("hold", name="waited-for")
    crowd.all("wait", name="waited-for", waiters=0 if crowd.place.kind in UNORDERED else CLIENTS[1] - 1)
    crowd.settle()
    return crowd.open(CLIENTS[1])


def _each(few: dict[str, float], many: dict[str, float], clients: int) -> dict[str, float]:
    return {key: (many[key] - few[key]) / clients for key in few}


def _renewals(place: Place, leases: int) -> dict[str, float]:
    """Return the processor time of both sides for one lease in a sweep over so many."""
    with held(place.url, leases, f"renewed-{leases}") as locks:
        sweep(locks)
        ours, theirs, started = time.process_time(), place.processor(), time.perf_counter()
        count = 0
        while (took := time.perf_counter() - started) < SWEEPING:
            sweep(locks)
            count += leases
        return {
            "leases": leases,
            "seconds": took / count,
            "client": (time.process_time() - ours) / count,
            "server": (place.processor() - theirs) / count,
        }


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    """Measure every backend; keep the whole of it beside the figures that are plotted."""
    before, found = about(), []
    for kind in KINDS:
        progress(NAMES[kind])
        # Its package has imported it already, of which runpy warns.
        command = [sys.executable, "-W", "ignore::RuntimeWarning:runpy", "-m", "bench.suites.scale", kind]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=600)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "scales.json").write_text(json.dumps({**before, "backends": found}) + "\n", encoding="utf-8")
    titles = {"loads": "Pairs, many clients", "hot": "Handoffs, one lock and many clients"}
    return [
        Result(
            title,
            [Figure(NAMES[one["kind"]], "fencelock", [1 / one[key][-1]["rate"]]) for one in found],
            rate=True,
        )
        for key, title in titles.items()
    ]


SUITE = Suite(
    "scale", "pairs, handoffs, clients and renewals on each backend, until something is full", measure
)

if __name__ == "__main__":
    print(json.dumps(scaled(sys.argv[1])))
