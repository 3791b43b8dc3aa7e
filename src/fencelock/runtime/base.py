"""The runtime contract: every effect that the core may have.

The core is written once, as coroutines, and knows time, threads and tasks only through
this protocol. There are three implementations:

- `blocking`: no method ever suspends, so one `send(None)` runs a whole operation on the
  caller's thread;
- `asyncio`: methods await;
- `simulated`: a virtual clock, a seeded scheduler and faults; same seed, same run.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, runtime_checkable

__all__ = ["Event", "HasFileno", "Readiness", "Runtime", "Service", "Signal"]

T = TypeVar("T")


class Event(Protocol):
    """Set once, by anyone on any thread; seen by all."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...


class Signal(Protocol):
    """A tap on the shoulder of one service. Several taps before it looks count as one.

    `notify` may be called from any thread, and from a destructor in the middle of anything:
    it takes no lock that its caller might hold.
    """

    def notify(self) -> None: ...
    async def wait(self, seconds: float) -> None:
        """Return when notified, or after `seconds`."""


class Service(Protocol):
    """A coroutine that runs in the background until it returns."""

    async def join(self, seconds: float) -> None:
        """Wait until it has returned, but no longer than `seconds`."""


class HasFileno(Protocol):
    """A socket, or anything else with a file descriptor."""

    def fileno(self) -> int: ...


class Readiness(Protocol):
    """When a socket is ready. One thread or task at a time may wait to read, and one to write."""

    async def readable(self, deadline: float) -> None:
        """Return when data has come, or the end of the stream, or early; `TimeoutError` at the deadline."""

    async def writable(self, deadline: float) -> None:
        """Return when there is room to write, or the socket broke; `TimeoutError` at the deadline."""

    def end(self) -> None:
        """Forget the socket, before it is closed."""


@runtime_checkable
class Runtime(Protocol):
    """What the core may do to the world."""

    flavour: str
    """`blocking` or `asyncio`: which form of a driver to use."""

    def check(self) -> None:
        """Raise if called where this runtime does not belong: on another event loop."""

    def goes_on(self) -> bool:
        """Whether services still run: an event loop may have ended."""

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function where services may be started. From any thread, while services run."""

    def now(self) -> float:
        """Seconds on a monotonic clock that goes on during suspend."""

    def new_id(self) -> str:
        """A random id that nobody else has: 32 hexadecimal digits."""

    def jitter(self) -> float:
        """A random number from 0 up to 1, for backoff."""

    def current(self) -> object:
        """The thread or task that is running: who re-enters a reentrant lock."""

    def event(self) -> Any:
        """A new `Event`. `wait` on it is plain here and a coroutine there, as users expect."""

    def signal(self) -> Signal:
        """A new `Signal`."""

    def readiness(self, source: HasFileno) -> Readiness:
        """How to wait for a socket, which the caller closes."""

    async def sleep(self, seconds: float) -> None:
        """Do nothing for so long."""

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Run a driver's blocking function: here and now, or on a thread."""

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> Service:
        """Start a background service."""

    async def finish(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a clean-up to its end, even if the caller is cancelled meanwhile."""

    def interrupt(self, task: object, still_wanted: Callable[[], bool]) -> None:
        """Cancel the task whose lease was lost, if `still_wanted()` then. Threads cannot be."""

    def callback(self, function: Callable[[Any], Any], argument: Any) -> None:
        """Run a user's callback in the background; what it raises is logged."""
