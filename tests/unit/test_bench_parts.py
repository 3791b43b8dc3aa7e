"""The parts of the benchmark that count: handoffs and shares, growth with leases, instructions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench import instructions
from bench.measure import Figure, Result
from bench.peers.contests import TRIES, TooBusy, handoffs, summed_up, tried_again
from bench.suites.leases import growth, series
from bench.suites.redis import contended
from bench.suites.redis.leases import judged
from bench.suites.start import DRIVERS, drivers

ROOT = Path(__file__).resolve().parents[2]


def test_a_handoff_is_to_another() -> None:
    assert handoffs([[1.0, 2.0, 5.0], [3.0, 4.0]]) == 2
    assert handoffs([[1.0, 2.0, 3.0], []]) == 0
    assert handoffs([[1.0, 3.0], [2.0, 4.0]]) == 3


def test_a_race_counts_while_everybody_races() -> None:
    # One began at 0 and one at 1; the first second of each does not count, so 2 to 4 does.
    first = (0.0, [0.5, 1.5, 2.5, 3.5, 4.5])
    second = (1.0, [1.2, 2.2, 3.2, 3.8, 4.2])
    told = summed_up([first, second], calls=27, seconds=3.0, heat=1.0)
    assert told["rate"] == pytest.approx(4 / 2), "2.2 2.5 3.2 3.5 3.8: four changes in two seconds"
    assert told["acquisitions"] == pytest.approx(5 / 2)
    assert told["share"] == pytest.approx(2 / 3)
    assert told["calls"] == pytest.approx(27 / told["handoffs"])


def test_a_race_without_time_in_common_is_none() -> None:
    with pytest.raises(TooBusy, match="too busy"):
        summed_up([(0.0, [1.0]), (5.0, [6.0])], calls=0, seconds=1.0, heat=0.1)


@pytest.mark.parametrize("failures", range(TRIES + 1))
def test_a_race_is_run_again_if_the_machine_was_too_busy(failures: int) -> None:
    left = [None] * failures

    def race(contenders: int) -> dict[str, float]:
        if left:
            left.pop()
            raise TooBusy("busy")
        return {"rate": float(contenders)}

    if failures < TRIES:
        assert tried_again(race)(8) == {"rate": 8.0}
    else:
        with pytest.raises(TooBusy):
            tried_again(race)(8)


def held(count: int, sweep: float, memory: float) -> Result:
    figures = [
        Figure("bare", "limit", [sweep / 2] * 3, {"rss": 0.0, "threads": 0.0}),
        Figure("fencelock", "fencelock", [sweep] * 3, {"rss": memory, "threads": 1.0}),
    ]
    return Result(f"{count}", figures, series=series("redis://", count))


@pytest.mark.parametrize(("last", "met"), [(0.30, True), (0.45, True), (0.46, False)])
def test_growth_is_linear_if_a_lease_costs_no_more(last: float, met: bool) -> None:
    results = growth([held(1_000, 0.003, 1e6), held(10_000, 0.03, 1e7), held(100_000, last, 1e8)])
    time, memory = results[-1].verdicts
    assert (time.key, time.value, time.met) == ("linear-time", pytest.approx(last / 0.3), met)
    assert (memory.key, memory.value) == ("linear-memory", pytest.approx(1.0))
    assert not results[0].verdicts and not results[1].verdicts


def test_ten_thousand_leases_are_judged_and_others_told() -> None:
    extra = {"rss": 41 * 2.0**20, "threads": 1.0}
    said = {one.key: one.met for one in judged(0.05, extra, during=0.0009, alone=0.0001, count=10_000)}
    assert said == {"sweep": True, "memory": False, "threads": True, "bystander": True}
    (only,) = judged(0.5, extra, during=0.002, alone=0.0001, count=100_000)
    assert only.met is None and only.aside == "0.10 ms without sweeps"


def test_contended_targets_are_for_the_most_contenders() -> None:
    counted = {"share": 0.97, "calls": 2.1, "acquisitions": 1.0}
    figures = [
        Figure(contended.TOKEN.label, "limit", [1 / 15_000] * 3, counted),
        Figure("fencelock", "fencelock", [1 / 11_000] * 3, counted),
        Figure("python-redis-lock", "peer", [1 / 2_800] * 3, counted),
    ]
    said = {one.key: one.met for one in contended.verdicts(figures, "processes", 32)}
    assert said == {"limit": True, "peer": True, "share": True, "calls": True}
    assert [one.met for one in contended.verdicts(figures, "processes", 8)] == [None, None]
    assert [one.met for one in contended.verdicts(figures, "tasks", 32)] == [None, None]
    assert contended.verdicts(figures, "threads", 32)[0].target == contended.STRETCH


# Instructions ---------------------------------------------------------------------------------

OUT = """# callgrind format
version: 1
positions: line
events: Ir
summary: 405944962

fn=(852) main
0 126
totals: 405944962
"""


def test_what_callgrind_tells() -> None:
    assert instructions.collected(OUT) == 405_944_962
    assert instructions.collected("events: Ir\ntotals: 12\n") == 12
    with pytest.raises(ValueError, match="not told"):
        instructions.collected("events: Ir\n")


def test_change_in_percent() -> None:
    kept = {
        "commit": "abc",
        "pairs": {"memory:// fencelock, blocking": 80_000, "memory:// threading.Lock": 500},
    }
    figures = [
        Figure("threading.Lock", "limit", [600.0]),
        Figure("fencelock, blocking", "fencelock", [82_000.0]),
        Figure("fencelock, asyncio", "fencelock", [90_000.0]),
    ]
    (said,) = instructions.changes(figures, "memory://", kept)
    assert said.value == pytest.approx(2.5)
    assert str(said) == "fencelock, blocking: more than the 80,000 of abc: 2.50%"
    assert instructions.changes(figures, "memory://", {}) == []


def test_another_python_is_told() -> None:
    here = instructions.place()
    assert instructions.reservation({}) == [] == instructions.reservation({"commit": "abc", **here})
    (said,) = instructions.reservation({"commit": "abc", **here, "python": "3.0"})
    assert "python 3.0" in said and "not comparable" in said


def counted(**changes: Any) -> dict[str, Any]:
    figures = [{"name": "fencelock, blocking", "median": 82_723.4}]
    results = [{"key": "instructions.memory://", "figures": figures}]
    return {"quick": False, "commit": "abc", "python": "3.11", "results": results, **changes}


def test_what_is_kept_of_instructions() -> None:
    kept = instructions.taken(counted())
    assert kept["pairs"] == {"memory:// fencelock, blocking": 82_723} and kept["commit"] == "abc"
    with pytest.raises(SystemExit, match="FENCELOCK_QUICK"):
        instructions.taken(counted(quick=True))


def test_kept_instructions_can_be_read() -> None:
    for name, count in instructions.load().get("pairs", {}).items():
        assert name.split("://")[0] in {"memory", "sqlite", "redis"} and count > 0


def test_the_program_that_is_counted_runs() -> None:
    for adapter, flavour in (("mutex", "blocking"), ("ours", "asyncio")):
        words = ["-m", "bench.peers.counted", adapter, flavour, "memory://counted", "3", json.dumps({})]
        subprocess.run([sys.executable, *words], cwd=ROOT, check=True, timeout=60)


# Starting up ----------------------------------------------------------------------------------


def test_no_driver_is_imported() -> None:
    assert drivers() == []
    assert {"redis", "psycopg", "kazoo", "rich", "click"} <= DRIVERS
