"""The soak in its short form: the rule of its verdict, a run that is flat, and one that leaks in every way.

`make soak` is the long form.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from chaos.soak.page import plot, worst, write
from chaos.soak.run import FAULTS, Outcome, Plan, Soak
from chaos.soak.verdict import MEASURES, Finding, Sample, growth, judge

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 12


def soaked(measure: str, value: Callable[[int], float], at_work: float = 5.0, closed: float = 0) -> Finding:
    """What is found of a process with these values in its lulls."""
    samples = [Sample(10.0 * n, "redis", "c", "lull", {measure: value(n)}) for n in range(ROUNDS)]
    samples += [Sample(10.0 * n + 5, "redis", "c", "work", {measure: at_work}) for n in range(ROUNDS)]
    samples.append(Sample(10.0 * ROUNDS, "redis", "c", "closed", {measure: closed}))
    (found,) = judge(samples)
    return found


# The rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", [word for word, one in MEASURES.items() if one.kind != "shown"])
def test_what_stays_is_flat(measure: str) -> None:
    assert soaked(measure, lambda n: 7).why == ""
    assert soaked(measure, lambda n: 7 + (n % 3 == 0)).why == ""
    assert soaked(measure, lambda n: 12 - n).why == ""


def test_warm_up_is_not_growth() -> None:
    assert soaked("rss", lambda n: 30_000 + 2_000 * min(n, 3)).why == ""
    assert soaked("threads", lambda n: min(n, 3)).why == ""


@pytest.mark.parametrize("measure", ["threads", "tasks", "left", "leases"])
def test_one_more_in_each_third_is_a_leak(measure: str) -> None:
    found = soaked(measure, lambda n: 5 + n // 4)
    assert found.why.startswith("grows by")
    assert (found.start, found.middle, found.end) == (5, 6, 7)


@pytest.mark.parametrize("measure", ["sockets", "files"])
def test_sockets_may_grow_by_what_a_pool_keeps(measure: str) -> None:
    assert soaked(measure, lambda n: 5 + n // 4).why == ""
    assert soaked(measure, lambda n: 5 + n).why.startswith("grows by")


def test_memory_that_creeps_is_a_leak() -> None:
    """A list that grows by a little in each round; a jump to and fro is none."""
    assert soaked("rss", lambda n: 30_000 + 300 * n).why.startswith("grows by")
    assert soaked("rss", lambda n: 30_000 + 800 * (n % 2)).why == ""
    assert soaked("blocks", lambda n: 150_000 + 1_000 * n).why.startswith("grows by")
    assert soaked("blocks", lambda n: 150_000 + 100 * n).why == ""


def test_a_row_that_is_never_cleaned_stays_up() -> None:
    assert "stays up: 1 at the end, at most 0" in soaked("left", lambda n: n > 5).why


def test_nothing_may_be_left_when_all_have_closed() -> None:
    for measure in ("threads", "sockets", "tasks", "left", "connections"):
        assert soaked(measure, lambda n: 5, closed=1).why == "closed: 1 left when all had closed"


def test_counts_at_work_are_looked_at_roughly() -> None:
    def busy(last: float) -> Finding:
        lulls = [Sample(100.0 * n, "etcd", "c", "lull", {"leases": 0}) for n in range(ROUNDS)]
        work = [Sample(10.0 * n, "etcd", "c", "work", {"leases": last if n >= 80 else 4}) for n in range(120)]
        (found,) = judge(lulls + work)
        return found

    assert busy(5).why == ""
    assert busy(9).why == "at work: 9 after 4"


def test_too_few_lulls_are_no_proof() -> None:
    (found,) = judge([Sample(float(n), "redis", "c", "lull", {"threads": 1}) for n in range(5)])
    assert found.why == "only 5 lulls: too few to judge"


def test_growth_is_not_moved_by_a_few_odd_ones() -> None:
    line = [(float(n), 10.0 + 2 * n) for n in range(20)]
    assert growth(line) == pytest.approx(38)
    line[3], line[17] = (3.0, 500.0), (17.0, -500.0)
    assert growth(line) == pytest.approx(38)
    assert growth([(1.0, 5.0)]) == 0


# Real runs -------------------------------------------------------------------------------------


def soak(folder: Path, *plant: str) -> tuple[Outcome, list[Sample]]:
    plan = Plan(("redis",), 3.0, 7, clients=1, lanes=2, pause=0.05, plant=plant)
    run = Soak(plan, "redis", folder / "samples.jsonl", lambda *_: None)
    try:
        run.start()
        return run.run(), run.samples
    finally:
        run.stop()


def test_a_short_soak_is_flat(tmp_path: Path, record_property: pytest.RecordProperty) -> None:
    outcome, samples = soak(tmp_path)
    told = f"{outcome.counts['grants']} grants in {outcome.seconds:.1f}s, {outcome.struck}"
    record_property("soak", told)
    print(told)
    assert outcome.failures == []
    assert outcome.rounds >= 6
    assert outcome.counts["grants"] > 50
    assert outcome.struck["kill"] > 0
    assert set(outcome.struck) & set(FAULTS)
    assert {"threads", "sockets", "rss", "left", "connections"} <= {one.measure for one in outcome.findings}
    lines = (tmp_path / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [sample.as_dict() for sample in samples]
    page = write(tmp_path, Plan(("redis",), 3.0, 7), [outcome], samples, 0.1).read_text()
    assert page.count("<svg") == len({one.measure for one in outcome.findings})
    for outside in ("src=", "<script", "@import", "url(", "<link"):
        assert outside not in page
    assert json.loads((tmp_path / "soak.json").read_text())["outcomes"][0]["failures"] == []


def test_every_planted_leak_is_seen(tmp_path: Path) -> None:
    """A list that grows, threads and sockets that stay, records of an hour whose owner was killed."""
    outcome, samples = soak(tmp_path, "list", "thread", "socket", "record")
    bad = {(one.who, one.measure) for one in outcome.findings if one.why}
    for who in ("blocking-0", "asyncio-1"):
        for measure in ("blocks", "objects", "threads", "sockets", "files"):
            assert (who, measure) in bad, measure
    assert ("server", "left") in bad
    assert outcome.failures
    assert all(one.why for one in worst(outcome.findings) if one.measure in {"threads", "sockets", "left"})
    assert "<path" in plot(samples, "threads")


# The command -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--backend", "nosuch"], "no backend is called 'nosuch'; there are: redis postgresql etcd"),
        (["--minutes", "soon"], "MINUTES='soon' is no number"),
    ],
)
def test_bad_input_is_one_line(words: list[str], told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "chaos.soak", *words],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (64, "")
    assert len(done.stderr.splitlines()) == 1
    assert told in done.stderr
