"""Hosts with wrong clocks over hundreds of ticks, in simulated time: each tick is run once.

`FENCELOCK_SEEDS=300` tries more of them.
"""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC
from itertools import pairwise

import pytest

from fencelock.schedule.plan import ATTEMPTS, SKEW, Policy
from fencelock.schedule.ticks import Cron, Every, Times

from .fleet import START, Host, Retrier, World

SEEDS = range(int(os.environ.get("FENCELOCK_SEEDS", "2")))
HOSTS = 5
TICKS = 200
MOST = 120.0


def played(seed: int, times: Times, period: float, **options: float | bool) -> tuple[World, list[int]]:
    """Let five hosts live through 200 ticks and a little more; return the world and the ticks."""
    world = World(seed)
    deaths = float(options.get("deaths", 0.0))
    policy = Policy(times, "all", 10_000, at_most_for=MOST if deaths else None)
    for _ in range(HOSTS):
        shift = world.random.uniform(-30, 30)
        # A step takes up to a twelfth of a period: slower, and a fleet of such hosts could not keep up.
        slowest = float(options.get("slowest", 5.0))
        slowness = world.random.choice([0.0, 0.1, 2.0, slowest]) * min(1.0, period / 60)
        host = Host(
            world,
            policy,
            shift=shift,
            slowness=slowness,
            work=period / 4,
            pauses=float(options.get("pauses", 0.0)),
            deaths=deaths,
            has_clock=bool(options.get("has_clock", True)),
        )
        world.spawn(host, START + world.random.uniform(0, 5))
    # Slow hosts come late: by their error, their slowness, and the lock of others.
    world.run(START + TICKS * period + 400)
    expected = times.missed(START + 60, START + TICKS * period, 10_000)
    return world, expected


@pytest.mark.parametrize(
    ("period", "seed"), [*((60, seed) for seed in SEEDS), *((10, seed) for seed in SEEDS[1:])]
)
def test_each_tick_exactly_once(period: int, seed: int) -> None:
    world, expected = played(seed, Every(period), period)
    counts = Counter(tick for tick, _, _ in world.effects)
    assert len(expected) >= TICKS - 6
    assert {tick: counts[tick] for tick in expected} == dict.fromkeys(expected, 1)
    assert set(counts.values()) == {1}
    assert [tick for tick, _, _ in world.effects] == sorted(counts), "in order"
    for tick, at, host in world.effects:
        assert at + host.shift >= tick, "no sooner than by the host's own clock"


def test_a_cron_line_and_a_store_without_a_clock() -> None:
    world, expected = played(7, Cron("*/5 * * * *", UTC), 300, has_clock=False)
    counts = Counter(tick for tick, _, _ in world.effects)
    assert {tick: counts[tick] for tick in expected} == dict.fromkeys(expected, 1)
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("seed", SEEDS)
def test_paused_hosts_never_run_a_tick_twice(seed: int) -> None:
    """Pauses of up to three ttls at any step: a lease may be lost anywhere. Nothing is run again."""
    world, expected = played(seed, Every(60), 60, pauses=0.03)
    counts = Counter(tick for tick, _, _ in world.effects)
    assert set(counts.values()) == {1}
    assert len(counts.keys() & set(expected)) > 0.8 * len(expected)


@pytest.mark.parametrize(("seed", "has_clock"), [(seed, seed % 2 == 0) for seed in SEEDS])
def test_killed_hosts_lose_no_tick(seed: int, has_clock: bool) -> None:
    """Hosts die at any step: `at_most_for` decides when a tick may be run again, and none is left out."""
    world, expected = played(seed, Every(60), 60, deaths=0.02, slowest=0.5, has_clock=has_clock)
    runs: dict[int, list[float]] = {}
    for tick, at, _ in world.effects:
        runs.setdefault(tick, []).append(at)
    assert any(len(times) > 1 for times in runs.values()), "somebody died in the middle of a tick"
    for times in runs.values():
        assert len(times) <= ATTEMPTS
        # A run begins when the record was read; its work up to three slow steps later.
        assert all(later - earlier >= MOST - 6.1 for earlier, later in pairwise(times))
    missing = set(expected) - runs.keys()
    assert len(missing) <= len(expected) // 20, "only what died before its work in every attempt"


def test_a_host_a_year_ahead_is_held_back() -> None:
    world = World(1)
    policy = Policy(Every(60))
    for shift in (365 * 86_400.0, -20.0):
        host = Host(world, policy, shift=shift, slowness=0.1, work=1)
        world.spawn(host, START + 1)
    world.run(START + 100 * 60)
    counts = Counter(tick for tick, _, _ in world.effects)
    assert set(counts.values()) == {1}
    assert len(counts) >= 99
    assert all(at >= tick - SKEW for tick, at, _ in world.effects)


@pytest.mark.parametrize("pauses", [0.0, 0.03])
@pytest.mark.parametrize("seed", range(4 * len(SEEDS)))
def test_many_retry_at_once(seed: int, pauses: float) -> None:
    """Each failed run is run again once, one at a time, until one ends well; then none is."""
    world = World(seed)
    for _ in range(HOSTS):
        slowness = world.random.choice([0.0, 0.1, 2.0])
        host = Retrier(world, Policy(Every(86_400)), shift=0.0, slowness=slowness, work=5.0, pauses=pauses)
        world.spawn(host, START + world.random.uniform(0, 5))
    world.run(START + 2000)
    attempts = [attempt for attempt, _, _ in world.effects]
    assert max(attempts) > 2 and len(set(attempts)) == len(attempts), "no run is run again twice"
    (done,) = [at for run, at in world.ends if run is not None and run.state == "done"]
    assert all(at < done for _, at, _ in world.effects), "nothing runs after success"
    if not pauses:
        assert attempts == [*range(1, len(attempts) + 1)]
        assert all(
            end <= begin for (_, end), (_, begin, _) in zip(world.ends, world.effects[1:], strict=False)
        )
