"""Workers: threads or tasks that do one job after another in the background, and end when there is none.

To start a thread takes a millisecond; so one that has nothing to do stays for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from fencelock.runtime import locks
from fencelock.runtime.base import Runtime, Service

__all__ = ["Workers"]

LINGER = 2.0
"""Seconds that a worker waits for another job."""
FAREWELL = 1.0
"""Seconds that closing waits for each worker."""
Job = Callable[[], Coroutine[Any, Any, None]]


class Worker:
    """One thread or task."""

    def __init__(self, runtime: Runtime, job: Job) -> None:
        self.job: Job | None = job
        self.signal = runtime.signal()
        self.service: Service | None = None


class Workers:
    """The workers of a client: as many as there are jobs."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self._runtime = runtime
        self._name = name
        self._lock = locks.rlock()  # a signal's handler may come in the middle
        self._all: set[Worker] = set()
        self._resting: list[Worker] = []
        self._is_closed = False

    def start(self, job: Job) -> None:
        """Do a job in the background. It must not raise, and end soon once the workers are to be closed."""
        with self._lock:
            if self._is_closed:
                return
            if self._resting:
                worker = self._resting.pop()
                worker.job = job
                worker.signal.notify()
                return
            worker = Worker(self._runtime, job)
            self._all.add(worker)
            try:
                worker.service = self._runtime.spawn(self._work(worker), self._name)
            except BaseException:
                self._all.discard(worker)
                raise

    async def _work(self, worker: Worker) -> None:
        try:
            while (job := worker.job) is not None:
                worker.job = None
                await job()
                with self._lock:
                    if self._is_closed:
                        return
                    self._resting.append(worker)
                await worker.signal.wait(LINGER)
                with self._lock, suppress(ValueError):  # an interrupted `start` may have taken it
                    self._resting.remove(worker)
        finally:
            self._all.discard(worker)

    async def close(self) -> None:
        """Wait until all have ended; their jobs are about to."""
        with self._lock:
            self._is_closed = True
            workers = list(self._all)
        for worker in workers:
            worker.signal.notify()
        for worker in workers:
            if worker.service is not None:
                await worker.service.join(FAREWELL)
