"""Virtual time, and what there is in it: stations that serve, gates that let in.

A *station* takes those that wait, serves them in one go, and answers them together: an event loop, or a log
that is written. The first of them takes as long as `alone` says, each further one as long as `crowd` says:
nobody has to be woken for it. Those who asked go on after the part `path` of it, and the rest is done behind
their backs. If it has a *host*, it needs one of the host's processors for as long. A *gate* lets so many in,
in the order in which they come: a lock, or the connections of a client.

Promised: the same seed gives the same course.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

__all__ = ["Cost", "Gate", "Host", "Station", "Step", "World", "majority"]

MOST = 64
"""Served in one go: as many as one side had under way in the largest crowd that was measured."""

Resume = Callable[[], None]
Step = Callable[[Resume], None]
"""Something that takes its time, and then resumes."""


class Cost(NamedTuple):
    """Seconds of a station for one step."""

    alone: float
    crowd: float


class World:
    """Virtual time."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Resume]] = []

    def after(self, seconds: float, call: Resume) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), call))

    def rest(self, seconds: float) -> Step:
        return lambda resume: self.after(seconds, resume)

    def live(self, body: Iterator[Step]) -> None:
        """Let it do its steps, one after the other."""

        def resume() -> None:
            step = next(body, None)
            if step is not None:
                step(resume)

        resume()

    def run(self, is_over: Callable[[], bool]) -> None:
        while self._events and not is_over():
            self.now, _, call = heapq.heappop(self._events)
            call()


class Station:
    """Serves those that wait in one go, `slots` times over, on the processors of `host` if it has one."""

    def __init__(self, world: World, slots: int = 1, host: Host | None = None, path: float = 1.0) -> None:
        self.busy = 0.0
        self._world = world
        self._host = host
        self._free = slots
        self._path = path
        self._queue: list[tuple[Cost, Resume]] = []

    def serve(self, cost: Cost) -> Step:
        def step(resume: Resume) -> None:
            self._queue.append((cost, resume))
            if self._free:
                self._free -= 1
                self._begin()

        return step

    def _begin(self) -> None:
        batch, self._queue = self._queue[:MOST], self._queue[MOST:]
        seconds = batch[0][0].alone + sum(cost.crowd for cost, _ in batch[1:])
        self.busy += seconds

        def end() -> None:
            if self._queue:
                self._begin()
            else:
                self._free += 1

        def answer() -> None:
            for _, resume in batch:
                resume()
            self._work(seconds * (1 - self._path), end)

        self._work(seconds * self._path, answer)

    def _work(self, seconds: float, then: Resume) -> None:
        if not seconds:
            then()
        elif self._host is None:
            self._world.after(seconds, then)
        else:
            self._host.work(seconds, then)


class Host:
    """So many processors, for whoever comes first."""

    def __init__(self, world: World, processors: int) -> None:
        self._world = world
        self._free = processors
        self._queue: deque[tuple[float, Resume]] = deque()

    def work(self, seconds: float, then: Resume) -> None:
        if not self._free:
            self._queue.append((seconds, then))
            return
        self._free -= 1

        def end() -> None:
            self._free += 1
            if self._queue:
                self.work(*self._queue.popleft())
            then()

        self._world.after(seconds, end)


class Gate:
    """Lets `slots` in, first come first served; whoever leaves lets the next one in."""

    def __init__(self, world: World, slots: int = 1) -> None:
        self._world = world
        self._free = slots
        self._queue: deque[Resume] = deque()

    def enter(self, resume: Resume) -> None:
        if self._free:
            self._free -= 1
            resume()
        else:
            self._queue.append(resume)

    def leave(self, seconds: float = 0.0) -> None:
        """The next one is in after so many seconds."""
        if self._queue:
            self._world.after(seconds, self._queue.popleft())
        else:
            self._free += 1


def majority(steps: Sequence[Step], needed: int) -> Step:
    """Do all at once, and go on when so many are done."""
    if len(steps) == 1:
        return steps[0]

    def step(resume: Resume) -> None:
        done = itertools.count(1)

        def one() -> None:
            if next(done) == needed:
                resume()

        for each in steps:
            each(one)

    return step
