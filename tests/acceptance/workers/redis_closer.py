"""Closes a client in a signal handler, on the thread that uses it: redis_closer.py URL WHAT ROUNDS

waiting    while the thread waits for the lock "job", which another process holds
acquiring  at any point of taking the lock "free", which is free

It says for each round what happened in which order, how long it took from the signal on, and what is left.

A wait is made to last: only a close that ends it can explain that it ends soon.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import time
from typing import Any

from resources import say

import fencelock.core.acquire
from fencelock import Client, FencelockError


class Round:
    """One client, and one signal."""

    def __init__(self, url: str, *, is_connected: bool = True) -> None:
        self.locks = Client(url)
        if is_connected:
            self.locks.lock("warm up").acquire().release()
        self.order: list[str] = []
        self.signalled = self.closed = 0.0
        signal.signal(signal.SIGALRM, self.handle)

    def handle(self, *_: Any) -> None:
        self.signalled = time.monotonic()
        self.order.append("closing")
        self.locks.close()
        self.closed = time.monotonic()
        self.order.append("closed")

    def acquire(self, name: str, delay: float) -> str:
        """Ask for a lock that is free, or never will be; return what became of that."""
        signal.setitimer(signal.ITIMER_REAL, delay)
        try:
            self.lease = self.locks.lock(name, ttl=30).acquire(timeout=60)
            self.order.append("acquired")
            return ""
        except FencelockError as error:
            self.order.append("refused")
            return f"{type(error).__name__}: {error}"

    def finish(self) -> None:
        """Wait for the signal, if it has not come yet."""
        while len(self.order) < 3:
            time.sleep(0.001)


def left() -> dict[str, int]:
    """Count what a client that was closed must not leave in its process."""
    gc.collect()
    names = [thread.name for thread in threading.enumerate()]
    files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if is_open(fd)]
    return {
        "threads": sum(name.startswith("fencelock") for name in names),
        "files": sum(file.startswith(("socket:", "pipe:")) for file in files),
    }


def is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")  # the one that lists them is not


def settled(before: dict[str, int]) -> dict[str, int]:
    """Give threads that are on their way out the time for it."""
    until = time.monotonic() + 10
    while left() != before and time.monotonic() < until:
        time.sleep(0.01)
    return left()


def main(url: str, what: str, rounds: int) -> None:
    fencelock.core.acquire.patience = lambda ttl: 60.0
    before = left()
    for number in range(rounds):
        if what == "waiting":
            one = Round(url)
            error = one.acquire("job", 0.05 + 0.01 * number)
            took = time.monotonic() - one.signalled
        else:
            one = Round(url, is_connected=number % 2 == 0)
            error = one.acquire("free", 1e-6 + random.random() ** 2 * 0.003)
            one.finish()
            took = one.closed - one.signalled
        say(order=one.order, error=error, took=took)
        sys.stdin.readline()
    say(before=before, after=settled(before))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
