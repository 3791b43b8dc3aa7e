"""Waits for a lock while signals arrive: redis_signals.py URL WHAT

handler   SIGUSR1 runs a handler that takes a lock itself, with the same client
timer     a handler that does nothing runs ten times a second, while it waits
silent    the same, and the server has fallen silent
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

from resources import say

from fencelock import Client, FencelockError


def handler(locks: Client) -> None:
    def take(*_: Any) -> None:
        lease = locks.lock("handler", ttl=30).acquire(timeout=20)
        say(handler=lease.token, verified=lease.verify(), released=lease.release())

    signal.signal(signal.SIGUSR1, take)
    say(ready=True)
    with locks.lock("job", ttl=30) as lease:
        say(token=lease.token, verified=lease.verify())
        sys.stdin.readline()


def timer(locks: Client) -> None:
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    say(ready=True)
    for timeout in (0.5, 1.5):
        started = time.monotonic()
        try:
            locks.lock("job", ttl=30).acquire(timeout=timeout)
        except FencelockError as error:
            say(error=type(error).__name__, timeout=timeout, waited=time.monotonic() - started)
    sys.stdin.readline()
    signal.setitimer(signal.ITIMER_REAL, 0)  # while Python ends, a signal without a handler would kill it


def silent(locks: Client) -> None:
    locks.lock("warm up").acquire().release()
    say(ready=True)
    sys.stdin.readline()
    timer(locks)


if __name__ == "__main__":
    with Client(sys.argv[1]) as client:
        {"handler": handler, "timer": timer, "silent": silent}[sys.argv[2]](client)
