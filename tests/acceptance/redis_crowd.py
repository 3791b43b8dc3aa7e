"""A crowd at the doors of a few locks, in both flavours, while the servers behind them change places.

Each section reads a guarded resource, waits a moment and writes it; every invocation and return goes into
one history. Whatever a backend may raise during an outage is written down and the work goes on.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from types import TracebackType
from typing import Any, Self

from crew import PATIENCE, wait_until

import fencelock
from fencelock.testing import Attempt, History, Violation, check

MOMENT = 0.002


class Resource:
    """A number that remembers the newest token, and refuses older ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest = 0
        self._version = 0

    def read(self, token: int) -> int:
        with self._lock:
            self._check(token)
            return self._version

    def write(self, token: int) -> int:
        with self._lock:
            self._check(token)
            self._version += 1
            return self._version

    def _check(self, token: int) -> None:
        if token < self._newest:
            raise fencelock.StaleToken(resource="number", token=token, newest=self._newest)
        self._newest = token


class Crowd:
    """Threads, and tasks on a loop of their own, that take turns until the block ends."""

    def __init__(self, url: str, names: list[str], *, ttl: float = 5.0, each: int = 2) -> None:
        self.url, self.names, self.ttl, self.each = url, names, ttl, each
        self.history = History()
        self.resources = {name: Resource() for name in names}
        self.granted: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self._count = threading.Lock()
        self._over = threading.Event()
        count = range(len(names) * each)
        self.clients = [f"{kind}-{number}" for kind in ("thread", "task") for number in count]
        self._threads = [threading.Thread(target=asyncio.run, args=(self._loop(),))]
        self._threads += [threading.Thread(target=self._thread, args=(n,)) for n in count]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in self._threads), "somebody hangs"

    def everybody_gets_on(self, turns: int = 3) -> None:
        """Wait until every client had so many turns more."""
        before = Counter(self.granted)
        wait_until(
            lambda: all(self.granted[one] >= before[one] + turns for one in self.clients),
            f"{turns} grants each after {before}; errors: {self.errors}",
        )

    def violations(self, *undeclared: str) -> list[Violation]:
        """Return what the history shows of these rules; of all, if none is given."""
        report = check(self.history)
        assert report.grants > 0
        return [one for one in report.violations if not undeclared or one.rule in undeclared]

    # The work -----------------------------------------------------------------------------

    def _thread(self, number: int) -> None:
        name, client = self.names[number % len(self.names)], f"thread-{number}"
        with fencelock.Client(self.url, client_name=client) as locks:
            lock = locks.lock(name, ttl=self.ttl)
            while not self._over.is_set():
                attempt = self.history.acquire(client, name)
                try:
                    lease = lock.acquire(timeout=20)
                except fencelock.FencelockError as error:
                    self._note(attempt, error)
                    continue
                base = self._enter(attempt, lease)
                self._over.wait(MOMENT)
                self._leave(attempt, lease, base)
                try:
                    lease.release()
                except fencelock.FencelockError as error:
                    self.errors[f"release: {error}"] += 1
                attempt.released()

    async def _loop(self) -> None:
        async with fencelock.AsyncClient(self.url, client_name="loop") as locks, asyncio.TaskGroup() as group:
            for number in range(len(self.names) * self.each):
                group.create_task(self._task(locks, number))

    async def _task(self, locks: fencelock.AsyncClient, number: int) -> None:
        name, client = self.names[number % len(self.names)], f"task-{number}"
        lock = locks.lock(name, ttl=self.ttl)
        while not self._over.is_set():
            attempt = self.history.acquire(client, name)
            try:
                lease = await lock.acquire(timeout=20)
            except fencelock.FencelockError as error:
                self._note(attempt, error)
                continue
            base = self._enter(attempt, lease)
            await asyncio.sleep(MOMENT)
            self._leave(attempt, lease, base)
            try:
                await lease.release()
            except fencelock.FencelockError as error:
                self.errors[f"release: {error}"] += 1
            attempt.released()

    def _note(self, attempt: Attempt, error: fencelock.FencelockError) -> None:
        assert isinstance(error, fencelock.BackendUnavailable | fencelock.AcquireTimeout), error
        attempt.failed(str(error))
        self.errors[str(error)] += 1

    def _enter(self, attempt: Attempt, lease: Any) -> int | None:
        attempt.leased(lease)
        with self._count:
            self.granted[attempt.client] += 1
        try:
            return self.resources[attempt.name].read(lease.token)
        except fencelock.StaleToken:
            return None

    def _leave(self, attempt: Attempt, lease: Any, base: int | None) -> None:
        attempt.observe(lease)
        token, client, name = lease.token, attempt.client, attempt.name
        try:
            if base is None:
                raise fencelock.StaleToken(resource=name, token=token, newest=token)
            seq = self.resources[name].write(token)
        except fencelock.StaleToken:
            self.history.write(client, name, token=token, accepted=False)
        else:
            self.history.write(client, name, token=token, base=base, value=seq, seq=seq)
        attempt.release()
