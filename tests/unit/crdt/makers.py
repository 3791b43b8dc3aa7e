"""Values of every type, made by replicas that change, send, lose and merge as real ones do."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from fencelock.crdt import (
    Change,
    Crdt,
    GCounter,
    GSet,
    HybridLogicalClock,
    LWWElementSet,
    LWWRegister,
    MVRegister,
    ORMap,
    ORSet,
    PNCounter,
    TwoPhaseSet,
    VectorClock,
)

ELEMENTS = ("a", "b", b"c", 1, -7, 2**40, ("a", 1), "ü", "a long one that is written once")
VALUES = (None, True, 1, 1.0, -0.5, "text", b"bytes", (1, ("two", None)), 2**60)
REPLICAS = ("anna", "ben", "carl", "dora", "emil", "fee", "gus")

Rng = random.Random
Step = Callable[[Rng, Any, str, HybridLogicalClock], Change[Any]]


def _twophase(rng: Rng, value: TwoPhaseSet, _replica: str, _clock: HybridLogicalClock) -> Change[Any]:
    element = rng.choice(ELEMENTS)
    if element in value or element in value._removed:
        return value.remove(element)
    return value.add(element)


def _inside(rng: Rng, value: ORMap, replica: str, clock: HybridLogicalClock) -> Change[Any]:
    if rng.random() < 0.2:
        return value.remove(rng.choice("xyz"))
    kind = rng.choice([one for one in STEPS if one is not ORMap] + [ORMap] * (rng.random() < 0.5))
    return value.update(
        replica, rng.choice("xyz"), kind, lambda inner: STEPS[kind](rng, inner, replica, clock)
    )


STEPS: dict[type[Crdt], Step] = {
    VectorClock: lambda rng, value, replica, clock: value.tick(replica),
    GCounter: lambda rng, value, replica, clock: value.increment(replica, rng.randrange(4)),
    PNCounter: lambda rng, value, replica, clock: rng.choice([value.increment, value.decrement])(
        replica, rng.randrange(4)
    ),
    GSet: lambda rng, value, replica, clock: value.add(*rng.sample(ELEMENTS, rng.randrange(3))),
    TwoPhaseSet: _twophase,
    ORSet: lambda rng, value, replica, clock: (
        value.remove(*rng.sample(ELEMENTS, 2))
        if rng.random() < 0.4
        else value.add(replica, *rng.sample(ELEMENTS, rng.randrange(3)))
    ),
    MVRegister: lambda rng, value, replica, clock: value.set(replica, rng.choice(VALUES)),
    LWWRegister: lambda rng, value, replica, clock: value.set(clock, rng.choice(VALUES)),
    LWWElementSet: lambda rng, value, replica, clock: rng.choice([value.add, value.remove])(
        clock, *rng.sample(ELEMENTS, rng.randrange(3))
    ),
    ORMap: _inside,
}
KINDS = sorted(STEPS, key=lambda kind: kind.code)


def clock_of(rng: Rng, replica: str) -> HybridLogicalClock:
    """A clock that stands still, some seconds off."""
    offset = rng.uniform(-5, 5)
    return HybridLogicalClock(replica, time=lambda: 1000.0 + offset)


def step(rng: Rng, value: Any, replica: str, clock: HybridLogicalClock) -> Change[Any]:
    """Make one random change."""
    return STEPS[type(value)](rng, value, replica, clock)


def history(kind: type[Crdt], seed: int, replicas: int, steps: int) -> tuple[list[Any], list[Any]]:
    """Return the states of replicas that exchanged a part of their deltas, and all deltas."""
    rng = random.Random(seed)
    names = REPLICAS[:replicas]
    clocks = {name: clock_of(rng, name) for name in names}
    states: dict[str, Any] = {name: kind() for name in names}
    deltas: list[Any] = []
    for _ in range(steps):
        name = rng.choice(names)
        if deltas and rng.random() < 0.4:
            states[name] = states[name].merge(rng.choice([*deltas, *states.values()]))
        else:
            states[name], delta = step(rng, states[name], name, clocks[name])
            deltas.append(delta)
    return list(states.values()), deltas


@st.composite
def three(draw: st.DrawFn, kind: type[Crdt]) -> tuple[Any, Any, Any]:
    """Three values of one history: states, or deltas."""
    seed, steps = draw(st.integers(0, 2**32)), draw(st.integers(0, 25))
    states, deltas = history(kind, seed, 3, steps)
    rng = random.Random(seed + 1)
    pool = [*states, *deltas]
    return rng.choice(pool), rng.choice(pool), rng.choice(pool)
