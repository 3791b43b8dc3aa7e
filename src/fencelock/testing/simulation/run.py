"""One run: a plan is carried out, faults and all, healed, probed, and judged.

1. The actors do what the plan says while the nemesis works.
2. It heals. Messages that are on their way may still arrive late; *healed* is when the last of
   them has.
3. A fresh client takes every lock once: it must be free within the longest ttl and two
   seconds of nobody holding it.
4. Half of the clients are closed, the others left alone. Then nothing may be left: no hold,
   pending cleanup, acquisition or task in a client, no record in the store.
5. The checker judges the history.

Same seed, same flavour, same faults: the same history, event for event.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import traceback
import warnings
from asyncio.exceptions import CancelledError
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fencelock.core.ports import STEP_LIMIT
from fencelock.errors import BackendError
from fencelock.runtime.simulated import Gone, Observer, Process, Task, World
from fencelock.runtime.simulated.world import Flavour, Stuck
from fencelock.testing.checker import check, check_available
from fencelock.testing.events import Event
from fencelock.testing.history import History, Operation
from fencelock.testing.simulation.actor import Actor
from fencelock.testing.simulation.client import Client
from fencelock.testing.simulation.hands import hands_for
from fencelock.testing.simulation.model import Server
from fencelock.testing.simulation.nemesis import Nemesis
from fencelock.testing.simulation.network import Link, Weather
from fencelock.testing.simulation.plan import Action, Plan, Visit, draw
from fencelock.testing.simulation.resources import Resource
from fencelock.testing.verdict import Report, Violation

__all__ = ["Result", "quiet", "simulate"]

START = 1000.0
"""When the world begins."""
LOSS_WITHIN = 0.25
"""A loss is signalled so many seconds after the deadline at the latest."""
AT_ONCE = 0.5
"""Without faults, no lock that somebody waits for is idle for so many seconds."""
PATIENCE = 120.0
"""After healing, everybody is done within so many seconds."""
WINDING_DOWN = 25.0
"""Idle services are gone after so many seconds."""
WALL_RULES = frozenset({"unique-token", "token-order", "guard"})
"""What remains promised where a wall clock decides expiry."""


@dataclass(slots=True)
class Result:
    """What became of a seed."""

    seed: int
    flavour: Flavour
    plan: Plan
    history: History
    report: Report
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything held."""
        return not self.failures

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {self.flavour}: {len(self.failures)} failures"]
        lines += [f"  {failure}" for failure in self.failures]
        lines.append(f"replay: {self.replay}")
        return "\n".join(lines)

    @property
    def replay(self) -> str:
        """The command that runs this seed again, in detail."""
        return f"python -m fencelock.testing.simulation --seed {self.seed} --flavour {self.flavour}"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Run many seeds: no log lines or warnings about the losses that they are about, no garbage collector.

    The collector would run destructors of leases at moments that do not depend on the seed.
    """
    log = logging.getLogger("fencelock")
    disabled, log.disabled = log.disabled, True
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # leases that actors drop
            yield
    finally:
        log.disabled = disabled
        if collecting:
            gc.enable()


def simulate(
    seed: int,
    flavour: Flavour,
    kinds: tuple[str, ...] | None = None,
    *,
    wall_expiry: bool = False,
    trace: Callable[[str], None] | None = None,
) -> Result:
    """Run one seed and judge it. `kinds` are the faults, if they are not left to the seed.

    For odd seeds pushes carry grants, for even ones they only wake.

    `trace` is told of everything that happens, as it happens: the history and the network.
    """
    with quiet():
        run = _Run(draw(seed, flavour, kinds), wall_expiry)
        if trace is not None:
            run.tell(trace)
        try:
            run.carry_out()
        except Stuck as stuck:
            run.failures.append(f"stuck: {stuck}")
        finally:
            run.world.close()
        return run.judge()


class _Told(History):
    """A history that can be watched while it is written."""

    trace: Callable[[Event], None] | None = None

    def append(self, event: Event) -> None:
        super().append(event)
        if self.trace is not None:
            self.trace(event)


class _Run(Observer):
    def __init__(self, plan: Plan, wall_expiry: bool) -> None:
        self.plan = plan
        self.failures: list[str] = []
        self.world = world = World(plan.seed, plan.flavour, start=START)
        world.observer = self
        self.history = _Told(clock=lambda: world.now)
        self.server = Server(world, wall_expiry=wall_expiry, carries_grants=plan.seed % 2 == 1)
        self.resources = {name: Resource(name, self.history) for name in plan.names}
        self.hands = hands_for(plan.flavour)
        # Writes are no idempotent steps: nothing resends them, so they are not doubled.
        slow = plan.weather
        self.to_resources = Weather(latency=slow.latency, slow=slow.slow, slowest=slow.slowest)
        self.clients: list[Client] = []
        self.by_process: dict[Process, Client] = {}
        self.actors: list[list[Actor]] = []
        self.healed = world.now
        self.bound = plan.ttl * 2 + 2.0  # an extension may double the ttl

    def tell(self, trace: Callable[[str], None]) -> None:
        """Tell of everything that happens from now on."""
        world = self.world
        self.history.trace = lambda event: trace(event.render(START))
        world.trace = lambda line: trace(f"{world.now - START:12.6f} {line}")

    def fail(self, what: str) -> None:
        """Something is wrong."""
        self.failures.append(f"{self.world.now - START:.6f} {what}")

    # The story ----------------------------------------------------------------------------

    def carry_out(self) -> None:
        plan, world = self.plan, self.world
        for number, visits in enumerate(plan.actors):
            self._start(f"p{number}", visits, number)
        nemesis = Nemesis(world, plan, self.server, plan.weather, self.clients, self.actors, self.history)
        world.run(world.now + plan.heal)
        self.healed = nemesis.heal()
        world.run(self.healed)
        self._probe()
        self._wait_for_all()
        world.run(max(world.now, self.healed + self.bound + 1.0))
        for number, client in enumerate(self.clients):
            if number % 2 and not client.process.dead and not client.closing:
                client.close_session()
        world.run(world.now + WINDING_DOWN)
        self._look_for_residue()

    def _start(self, name: str, visits: list[list[Visit]], number: int) -> Client:
        stalls = self.plan.stalls[number] if number >= 0 else None
        process = self.world.process(name, stalls)
        client = Client(process, self.server, self.plan.weather, self.history, self.fail)
        self.by_process[process] = client
        self.clients.append(client)
        link = Link(process, self.to_resources)
        actors = [Actor(client, self.hands, self.resources, link, str(index)) for index in range(len(visits))]
        self.actors.append(actors)
        for actor, mine in zip(actors, visits, strict=True):
            actor.start(mine)
        return client

    def _probe(self) -> None:
        visits = [[_probe_visit(name, self.plan.ttl)] for name in self.plan.names]
        self._start("probe", visits, -1)

    def _wait_for_all(self) -> None:
        world = self.world
        limit = world.now + PATIENCE
        while world.now < limit and self._busy():
            world.run(world.now + 1.0)
        busy = self._busy()
        self.failures.extend(f"{actor.name} is not done {PATIENCE:g}s after healing" for actor in busy)

    def _busy(self) -> list[Actor]:
        return [
            actor
            for actors in self.actors
            for actor in actors
            if actor.task is not None and not actor.task.done and not actor.client.process.dead
        ]

    def _look_for_residue(self) -> None:
        self.failures.extend(f"the store still has {state}" for state in self.server.left())
        for client in self.clients:
            if not client.process.dead:
                self.failures.extend(client.residue())

    # The verdict --------------------------------------------------------------------------

    def judge(self) -> Result:
        history, plan = self.history, self.plan
        # A stalled thread may lie on the stack below a longer stall, and be late through no fault of its own.
        stalled = plan.flavour == "blocking" and "stall" in plan.kinds
        report = check(history, exact=True, loss_within=None if stalled else LOSS_WITHIN)
        violations = [*report.violations]
        violations += self._unavailable()
        if self.server.wall_expiry:
            violations = [violation for violation in violations if violation.rule in WALL_RULES]
        failures = [*(str(violation) for violation in violations), *self._outlived(), *self.failures]
        if not plan.kinds:
            failures += self._unrest(report)
        return Result(plan.seed, plan.flavour, plan, history, report, failures)

    def _outlived(self) -> list[str]:
        """No renewal after a break: what is sent before it is good for a ttl from then, and no longer."""
        breaks = [event for event in self.history if event.kind == "break"]
        ttls = {request: ttl for client in self.clients for request, ttl in client.ttls.items()}
        failures = []
        for op in self.history.operations() if breaks else ():
            if op.returned is None or op.request not in ttls:
                continue
            hits = [event.at for event in breaks if event.name in {"", op.name} and event.at > op.returned.at]
            ttl = max([ttls[op.request], *(move.ttl for move in op.moves if move.ttl is not None)])
            until = max((move.deadline or 0.0 for move in op.moves), default=0.0)
            if hits and until > min(hits) + ttl:
                failures.append(f"break: {op} was broken at {min(hits):.6f} and renewed until {until:.6f}")
        return failures

    def _unavailable(self) -> list[Violation]:
        """Rule 7. Whoever sent a step before the healing may wait in vain for its answer, and clean up."""
        if self._has_multi():
            return []  # who has some of several locks and waits for the others holds nothing yet
        if not self.plan.kinds:
            return check_available(self.history, healed=START, bound=AT_ONCE, names=self.plan.names)
        felt = self.healed + 2 * STEP_LIMIT
        late = check_available(self.history, healed=felt, bound=self.bound)
        names = self.plan.names
        for violation in check_available(self.history, healed=self.healed, bound=self.bound, names=names):
            if all(
                isinstance(item, Operation) and item.invoked.at >= self.healed
                for item in violation.operations
            ):
                late.append(violation)
        return late

    def _has_multi(self) -> bool:
        actors = [actor for process in self.plan.actors for actor in process]
        return any(visit.style == "all" for visits in actors for visit in visits)

    def _unrest(self, report: Report) -> list[str]:
        """Without faults nothing fails, and only what is not renewed is lost."""
        short = {request for client in self.clients for request in client.short}
        multi = {request for client in self.clients for request in client.multi}
        queued = {op.request for op in self.history.operations() if op.place is not None} - multi
        failures = []
        for event in self.history:
            # A timeout shorter than one round trip fails for want of an answer, and says so.
            failed = event.kind == "failed" and event.request in queued
            if failed or (event.kind == "lost" and event.request not in short):
                failures.append(f"without any fault: {event.render()}")
        return failures

    # The observer -------------------------------------------------------------------------

    def paused(self, process: Process) -> None:
        self.history.paused(process.name)

    def resumed(self, process: Process) -> None:
        self.history.resumed(process.name)

    def crashed(self, process: Process) -> None:
        self.history.crashed(process.name)

    def stepped(self, task: Task) -> None:
        self.by_process[task.process].stepped(task)

    def ended(self, task: Task) -> None:
        error, task.error = task.error, None if task.name != "finish" else task.error
        if error is None or isinstance(error, Gone):
            return
        if task.name == "finish" and isinstance(error, BackendError):
            return  # its caller sees to it
        if task.name == "close" and isinstance(error, CancelledError):
            return
        text = "".join(traceback.format_exception(error))
        self.failures.append(f"{task!r} failed: {text}")
        error.__traceback__ = None


def _probe_visit(name: str, ttl: float) -> Visit:
    return Visit(
        name=name,
        mode="exclusive",
        limit=1,
        ttl=ttl,
        timeout=float("inf"),
        renew=True,
        max_hold=float("inf"),
        reentrant=False,
        style="with",
        actions=[Action("write", 0.01)],
        rest=0.0,
    )
