"""What happens in a run: who does what and what goes wrong, drawn from the seed before it starts.

A plan is data. It is drawn from a stream of random numbers of its own, so a change in the
core does not change what is tried on it. About one seed in eight has no faults at all: there,
nothing may be lost or fail.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import NamedTuple

from fencelock.core.queue import EXCLUSIVE, PERMIT, SHARED, UNLIMITED, Mode
from fencelock.runtime.simulated import Stalls
from fencelock.runtime.simulated.world import Flavour
from fencelock.testing.simulation.network import Weather

__all__ = ["FAULTS", "Action", "Fault", "Plan", "Visit", "draw"]

FAULTS = (
    "pause",  # a process stands still, beyond the ttl
    "stall",  # a process, or one of its threads, stands still between two effects
    "crash",  # a process dies
    "partition",  # a process and the server cannot reach each other, one way or both
    "outage",  # nobody reaches the server
    "loss",  # requests and replies get lost
    "slow",  # messages take longer than the ttl
    "duplicate",  # requests arrive twice
    "silence",  # pushes get lost
    "renewals",  # renewals fail, everything else works
    "clock",  # wall clocks of clients and of the server jump
    "break",  # an operator breaks a lock
    "delete",  # an operator deletes every record
    "cancel",  # a task is cancelled; Ctrl-C hits a main thread
    "close",  # a client is closed while it is used
)
HEAL = 7.0
"""All faults are over after so many seconds, but for messages that are on their way."""


class Action(NamedTuple):
    """One thing done while the lock is held."""

    kind: str
    seconds: float = 0.0


class Fault(NamedTuple):
    """One thing that goes wrong."""

    at: float
    kind: str
    target: int = 0  # a process; the second number of a cancelled actor is `detail`
    seconds: float = 0.0
    detail: str = ""


@dataclass(slots=True)
class Visit:
    """One acquisition and what is done with it."""

    name: str
    mode: Mode
    limit: int
    ttl: float
    timeout: float
    renew: bool
    max_hold: float
    reentrant: bool
    style: str  # with, manual, drop (the lease is forgotten), all (several names at once)
    actions: list[Action]
    rest: float  # seconds before the next visit


@dataclass(slots=True)
class Plan:
    """A run."""

    seed: int
    flavour: Flavour
    kinds: tuple[str, ...] = ()
    names: list[str] = field(default_factory=list)
    ttl: float = 1.0  # the longest
    actors: list[list[list[Visit]]] = field(default_factory=list)  # by process, by actor
    stalls: list[Stalls] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    weather: Weather = field(default_factory=Weather)
    heal: float = 0.0


def draw(seed: int, flavour: Flavour, kinds: tuple[str, ...] | None = None) -> Plan:
    """Draw the plan of a seed; `kinds` are the faults in it, if not left to the seed."""
    rng = random.Random(f"{seed}/{flavour}/plan")
    plan = Plan(seed, flavour)
    plan.kinds = _kinds(rng) if kinds is None else kinds
    plan.names = ["a", "b", "c"][: rng.choice((1, 1, 2, 3))]
    plan.ttl = rng.choice((0.3, 0.6, 1.0, 2.0, 4.0))
    limits = {name: rng.randint(1, 3) for name in plan.names}
    processes = rng.choice((2, 2, 3, 3, 4, 5))
    for _ in range(processes):
        actors = rng.choice((1, 1, 2, 3)) if processes < 4 else 1
        plan.actors.append([_visits(rng, plan, limits) for _ in range(actors)])
    plan.heal = HEAL if plan.kinds else 0.0
    _set_weather(rng, plan)
    _set_stalls(rng, plan)
    for kind in plan.kinds:
        _add_faults(rng, plan, kind)
    plan.faults.sort()
    return plan


def _kinds(rng: random.Random) -> tuple[str, ...]:
    if rng.random() < 0.12:
        return ()
    chosen = rng.sample(FAULTS, rng.choice((1, 1, 2, 2, 3, 5)))
    return tuple(kind for kind in FAULTS if kind in chosen)


def _visits(rng: random.Random, plan: Plan, limits: dict[str, int]) -> list[Visit]:
    return [_visit(rng, plan, limits) for _ in range(rng.choice((1, 2, 3, 4)))]


def _visit(rng: random.Random, plan: Plan, limits: dict[str, int]) -> Visit:
    name = rng.choice(plan.names)
    mode: Mode = rng.choice((EXCLUSIVE, EXCLUSIVE, EXCLUSIVE, SHARED, SHARED, PERMIT))
    limit = {EXCLUSIVE: 1, SHARED: UNLIMITED, PERMIT: limits[name]}[mode]
    ttl = plan.ttl if rng.random() < 0.7 else plan.ttl * rng.uniform(0.3, 1.0)
    renew = rng.random() < 0.75
    reentrant = rng.random() < 0.2
    style = rng.choice(("with", "with", "with", "manual", "manual", "drop"))
    if len(plan.names) > 1 and rng.random() < 0.1:
        style, mode, limit = "all", EXCLUSIVE, 1
    return Visit(
        name=name,
        mode=mode,
        limit=limit,
        ttl=ttl,
        timeout=rng.choice((0.0, rng.uniform(0.01, 0.5), rng.uniform(0.5, 3.0), math.inf, math.inf)),
        renew=renew,
        max_hold=rng.uniform(0.1, 1.5) * ttl if rng.random() < 0.15 else math.inf,
        reentrant=reentrant,
        style=style,
        actions=[_action(rng, ttl, reentrant) for _ in range(rng.choice((0, 1, 1, 2, 3)))],
        rest=rng.choice((0.0, rng.uniform(0.0, 0.1), rng.uniform(0.0, 1.0))),
    )


def _action(rng: random.Random, ttl: float, reentrant: bool) -> Action:
    kinds = ["sleep", "write", "write", "plain", "plain", "check", "verify", "extend", "lost"]
    kind = rng.choice([*kinds, *(["enter"] * 4 if reentrant else [])])
    if kind == "extend":
        return Action(kind, ttl * rng.choice((0.3, 1.0, 1.0, 2.0)))
    return Action(kind, rng.choice((0.0, rng.uniform(0.0, 0.1), rng.uniform(0.0, 1.3) * ttl)))


def _set_weather(rng: random.Random, plan: Plan) -> None:
    weather = plan.weather
    weather.latency = rng.choice((0.0005, 0.002, 0.01)) if plan.kinds else 0.0005
    weather.ordered = not plan.kinds
    if "loss" in plan.kinds:
        weather.lost_request = rng.choice((0.0, 0.03, 0.15, 0.3))
        weather.lost_reply = rng.choice((0.03, 0.15, 0.3))
        weather.unknown = rng.choice((0.0, 0.1))
    if "slow" in plan.kinds:
        weather.slow = rng.choice((0.02, 0.1, 0.3))
        weather.slowest = rng.choice((0.2, 1.0, 2.5)) * plan.ttl
    if "duplicate" in plan.kinds:
        weather.duplicate = rng.choice((0.1, 0.5))
    if "silence" in plan.kinds:
        weather.lost_push = rng.choice((0.3, 1.0))


def _set_stalls(rng: random.Random, plan: Plan) -> None:
    for _ in plan.actors:
        if "stall" in plan.kinds and rng.random() < 0.7:
            stalls = Stalls(
                every=rng.choice((5.0, 20.0, 60.0)),
                short=rng.choice((0.0005, 0.005)),
                long=plan.ttl * rng.choice((0.5, 1.5)),
                share=rng.choice((0.0, 0.1)),
            )
        else:
            stalls = Stalls()
        plan.stalls.append(stalls)


def _add_faults(rng: random.Random, plan: Plan, kind: str) -> None:
    processes = len(plan.actors)
    many = {"pause": 3, "partition": 3, "cancel": 4, "clock": 3, "break": 2, "renewals": 2}.get(kind, 1)
    if kind in {"stall", "loss", "slow", "duplicate", "silence"}:
        return
    for _ in range(rng.randint(1, many)):
        at = rng.uniform(0.0, rng.choice((0.5, 2.0, 5.0)))
        target = rng.randrange(processes)
        seconds = rng.choice((0.3, 1.2, 2.0)) * plan.ttl * rng.uniform(0.5, 1.1)
        detail = ""
        if kind == "partition":
            detail = rng.choice(("both", "both", "up", "down"))
        elif kind == "cancel":
            detail = str(rng.randrange(3))
        elif kind == "clock":
            seconds = rng.choice((-3600.0, -5.0, 5.0, 3600.0))
            target = rng.randrange(-1, processes)  # -1 is the server
        elif kind == "break":
            detail = rng.choice(plan.names)
        plan.faults.append(Fault(at, kind, target, min(seconds, HEAL - at), detail))
