"""What every measurement is given: where the locks are, names for them, its time, and the signal to stop.

Names are random under one prefix. A step that has begun is finished, so a measurement ends at most one step
after its time, and each step of a lock has `PATIENCE` seconds at most.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from fencelock.aio import AsyncClient
from fencelock.cli.options import open_client
from fencelock.client import Client
from fencelock.guarantees import Guarantees

__all__ = ["PATIENCE", "Course", "Stop"]

TTL = 30.0
PATIENCE = 5.0
WARM = 10
MOST = 1_000_000
"""So many steps are enough, whatever time is left: each of their times is kept."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """True once a signal has come that ends the command. It raises nothing: loops look at it."""

    signum = 0

    def __bool__(self) -> bool:
        return self.signum != 0

    def _note(self, signum: int, _: FrameType | None) -> None:
        self.signum = self.signum or signum

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Note signals while the block lasts. One that is ignored, as under nohup, stays ignored."""
        heard = [signum for signum in ENDING if signal.getsignal(signum) is not signal.SIG_IGN]
        before = {signum: signal.signal(signum, self._note) for signum in heard}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)


@dataclass(frozen=True, slots=True)
class Course:
    """One run of the benchmark."""

    url: str
    namespace: str | None
    seconds: float
    """How long each measurement takes."""
    tasks: int
    contenders: int
    leases: int
    stop: Stop
    prefix: str = field(default_factory=lambda: f"fencelock-bench-{os.urandom(8).hex()}")

    def name(self, what: str) -> str:
        return f"{self.prefix}:{what}"

    def ttl(self, guarantees: Guarantees) -> float:
        return max(TTL, guarantees.min_ttl)

    def blocking(self) -> Client:
        return open_client(self.url, self.namespace)

    def under_asyncio(self) -> AsyncClient:
        return AsyncClient(self.url, namespace=self.namespace)

    def warm(self, step: Callable[[], object]) -> None:
        """Do a step a few times: connecting is not what is measured."""
        until = time.perf_counter() + self.seconds / 10
        step()
        for _ in range(WARM - 1):
            if self.stop or time.perf_counter() >= until:
                return
            step()

    def repeat(self, step: Callable[[], object]) -> list[float]:
        """Do a step again and again while there is time, but at least once; return how long each took."""
        times: list[float] = []
        until = time.perf_counter() + self.seconds
        while not self.stop and len(times) < MOST:
            began = time.perf_counter()
            if times and began >= until:
                break
            step()
            times.append(time.perf_counter() - began)
        return times

    async def repeat_async(
        self, step: Callable[[], Coroutine[Any, Any, object]], until: float, most: int = MOST
    ) -> list[float]:
        """The same with coroutines; several may end at the same time."""
        times: list[float] = []
        while not self.stop and len(times) < most:
            began = time.perf_counter()
            if times and began >= until:
                break
            await step()
            times.append(time.perf_counter() - began)
        return times
