"""A watchdog for blocking reads: it hangs up on a connection whose reply is long overdue.

A socket has a time limit of its own, but a read that a signal interrupts begins anew with its whole
limit (PEP 475): where a timer ticks, as profilers have it, and the server falls silent, it would
never end. One thread for the process looks at all connections in use, twice a second, and shuts
down those that are past their limit; the read then ends like any that was cut off.

The thread is there while there are connections, and ends with the last.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

from fencelock.runtime import clock, locks
from fencelock.runtime.blocking import BlockingSignal, run
from fencelock.runtime.threads import launch

__all__ = ["Watched", "forget", "watch"]

TICK = 0.5
GRACE = 0.25
"""The socket's own limit comes first; and a machine that is busy is no reason to hang up."""


class Watched(Protocol):
    """A connection: `until` is when its reply is due, infinity while it is idle."""

    until: float

    def hang_up(self) -> None: ...


class Watchdog:
    def __init__(self) -> None:
        self._lock = locks.rlock()  # a signal handler may take a lock, and connect for that
        self._links: weakref.WeakSet[Watched] = weakref.WeakSet()
        self._woken = BlockingSignal()
        self._thread: threading.Thread | None = None

    def watch(self, link: Watched) -> None:
        with self._lock:
            self._links.add(link)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="fencelock-watchdog", daemon=True)
                launch(thread)
                self._thread = thread

    def forget(self, link: Watched) -> None:
        with self._lock:
            self._links.discard(link)
            if not self._links:
                self._woken.notify()

    def _run(self) -> None:
        while True:
            run(self._woken.wait(TICK))
            with self._lock:
                links = list(self._links)
                if not links:
                    self._thread = None
                    return
            now = clock.now()
            for link in links:
                if link.until + GRACE < now:
                    link.hang_up()
            del links, link  # a connection must not live on because it is looked at


_watchdog = Watchdog()


def watch(link: Watched) -> None:
    """From now on the connection is looked at."""
    _watchdog.watch(link)


def forget(link: Watched) -> None:
    """The connection is closed."""
    _watchdog.forget(link)


def _anew() -> None:
    global _watchdog
    _watchdog = Watchdog()


os.register_at_fork(after_in_child=_anew)
