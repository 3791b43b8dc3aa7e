"""A cache without a stampede: many ask for a value that has expired, and it is computed once.

`naive` does what most caches do: look, compute if nothing is there, write. With a flight one of all callers
computes, and the others wait for the value. When it has expired, but not for long, nobody waits: the old one
is returned while one caller refreshes it in the background.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from fencelock import Client
from fencelock.flight import Flight

VISITORS = 50


class Database:
    """Something slow that counts how often it is asked."""

    def __init__(self) -> None:
        self.queries = 0

    def report(self) -> str:
        self.queries += 1
        time.sleep(0.1)
        return f"report {self.queries}"


def stampede(get: Callable[[], str]) -> set[str]:
    with ThreadPoolExecutor(VISITORS) as pool:
        return set(pool.map(lambda _: get(), range(VISITORS)))


def main() -> None:
    kept: dict[str, str] = {}
    slow, spared = Database(), Database()

    def naive() -> str:
        if "report" not in kept:
            kept["report"] = slow.report()
        return kept["report"]

    stampede(naive)
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        with Client(url) as locks, Flight(locks) as flight:
            seen = stampede(lambda: flight.get("report", spared.report, ttl=0.5, stale=60))
            print(f"{VISITORS} visitors: {slow.queries} queries by hand, {spared.queries} with a flight")
            assert seen == {"report 1"} and spared.queries == 1
            time.sleep(0.6)  # it has expired
            began = time.monotonic()
            assert flight.get("report", spared.report, ttl=0.5, stale=60) == "report 1"
            print(f"expired, and the old one was there within {time.monotonic() - began:.3f}s")
            while flight.get("report", spared.report, ttl=0.5, stale=60) == "report 1":
                time.sleep(0.01)  # until it is refreshed, in the background


if __name__ == "__main__":
    main()
