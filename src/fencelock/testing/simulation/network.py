"""A network between simulated processes and a server, and its weather.

A step is three events: the request travels, the server does it, the reply travels. The
caller waits for the reply or its deadline, whichever comes first, and `BackendUnavailable` is
all it learns of a failure. What can happen to a step:

    lost request    never arrives; the caller hears nothing, or a reset
    lost reply      done, but the caller hears nothing, or a reset
    delay           of either, beyond the deadline and the ttl too; requests overtake each other
    duplicate       arrives a second time, later
    partition       nothing passes in one direction, or both
    failing kind    steps of one kind (renewals) get lost, all others pass

Messages are not kept in order, unless the weather says so: a request that was given up may
arrive after the clean-up that followed it, and leave an orphan for a ttl. That is harsher
than one TCP connection, and what several of them do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from fencelock.errors import BackendUnavailable, FencelockError
from fencelock.runtime.simulated import Gone, Process, Task, World
from fencelock.runtime.simulated.task import suspend

__all__ = ["Link", "Weather"]

T = TypeVar("T")


class _Failure(Enum):
    SILENCE = "no answer in time"
    RESET = "connection reset"


_SILENCE = _Failure.SILENCE
_RESET = _Failure.RESET


@dataclass(slots=True)
class Weather:
    """How the network behaves at the moment; all links of a world share one."""

    latency: float = 0.002  # seconds one way, on average
    lost_request: float = 0.0
    lost_reply: float = 0.0
    slow: float = 0.0  # share of the messages that take up to `slowest` seconds
    slowest: float = 0.0
    duplicate: float = 0.0
    lost_push: float = 0.0
    unknown: float = 0.0  # share of the renewals that are answered with UNKNOWN
    ordered: bool = False  # requests of one process arrive in the order in which they were sent
    failing: frozenset[str] = field(default_factory=frozenset)  # kinds of steps that fail

    def calm_down(self) -> None:
        """The faults are over."""
        self.lost_request = self.lost_reply = self.slow = self.duplicate = 0.0
        self.lost_push = self.unknown = 0.0
        self.failing = frozenset()


class Link:
    """The connection of one process to the server."""

    def __init__(self, process: Process, weather: Weather) -> None:
        self.process = process
        self.world: World = process.world
        self.weather = weather
        self.up = True  # from the process to the server
        self.down = True  # and back
        self._tail = 0.0  # when the last request in order arrives
        self.last = 0.0  # when the last message on its way will arrive
        self.random: random.Random = process.world.stream(f"{process.name}/link")

    async def request(
        self, kind: str, function: Callable[[], T], deadline: float, *, once: bool = False
    ) -> T:
        """Have the server do something; return its answer, or raise by `deadline`.

        With `once` it does not arrive a second time: the backend does not send it again.
        """
        world = self.world
        task = world.current
        if task is None or self.process.dead:
            raise Gone
        number = task.arm()
        self._trace("sends", kind, task)
        world.at(deadline, world.fire, task, number, _SILENCE)
        weather = self.weather
        if kind in weather.failing or not self.up or self.random.random() < weather.lost_request:
            self._reset(task, number)
        else:
            self._deliver(self._arrive, kind, function, task, number, ordered=weather.ordered)
            if self.random.random() < weather.duplicate and not once:
                self._deliver(self._again, function)
        answer: Any = await suspend()
        self._trace("hears", kind, task, answer)
        if isinstance(answer, _Failure):
            raise BackendUnavailable(backend="simulated", detail=answer.value)
        if isinstance(answer, FencelockError):
            raise answer
        result: T = answer
        return result

    def push(self, function: Callable[..., object], *args: Any) -> None:
        """Have the process do something, unless the message gets lost."""
        if self.down and self.random.random() >= self.weather.lost_push:
            self._deliver(self.process.call_soon, function, *args)

    def _arrive(self, kind: str, function: Callable[[], object], task: Task, number: int) -> None:
        if not self.up:
            return
        answer = self._again(function)
        self._trace("was done", kind, task, answer)
        if not self.down or self.random.random() < self.weather.lost_reply:
            self._reset(task, number)
        else:
            self._deliver(self.world.fire, task, number, answer)

    def _again(self, function: Callable[[], object]) -> object:
        try:
            return function()
        except FencelockError as error:
            return error

    def _reset(self, task: Task, number: int) -> None:
        # Half of the failures are noticed at once, the others only by silence.
        if self.random.random() < 0.5:
            self._deliver(self.world.fire, task, number, _RESET)

    def _trace(self, what: str, kind: str, task: Task, answer: object = "") -> None:
        if self.world.trace is not None:
            self.world.trace(f"{task.process.name:<8} {what} {kind} [{task.name}] {_tell(answer)}")

    def _deliver(self, function: Callable[..., object], *args: Any, ordered: bool = False) -> None:
        weather = self.weather
        delay = weather.latency * (0.1 + self.random.expovariate(1.0))
        if weather.slow and self.random.random() < weather.slow:
            delay = self.random.uniform(0.0, weather.slowest)
        arrival = self.world.now + delay
        if ordered:
            arrival = self._tail = max(arrival, self._tail + 1e-9)
        self.last = max(self.last, arrival)
        self.world.at(arrival, function, *args)


def _tell(answer: object) -> str:
    if isinstance(answer, tuple):
        answer = answer[0]
    slots = getattr(answer, "__slots__", ())
    if isinstance(answer, BaseException) or isinstance(slots, str) or not slots:
        return f"{answer}"
    fields = ", ".join(f"{name}={getattr(answer, name)!r}" for name in slots if name != "holder")
    return f"{type(answer).__name__}({fields})"
