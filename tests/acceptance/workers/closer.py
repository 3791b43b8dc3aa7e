"""Closes a client in a signal handler, on the thread that acquires: closer.py URL NAME ROUNDS MARGIN TIMEOUT

The signal comes at a random moment within MARGIN seconds after the call of acquire(timeout=TIMEOUT). For each
round it says what happened in which order, and how long it took from the signal on; in the end, what is left
in the process.

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

    def __init__(self, url: str) -> None:
        self.locks = Client(url)
        self.locks.lock("warm up").acquire().release()
        self.order: list[str] = []
        self.signalled = 0.0
        signal.signal(signal.SIGALRM, self.handle)

    def handle(self, *_: Any) -> None:
        self.signalled = time.monotonic()
        self.order.append("closing")
        self.locks.close()
        self.order.append("closed")

    def acquire(self, name: str, delay: float, timeout: float) -> str:
        """Ask for a lock; return what became of that."""
        signal.setitimer(signal.ITIMER_REAL, delay)
        error = ""
        try:
            self.locks.lock(name, ttl=60).acquire(timeout=timeout)
            self.order.append("acquired")
        except FencelockError as reason:
            self.order.append("refused")
            error = type(reason).__name__
        while len(self.order) < 3:
            time.sleep(0.001)
        return error


def left() -> dict[str, int]:
    """Count what a client that was closed must not leave in its process."""
    gc.collect()
    files = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            files.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:  # the one that lists them
            continue
    return {
        "threads": sum(thread.name.startswith("fencelock") for thread in threading.enumerate()),
        "sockets": sum(file.startswith("socket:") for file in files),
    }


def main(url: str, name: str, rounds: int, margin: float, timeout: float) -> None:
    fencelock.core.acquire.patience = lambda ttl: 60.0
    before = left()
    for _ in range(rounds):
        one = Round(url)
        error = one.acquire(name, random.uniform(0.2, 1.0) * margin, timeout)
        say(order=one.order, error=error, took=time.monotonic() - one.signalled)
        sys.stdin.readline()
    del one
    until = time.monotonic() + 10  # threads may be on their way out
    while left() != before and time.monotonic() < until:
        time.sleep(0.01)
    say(before=before, after=left())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]))
