"""A program under gevent: `gevent_program.py URL` lets a hundred greenlets share a client, and tells all."""

from __future__ import annotations

from gevent import monkey  # type: ignore[import-untyped]

monkey.patch_all()

import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterator  # noqa: E402

import gevent  # noqa: E402

from fencelock import Client  # noqa: E402

GREENLETS = 100
NAMES = 5
TTL = 6.0
"""A busy machine must not lose it: renewals wait for a connection too."""
PATIENCE = 120.0


class Counter:
    """What one lock guards: an update that another greenlet could break in two."""

    def __init__(self) -> None:
        self.value = self.inside = self.most = 0
        self.tokens: list[int] = []

    def update(self, token: int) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.tokens.append(token)
        value = self.value
        gevent.sleep(0.001)
        self.value = value + 1
        self.inside -= 1


def ticks(seen: list[float]) -> Iterator[None]:
    """Note how long a greenlet that only sleeps has to wait for its turn."""
    while True:
        before = time.monotonic()
        gevent.sleep(0.01)
        seen.append(time.monotonic() - before)
        yield


def main(url: str) -> dict[str, object]:
    counters = [Counter() for _ in range(NAMES)]
    with Client(url) as locks:
        locks.lock("gevent-first").acquire().release()  # it sets up the store, which may take long

        def work(number: int) -> None:
            with locks.lock(f"gevent-{number % NAMES}", timeout=PATIENCE) as lease:
                counters[number % NAMES].update(lease.token)

        def keep() -> bool:
            ttl = max(TTL, locks.guarantees.min_ttl)
            with locks.lock("gevent-kept", ttl=ttl) as lease:
                gevent.sleep(1.5 * ttl)
                return lease.is_held() and lease.verify()

        kept = gevent.spawn(keep)
        others = [gevent.spawn(work, number) for number in range(GREENLETS)]
        seen: list[float] = []
        clock = ticks(seen)
        while not all(each.dead for each in [kept, *others]):
            next(clock)
        for each in others:
            each.get()
        return {
            "values": [counter.value for counter in counters],
            "most": [counter.most for counter in counters],
            "rising": all(counter.tokens == sorted(set(counter.tokens)) for counter in counters),
            "renewed": kept.get(),
            "turns": len(seen),
            "left": [state.name for state in locks.list("gevent-")],
        }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
