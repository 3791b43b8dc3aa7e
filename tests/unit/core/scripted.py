"""A backend that does what a test says, on a clock that moves only when a test lets it.

`ManualRuntime` is blocking (drive it with `fencelock.runtime.blocking.run`): sleeping and waiting
move its clock. Services do not run by themselves: `go(seconds)` runs them while that time passes.

`ScriptedBackend.say(step, *answers)` queues answers for a step: a value to return, an exception
to raise, a function to call with the step's arguments, or one of these `after(seconds, …)`. A
step without a script succeeds.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

from fencelock.core.acquire import Acquisition
from fencelock.core.hold import Hold, Terms
from fencelock.core.ports import CAPABILITIES, Backend, Busy, Grant, Origin, Outcome, Renewal, Request
from fencelock.core.session import Session
from fencelock.errors import BackendUnavailable
from fencelock.guarantees import Guarantees
from fencelock.state import Entry, LockState


class Pause:
    """What a service that rests hands to whoever runs it."""

    def __await__(self) -> Generator[Any, None, None]:
        yield self


class ManualEvent:
    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set


class ManualSignal:
    def __init__(self, runtime: ManualRuntime) -> None:
        self.runtime = runtime
        self.tapped = False

    def notify(self) -> None:
        self.tapped = True

    async def wait(self, seconds: float) -> None:
        service = self.runtime.running
        assert service is not None, "only services rest"
        service.signal, service.until = self, self.runtime.time + min(max(0.0, seconds), 5.0)
        if not self.tapped and seconds > 0:
            await Pause()
        self.tapped = False


class ManualService:
    def __init__(self, runtime: ManualRuntime, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        self.runtime = runtime
        self.coroutine = coroutine
        self.name = name
        self.done = False
        self.failure: BaseException | None = None
        self.signal: ManualSignal | None = None
        self.until = -math.inf

    def is_ready(self) -> bool:
        return not self.done and (self.until <= self.runtime.time or self.signal.tapped)

    def step(self) -> None:
        before, self.runtime.running = self.runtime.running, self
        try:
            self.coroutine.send(None)
        except StopIteration:
            self.done = True
        except BaseException as error:
            self.done, self.failure = True, error
        finally:
            self.runtime.running = before

    async def join(self, seconds: float) -> None:
        end = self.runtime.time + seconds
        while self.is_ready() and self.runtime.time < end:
            self.step()
        if not self.done:
            self.runtime.time = max(self.runtime.time, end)


class ManualRuntime:
    flavour = "blocking"

    def __init__(self) -> None:
        self.time = 1000.0
        self.ids = 0
        self.who: object = "main"
        self.services: list[ManualService] = []
        self.running: ManualService | None = None
        self.interrupted: list[object] = []
        self.slept: list[float] = []

    def check(self) -> None:
        """Always where it belongs."""

    def goes_on(self) -> bool:
        return True

    def soon(self, function: Callable[[], object]) -> None:
        function()

    def now(self) -> float:
        return self.time

    def new_id(self) -> str:
        self.ids += 1
        return f"{self.ids:032x}"

    def jitter(self) -> float:
        return 0.5

    def current(self) -> object:
        return self.who

    def event(self) -> ManualEvent:
        return ManualEvent()

    def signal(self) -> ManualSignal:
        return ManualSignal(self)

    def readiness(self, source: Any) -> Any:
        raise AssertionError("the core has no sockets")

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> ManualService:
        service = ManualService(self, coroutine, name)
        self.services.append(service)
        return service

    async def finish(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return await coroutine

    def interrupt(self, task: object, still_wanted: Callable[[], bool]) -> None:
        if still_wanted():
            self.interrupted.append(task)

    def callback(self, function: Callable[[Any], Any], argument: Any) -> None:
        function(argument)

    def go(self, seconds: float = 0.0) -> None:
        """Run the services while so much time passes."""
        end = self.time + seconds
        while True:
            while ready := [service for service in self.services if service.is_ready()]:
                for service in ready:
                    service.step()
            alive = [service.until for service in self.services if not service.done]
            wake = min(alive, default=math.inf)
            if wake > end:
                self.time = max(self.time, end)
                return
            self.time = wake

    def stop(self) -> None:
        """Let go of the services, wherever they are."""
        for service in self.services:
            service.coroutine.close()

    def alive(self) -> list[str]:
        """The names of the services that run."""
        return [service.name for service in self.services if not service.done]


class After:
    def __init__(self, seconds: float, answer: object) -> None:
        self.seconds = seconds
        self.answer = answer


def after(seconds: float, answer: object = None) -> After:
    """An answer that takes so long to arrive."""
    return After(seconds, answer)


def down(*, transient: bool = True) -> BackendUnavailable:
    """The error of a backend that cannot be reached."""
    return BackendUnavailable(backend="scripted", detail="down", transient=transient)


DEFAULT = object()
"""The answer of a step without a script."""


class ScriptedBackend(Backend):
    name = "scripted"
    capabilities = CAPABILITIES
    renew_batch = 3

    def __init__(self) -> None:
        self.script: dict[str, deque[object]] = defaultdict(deque)
        self.always: dict[str, object] = {}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.tokens = 0
        self.closed = self.was_forked = 0

    @classmethod
    def from_url(cls, url: str) -> ScriptedBackend:
        return cls()

    def say(self, step: str, *answers: object) -> None:
        """Answer the next calls of `step` with these, in turn."""
        self.script[step].extend(answers)

    def keep_saying(self, step: str, answer: object) -> None:
        """Answer every call of `step` that has no other answer with this."""
        self.always[step] = answer

    def count(self, step: str) -> int:
        """How often a step was taken."""
        return sum(1 for taken, _ in self.calls if taken == step)

    def taken(self, step: str) -> list[tuple[Any, ...]]:
        """The arguments of each call of a step."""
        return [arguments for name, arguments in self.calls if name == step]

    def _answer(self, step: str, *arguments: Any) -> Any:
        self.calls.append((step, arguments))
        answer = self.script[step].popleft() if self.script[step] else self.always.get(step, DEFAULT)
        if isinstance(answer, After):
            self.runtime.time += answer.seconds  # type: ignore[attr-defined]
            answer = answer.answer
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            return answer(*arguments)
        return answer

    def grant(self, validity: float = 30.0) -> Grant:
        """A grant with the next token."""
        self.tokens += 1
        return Grant(self.tokens, validity)

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            scope="process",
            use_for="correctness",
            fencing="best-effort",
            crash_release="ttl",
            clock="nothing",
            failover="nothing",
            restart="nothing",
            fairness="fifo",
            wakeup="push",
            min_ttl=0.5,
            max_ttl=1e6,
        )

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        answer = self._answer("acquire", request, wait, deadline)
        return self.grant(request.ttl) if answer is DEFAULT else answer

    async def wait(self, request: Request, deadline: float) -> Grant | None:
        answer = self._answer("wait", request, deadline)
        if answer is DEFAULT:
            self.runtime.time = max(self.runtime.time, deadline)  # type: ignore[attr-defined]
            return None
        return answer

    async def renew(self, renewals: Sequence[Renewal], *, deadline: float) -> Sequence[Outcome]:
        answer = self._answer("renew", renewals, deadline)
        if answer is DEFAULT:
            return [Outcome.RENEWED if renewal.extend else Outcome.HELD for renewal in renewals]
        return [answer] * len(renewals) if isinstance(answer, Outcome) else answer

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        answer = self._answer("release", request, token, deadline)
        return True if answer is DEFAULT else answer

    async def abandon(self, request: Request, *, deadline: float) -> None:
        self._answer("abandon", request, deadline)

    async def inspect(self, name: str, *, deadline: float) -> LockState:
        answer = self._answer("inspect", name, deadline)
        return LockState(name=name) if answer is DEFAULT else answer

    async def list(self, prefix: str, *, deadline: float) -> Sequence[LockState]:
        return []

    async def force_release(self, name: str, owner: str | None, *, deadline: float) -> Sequence[Entry]:
        return []

    async def close(self) -> None:
        self.closed += 1
        self._answer("close")

    def forked(self) -> None:
        self.was_forked += 1


def terms(name: str = "x", **changes: Any) -> Terms:
    """The terms of an exclusive lock with a ttl of 30 s."""
    fields: dict[str, Any] = {
        "name": name,
        "mode": "exclusive",
        "limit": 1,
        "ttl": 30.0,
        "timeout": math.inf,
        "renew": True,
        "max_hold": math.inf,
        "reentrant": False,
        "metadata": None,
        "on_lost": None,
    }
    return Terms(**{**fields, **changes})


def entry(owner: str = "o", token: int = 1, **changes: Any) -> Entry:
    """A holder, as a backend shows it."""
    fields: dict[str, Any] = {
        "owner": owner,
        "token": token,
        "mode": "exclusive",
        "client": "c",
        "host": "host-a",
        "pid": 812,
        "since": 0.0,
        "expires_in": 10.0,
        "age": 12.0,
    }
    return Entry(**{**fields, **changes})


class Bench:
    """A session on a scripted backend, with a clock to turn."""

    def __init__(self) -> None:
        self.runtime = ManualRuntime()
        self.backend = ScriptedBackend()
        self.session = Session(self.runtime, self.backend, "ns", Origin("test", "host", 1))

    def request(self, **changes: Any) -> Request:
        """A request that stands nowhere yet."""
        return Acquisition(self.session, terms(**changes), math.inf).request

    def is_clean(self) -> bool:
        """Whether nothing is held, awaited or to be removed."""
        return self.session.is_idle() and not (self.session.acquiring or self.session.reentry)

    def another_thread_acquires(self) -> None:
        """It is in the middle of that."""
        acquisition = Acquisition(self.session, terms(), math.inf)
        acquisition.caller = object()
        self.session.acquiring[acquisition.request.owner] = acquisition


def keep(hold: Hold) -> Hold:
    """The lease of a test is the hold itself."""
    hold.depth += 1
    return hold
