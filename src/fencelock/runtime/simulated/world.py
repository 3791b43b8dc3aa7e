"""The world: virtual time, the scheduler, and the processes in it.

The heap holds (when, order, sequence, function, arguments). Time goes from event to event.
Events at one instant run in the order they were made under asyncio, whose loop is fair, and in
seeded random order in the blocking flavour, whose threads are not.

*Pre-emption.* A coroutine gives up control only where it awaits. But a real thread may lose
its CPU between any two instructions, and a real process may be stopped there. So the
runtime's plain functions (reading the clock above all) burn a fuse, and when it is out the
world runs on for a while *inside that call*: the other threads of the process as well
(blocking), or all but this process (a pause, both flavours). The interrupted frame stays on
Python's stack meanwhile; this yields the schedules in which the interrupted resume in
reverse order, and that is all the stack allows.

*Crash.* A dead process runs no more: its timers and replies find nobody, its coroutines are
never resumed, and one that is in the middle of a call gets `Gone` from it. What it has sent is
on its way nevertheless.

*Pause.* The clock goes on, the process does not. When it wakes, whatever became due
meanwhile is due at once.

Not promised: pre-emption between two instructions without an effect, and clocks that tick at
different rates.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Coroutine
from typing import Any, Literal, NamedTuple

from fencelock.runtime.simulated.task import Gone, Task

__all__ = ["Flavour", "Observer", "Process", "Stalls", "Stuck", "World"]

Flavour = Literal["blocking", "asyncio"]

MOST_EVENTS = 200_000
"""A run with more events than this goes round in circles."""
DEEPEST = 3
"""How many pre-empted frames may lie on the stack at once."""
NEVER = 1 << 60


class Stuck(RuntimeError):
    """The run has no end: something goes round in circles."""


class Observer:
    """Told of what happens to processes. This one does not care."""

    def paused(self, process: Process) -> None:
        """The process stops here."""

    def resumed(self, process: Process) -> None:
        """The process goes on."""

    def crashed(self, process: Process) -> None:
        """The process is about to die."""

    def stepped(self, task: Task) -> None:
        """A background service has done something and waits again."""

    def ended(self, task: Task) -> None:
        """A task has ended; `task.error` says how."""


class Stalls(NamedTuple):
    """How often a process is pre-empted in the middle of something, and for how long."""

    every: float = 0.0  # effects between two stalls, on average; 0 means never
    short: float = 0.005  # seconds, on average
    long: float = 0.0  # at most so many seconds
    share: float = 0.0  # of the stalls that are pauses of the whole process, and long


class Process:
    """A process: its tasks run, stand still and die together. `wall` is its wrong wall clock."""

    def __init__(self, world: World, name: str, stalls: Stalls) -> None:
        self.world = world
        self.name = name
        self.stalls = stalls
        self.random = world.stream(name)
        self.dead = False
        self.frozen_until = -math.inf
        self.halted = 0  # pauses in the middle of a call
        self.waiting: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.wall = 0.0  # how far its wall clock is off
        self.tasks: dict[Task, None] = {}
        self.fuse = NEVER
        self.light_fuse()

    def light_fuse(self) -> None:
        """Decide how many effects from now the next stall comes."""
        every = self.stalls.every
        self.fuse = 1 + int(self.random.expovariate(1 / every)) if every else NEVER

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> Task:
        """Start a task."""
        if self.dead:
            coroutine.close()
            raise Gone
        task = Task(self, coroutine, name)
        self.tasks[task] = None
        self.world.soon(task)
        return task

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Run a plain function in the process, when it runs."""
        self.world.at(self.world.now, self._call, function, args)

    def _call(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        if not self.dead and not self.must_wait(self._call, function, args):
            function(*args)

    def pause(self, seconds: float) -> None:
        """Stop here, and go on after so many seconds."""
        world = self.world
        if self.dead:
            return
        world.observer.paused(self)
        self.frozen_until = max(self.frozen_until, world.now + seconds)
        world.at(world.now + seconds, self._resume)

    def _go_on(self) -> None:
        self.halted -= 1
        if not self.halted:
            waiting, self.waiting = self.waiting, []
            for function, args in waiting:
                self.world.at(self.world.now, function, *args)
        self._resume()

    def must_wait(self, function: Callable[..., object], *args: Any) -> bool:
        """Whether the process stands still; if so, the function is called when it goes on."""
        if self.halted:
            # Another process may have been stalled inside our stall, for longer: the time of the
            # end is not enough to go by while an interrupted frame of ours lies on the stack.
            self.waiting.append((function, args))
        elif self.frozen_until > self.world.now:
            self.world.at(self.frozen_until, function, *args)
        else:
            return False
        return True

    def _resume(self) -> None:
        if not self.dead:
            self.world.observer.resumed(self)

    def crash(self) -> None:
        """Die at once, without any clean-up."""
        if not self.dead:
            self.world.observer.crashed(self)
            self.dead = True

    def stall(self) -> None:
        """The fuse is out: lose the CPU here, in the middle of a call."""
        self.light_fuse()
        world = self.world
        task = world.current
        if task is None or task.process is not self or world.depth >= DEEPEST or self.dead:
            return
        stalls = self.stalls
        pause = world.flavour == "asyncio"
        if self.random.random() < stalls.share:
            pause, seconds = True, self.random.uniform(0.0, stalls.long)
        else:
            seconds = self.random.expovariate(1 / stalls.short)
        if pause:
            world.observer.paused(self)
            self.frozen_until = max(self.frozen_until, world.now + seconds)
            self.halted += 1
        world.depth += 1
        try:
            world.run_inside(seconds)
            while self.frozen_until > world.now and not self.dead:
                world.run_inside(self.frozen_until - world.now)
        finally:
            world.depth -= 1
            if pause:
                self._go_on()
        if self.dead:
            raise Gone
        if world.flavour == "blocking" and task.pending is not None:
            strike, task.pending = task.pending, None
            raise strike.take()  # Ctrl-C came meanwhile, and it strikes between any two instructions

    def __repr__(self) -> str:
        return f"<Process {self.name}>"


class World:
    """Virtual time and whatever happens in it. Same seed, same run."""

    def __init__(self, seed: int, flavour: Flavour, *, start: float = 1000.0) -> None:
        self.seed = seed
        self.flavour: Flavour = flavour
        self.now = start
        self.observer = Observer()
        self.trace: Callable[[str], None] | None = None  # told of what no history shows
        self.current: Task | None = None
        self.depth = 0
        self.events = 0
        self.processes: list[Process] = []
        self._heap: list[tuple[float, float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._sequence = 0
        self._threads = flavour == "blocking"
        self._random = self.stream("scheduler")

    def stream(self, name: str) -> random.Random:
        """Return a source of random numbers that depends on the seed and the name alone."""
        return random.Random(f"{self.seed}/{self.flavour}/{name}")

    def process(self, name: str, stalls: Stalls | None = None) -> Process:
        """Start a process."""
        process = Process(self, name, stalls or Stalls())
        self.processes.append(process)
        return process

    def at(self, when: float, function: Callable[..., object], *args: Any) -> None:
        """Call the function at that time; now, if it has passed."""
        self._sequence += 1
        order = self._random.random() if self._threads else 0.0
        heapq.heappush(self._heap, (when, order, self._sequence, function, args))

    def run(self, until: float) -> None:
        """Let everything happen that happens by then."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self._next()
        self.now = max(self.now, until)

    def _next(self) -> None:
        when, _, _, function, args = heapq.heappop(self._heap)
        self.now = max(self.now, when)
        self.events += 1
        if self.events > MOST_EVENTS:
            raise Stuck(f"more than {MOST_EVENTS} events by {self.now:.3f}")
        function(*args)

    def run_inside(self, seconds: float) -> None:
        """Let time pass in the middle of a task's step.

        What is due at the end of it comes later: the interrupted task goes on first.
        """
        until = self.now + seconds
        heap = self._heap
        while heap and heap[0][0] < until:
            self._next()
        self.now = max(self.now, until)

    # Tasks ------------------------------------------------------------------------------

    def wake(self, task: Task, number: int, value: Any = None) -> None:
        """End a suspension, from anywhere; the task runs soon."""
        if task.disarm(number):
            self.soon(task, value)

    def fire(self, task: Task, number: int, value: Any = None) -> None:
        """End a suspension, called by the heap: the task runs at once."""
        if task.disarm(number):
            self.step(task, value)

    def soon(self, task: Task, value: Any = None) -> None:
        """Run the next step of a task; a thread may have to wait for its CPU first."""
        delay = 0.0
        if self._threads and self._random.random() < 0.3:
            delay = self._random.expovariate(2000.0)
        self.at(self.now + delay, self.step, task, value)

    def step(self, task: Task, value: Any = None) -> None:
        """Run a task until it suspends again."""
        process = task.process
        if process.dead or task.done:
            return
        if (process.halted or process.frozen_until > self.now) and process.must_wait(self.step, task, value):
            return
        previous, self.current = self.current, task
        task.since = self.now
        if task.started and task.pending is not None:
            value, task.pending = task.pending, None
        task.started = True
        try:
            task.coroutine.send(value)
        except StopIteration as stop:
            self._end(task, stop.value, None)
        except BaseException as failure:  # noqa: BLE001 - whatever ends a coroutine ends its task
            self._end(task, None, failure)
        else:
            if task.pending is not None:
                task.poke()
            if task.service:
                self.observer.stepped(task)
        finally:
            self.current = previous

    def _end(self, task: Task, result: Any, error: BaseException | None) -> None:
        task.process.tasks.pop(task, None)
        task.finish(result, error)
        self.observer.ended(task)

    def close(self) -> None:
        """The end of the world: every coroutine is closed, and none of them can do anything."""
        for process in self.processes:
            process.dead = True
        self._heap.clear()
        for process in self.processes:
            for task in list(process.tasks):
                _bury(task)
            process.tasks.clear()


def _bury(task: Task) -> None:
    try:
        task.coroutine.close()
    except (Gone, RuntimeError):
        pass  # it tried to clean up, and could not
    except BaseException as error:  # noqa: BLE001 - a finally block that failed in its own way
        task.error = error
