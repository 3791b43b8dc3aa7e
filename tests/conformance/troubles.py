"""A machine in trouble: far too much to do, stalls, a store that falls silent. Nothing of it is an excuse."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from fencelock.backends.base import Busy, Grant, Request
from fencelock.errors import BackendUnavailable

from .broken import Broken

__all__ = ["TROUBLES", "silent"]

LOAD = 12
SPIN = "import time\nend = time.monotonic() + 120\nwhile time.monotonic() < end: pass"
STALL = """
import os, signal, sys, time
pid = int(sys.argv[1])
end = time.monotonic() + 120
while time.monotonic() < end:
    time.sleep(0.6)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.3)
    os.kill(pid, signal.SIGCONT)
"""


@contextmanager
def beside(code: str, count: int, *args: str) -> Iterator[None]:
    """Run this code in other processes meanwhile."""
    processes = [subprocess.Popen([sys.executable, "-c", code, *args]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def loaded(broken: type[Broken]) -> Iterator[type[Broken]]:
    """Twelve other processes want all of the processors."""
    with beside(SPIN, LOAD):
        yield broken


@contextmanager
def stalled(broken: type[Broken]) -> Iterator[type[Broken]]:
    """This process stands still for a third of the time."""
    with beside(STALL, 1, str(os.getpid())):
        yield broken


@contextmanager
def silent(broken: type[Broken]) -> Iterator[type[Broken]]:
    """The store does not answer the first request of each client."""

    class Silent(broken):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.is_silent = True

        async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
            if self.is_silent:
                self.is_silent = False
                raise BackendUnavailable(backend="silent", detail="no answer in time", transient=False)
            answer: Grant | Busy = await super().acquire(request, wait=wait, deadline=deadline)
            return answer

    yield Silent


TROUBLES: dict[str, Callable[[type[Broken]], AbstractContextManager[type[Broken]]]] = {
    "loaded": loaded,
    "stalled": stalled,
    "silent": silent,
}
