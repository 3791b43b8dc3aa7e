"""A simulated thread or task: a coroutine, and what it waits for.

Suspending is a plain `yield`. Whoever suspends first *arms* the task, which gives a number
for this one suspension, and leaves that number with everyone who may end it (a timer, a
reply, a signal). The first to come wins; for the others the number is out of date. So no
waker has to be taken back, and none can wake a task out of something else.

`throw_soon` is how a cancellation (asyncio) or Ctrl-C (blocking) comes in: as in asyncio it
is delivered at the suspension the task is in, even if its result is there already, or else at
the next one.
"""

from __future__ import annotations

import types
from asyncio.exceptions import CancelledError
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencelock.runtime.simulated.world import Process

__all__ = ["Gone", "Strike", "Task", "suspend"]


class Gone(BaseException):
    """The process has crashed. Every effect in it raises this, so that nothing in it goes on."""


class Strike:
    """Sent into a suspended coroutine to make it raise.

    `coroutine.throw` would keep the exception alive, and with it every frame it passed and
    every lease in them, for as long as the task goes on after catching it.
    """

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error: list[BaseException] = [error]

    def take(self) -> BaseException:
        return self._error.pop()


@types.coroutine
def suspend() -> Generator[None, Any, Any]:
    """Hand control to the scheduler; return what the task is woken with."""
    value = yield
    if value.__class__ is Strike:
        raise value.take()
    return value


class Task:
    """A coroutine in a process: one thread of it, or one task of its event loop."""

    __slots__ = (
        "_armed",
        "_number",
        "cancels",
        "coroutine",
        "done",
        "error",
        "joiners",
        "name",
        "note",
        "pending",
        "process",
        "result",
        "service",
        "since",
        "started",
    )

    def __init__(self, process: Process, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        self.process = process
        self.coroutine = coroutine
        self.name = name
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.pending: Strike | None = None
        self.joiners: list[tuple[Task, int]] = []
        self.cancels = 0
        self.service = False
        self.started = False
        self.since = 0.0  # when the step that runs now began
        self.note: Any = None  # the workload's own
        self._number = 0
        self._armed = False

    def arm(self) -> int:
        """Begin a suspension, and return its number. Between this and `suspend` nothing may run."""
        self._number += 1
        self._armed = True
        return self._number

    def disarm(self, number: int) -> bool:
        """End the suspension of that number; False if it has ended already."""
        if not self._armed or number != self._number:
            return False
        self._armed = False
        return True

    def throw_soon(self, error: BaseException) -> None:
        """Raise `error` in the task where it is suspended, or will be next."""
        if not self.done:
            self.pending = Strike(error)
            self.poke()

    def poke(self) -> None:
        """Wake the task from whatever it waits for."""
        if self._armed:
            self._armed = False
            self.process.world.soon(self)

    # What `AsyncLease` needs of an asyncio task -------------------------------------------

    def cancel(self, message: object = None) -> bool:
        """Request cancellation, as `asyncio.Task.cancel` does."""
        if self.done:
            return False
        self.cancels += 1
        self.throw_soon(CancelledError() if message is None else CancelledError(message))
        return True

    def cancelling(self) -> int:
        """How many cancellations were requested and not taken back."""
        return self.cancels

    def uncancel(self) -> int:
        """Take one request back; return how many are left."""
        # A cancellation that was not delivered yet still will be, as before Python 3.13.
        self.cancels = max(0, self.cancels - 1)
        return self.cancels

    def finish(self, result: Any, error: BaseException | None) -> None:
        """The coroutine has returned or raised."""
        self.done = True
        self.result = result
        self.error = error
        self._armed = False
        world = self.process.world
        for task, number in self.joiners:
            world.wake(task, number)
        self.joiners.clear()

    def __repr__(self) -> str:
        return f"<Task {self.process.name}:{self.name}>"
