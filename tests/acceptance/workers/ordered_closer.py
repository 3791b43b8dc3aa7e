"""Closes clients in signal handlers, in the middle of a wait: `ordered_closer.py URL ROUNDS SEED`.

Each round makes a client that holds one lock and waits for another. A timer comes at some moment: the handler
closes the client. Says for each round what happened in which order, how long it took, and what was left.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from typing import Any

from fencelock import AcquireCancelled, Client, FencelockError

SETTLED = 5.0
"""Seconds after which whatever is still there is left."""


class Round:
    """One client, closed while it waits."""

    def __init__(self, url: str, number: int, after: float) -> None:
        self.client = Client(url)
        self.held = self.client.lock(f"held-{number}", ttl=20).acquire()
        self.order: list[str] = []
        self.began = self.ended = 0.0
        signal.signal(signal.SIGALRM, self.close)
        signal.setitimer(signal.ITIMER_REAL, after)
        try:
            self.client.lock("job", ttl=20).acquire(timeout=60)
        except AcquireCancelled as error:
            self.order.append(f"cancelled, {error.reason}")
        except FencelockError as error:
            self.order.append(repr(error))
        self.ended = time.monotonic()

    def close(self, *_: Any) -> None:
        self.began = time.monotonic()
        self.order.append("handler")
        self.client.close()
        self.order.append("closed")


def own() -> dict[str, int]:
    """What this process has. The holder's renewer comes and goes."""
    threads = [thread for thread in threading.enumerate() if thread.name != "fencelock-renewer"]
    return {"threads": len(threads), "files": len(os.listdir("/proc/self/fd"))}


def left(holder: Client, number: int, before: dict[str, int]) -> list[str]:
    """Return what there is that was not there before."""
    found = [f"{what}: {count}" for what, count in own().items() if count > before[what]]
    found += [f"waits: {waiter.owner}" for waiter in holder.inspect("job").waiters]
    found += [f"holds: {one.owner}" for one in holder.inspect(f"held-{number}").holders]
    return found


def main(url: str, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    with Client(url) as holder, holder.lock("job", ttl=20):
        with Client(url) as first:
            first.inspect("job")
        time.sleep(0.5)
        before = own()
        for number in range(rounds):
            # Every third comes while it gets in line, and some come with its heartbeat, a second later.
            after = chance.uniform(0.0, 0.02) if number % 3 == 2 else chance.uniform(0.1, 1.3)
            done = Round(url, number, after)
            until = time.monotonic() + SETTLED
            while (found := left(holder, number, before)) and time.monotonic() < until:
                time.sleep(0.01)
            took = done.ended - done.began
            print(json.dumps({"after": after, "order": done.order, "took": took, "left": found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
