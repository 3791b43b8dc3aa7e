"""The simulated runtime: virtual time, a seeded scheduler, processes that stop, stall and die.

A `World` owns the virtual clock and a heap of events. In it live *processes*, each with a
`SimulatedRuntime` of its own and any number of tasks; the core's coroutines run on it
unchanged. There are no threads, no event loop and no real time: a run is a pure function of
its seed, and takes microseconds for each event.

`world.py` has the scheduler, `task.py` what it schedules, `runtime.py` the effects.
"""

from fencelock.runtime.simulated.runtime import (
    SimulatedEvent,
    SimulatedRuntime,
    SimulatedService,
    SimulatedSignal,
)
from fencelock.runtime.simulated.task import Gone, Task
from fencelock.runtime.simulated.world import Observer, Process, Stalls, Stuck, World

__all__ = [
    "Gone",
    "Observer",
    "Process",
    "SimulatedEvent",
    "SimulatedRuntime",
    "SimulatedService",
    "SimulatedSignal",
    "Stalls",
    "Stuck",
    "Task",
    "World",
]
