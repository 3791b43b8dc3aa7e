"""A crowd: clients in several processes, told what to do at the same time, and what is seen meanwhile.

Two processes share the clients evenly. What they did in one window is added up, and the processor time of the
servers in the same window is put beside it.
"""

from __future__ import annotations

import itertools
import json
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench import effort
from bench.scale.places import Place, machine

__all__ = ["Crowd"]

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 2
HEAT = 0.5
WINDOW = 1.5
PATIENCE = 90.0
LOOKS = 6
"""As many looks at the connections must be alike."""


class Process:
    """One process of clients."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.scale.client", url],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def tell(self, word: str, **options: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([word, options]) + "\n")

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
            raise TimeoutError(f"no answer within {PATIENCE:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process of clients has ended; what it said is above")
        told: dict[str, Any] = json.loads(line)
        return told

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Crowd:
    """Clients of one place."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._processes = [Process(place.url) for _ in range(PROCESSES)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.end()

    def all(self, word: str, **options: Any) -> list[dict[str, Any]]:
        """Tell all of them, and return what each answers."""
        for process in self._processes:
            process.tell(word, **options)
        return [process.answer() for process in self._processes]

    def one(self, word: str, **options: Any) -> dict[str, Any]:
        self._processes[0].tell(word, **options)
        return self._processes[0].answer()

    def open(self, clients: int) -> dict[str, float]:
        """Have so many in all, and return what they and the servers have open."""
        told = self.all("open", clients=-(-clients // PROCESSES))
        ours = {f"client_{key}": sum(one[key] for one in told) for key in told[0]}
        return {**self.place.gauges(), **ours}

    def settle(self) -> None:
        """Return when nobody connects any more."""
        until, looks = time.monotonic() + PATIENCE, [-1]
        while len(set(looks[-LOOKS:])) > 1 or len(looks) < LOOKS:
            if time.monotonic() > until:
                raise TimeoutError("connections come and go")
            time.sleep(0.1)
            looks.append(self.place.connections())

    def window(self, word: str, clients: int, **options: Any) -> dict[str, Any]:
        """Let so many clients work, and return what was seen; one client is of one process alone."""
        heat, seconds = effort.seconds(HEAT), effort.seconds(WINDOW)
        begin = time.monotonic() + heat
        options |= {"begin": begin, "until": begin + seconds}
        chosen = self._processes[: min(clients, PROCESSES)]
        for process in chosen:
            process.tell(word, clients=clients // len(chosen), **options)
        before, after = (self._sample(at) for at in (begin, begin + seconds))
        took, server, busy, network = (last - first for first, last in zip(before, after, strict=True))
        told = [process.answer() for process in chosen]
        rate = sum(one["count"] / one["seconds"] for one in told)
        client = sum(one["processor"] / one["seconds"] for one in told)
        return {
            "clients": clients,
            "processes": len(chosen),
            "rate": rate,
            "server": server / took / rate,
            "client": client / rate,
            "network": network / took / rate,
            "others": max(0.0, (busy - server - network) / took - client),
            "times": _merged(told),
            **({"passed": _passed([one["turns"] for one in told])} if word == "hot" else {}),
        }

    def _sample(self, instant: float) -> tuple[float, ...]:
        time.sleep(max(0.0, instant - time.monotonic()))
        return time.monotonic(), self.place.processor(), *machine()


def _merged(told: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the times of all of them, as many as of one; each weighs the same, as their shares do."""
    times = sorted(seconds for one in told for seconds in one["times"])
    if len(times) < 3:
        return times
    return [times[0], *statistics.quantiles(times, n=100, method="inclusive"), times[-1]]


def _passed(turns: Sequence[Sequence[tuple[int, int]]]) -> float:
    """Return which part of the acquisitions was by another client than the one before, by their tokens."""
    order = sorted((token, process, client) for process, one in enumerate(turns) for token, client in one)
    changes = sum(1 for before, after in itertools.pairwise(order) if before[1:] != after[1:])
    return changes / max(len(order) - 1, 1)
