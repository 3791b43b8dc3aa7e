"""What a benchmark says of a figure follows from the figure: ratios, targets, verdicts, tables, JSON."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from bench import keep
from bench.measure import Figure, Result, Series, best_peer, limit_of
from bench.plots import panels, plot
from bench.show import amount, headings, percentiles, table
from bench.suites import targets
from bench.verdict import Verdict
from rich.console import Console

LIMIT = Figure("raw", "limit", [9.0, 10.0, 11.0])
OURS = Figure("fencelock", "fencelock", [13.0, 12.0, 14.0])
SLOW, FAST = Figure("slow", "peer", [60.0, 61.0, 62.0]), Figure("fast", "peer", [26.0, 26.0, 26.0])
BESIDE = Figure("driver", "beside", [11.0, 11.0, 11.0])
FIGURES = [SLOW, BESIDE, FAST, OURS, LIMIT]


@pytest.mark.parametrize(
    ("value", "target", "bound", "met"),
    [
        (1.4, 1.4, "most", True),
        (1.404, 1.4, "most", True),
        (1.406, 1.4, "most", False),
        (0.65, 0.65, "least", True),
        (0.644, 0.65, "least", False),
        (0.646, 0.65, "least", True),
        (7.0, None, "most", None),
    ],
)
def test_a_value_is_judged_as_it_is_shown(value: float, target: float, bound: Any, met: bool | None) -> None:
    assert Verdict("it", value, target, bound).met is met


def test_a_verdict_in_words() -> None:
    assert str(Verdict("sweep", 61.5, 60, "most", " ms")) == "sweep: 61.50 ms; target at most 60 ms: missed"
    assert (
        str(Verdict("rate", 3210.4, 3000, "least", "/s")) == "rate: 3,210.40/s; target at least 3,000/s: met"
    )
    assert str(Verdict("drivers", 0, 0)) == "drivers: 0; target at most 0: met"
    assert str(Verdict("ratio", 1.25, aside="fastest rounds: 1.20")) == "ratio: 1.25 (fastest rounds: 1.20)"


def test_a_verdict_is_kept_and_judged_anew() -> None:
    verdict = Verdict("sweep", 61.5, 60, "most", " ms", "sweep")
    kept = json.loads(json.dumps(verdict.as_dict()))
    assert kept["met"] is False and Verdict.from_dict(kept) == verdict
    assert Verdict.from_dict({**kept, "value": 59.0}).met is True, "what is kept does not judge"


def test_limit_and_best_peer() -> None:
    assert limit_of(FIGURES) is LIMIT
    assert best_peer(FIGURES) is FAST, "what stands beside is no peer"
    assert best_peer([OURS, BESIDE]) is None and limit_of([OURS]) is None


def test_ratios_of_times_and_of_rates() -> None:
    times, rates = Result("times", FIGURES), Result("rates", FIGURES, rate=True)
    assert times.ratio(OURS, LIMIT) == pytest.approx(1.3)
    assert rates.ratio(OURS, LIMIT) == pytest.approx(1 / 1.3), "a part of the limit's rate"
    assert times.ratio(OURS, FAST) == pytest.approx(0.5)
    assert rates.ratio(OURS, FAST) == pytest.approx(2.0)
    assert times.ratio(OURS, None) is None
    assert "less is better" in headings(times)[0] and "more is better" in headings(rates)[1]


def test_targets_from_figures() -> None:
    (said,) = targets.to_limit(FIGURES, 1.4)
    assert (said.value, said.met, said.key) == (pytest.approx(1.3), True, "limit")
    assert said.aside == "fastest rounds: 1.33"
    assert targets.to_limit([OURS], 1.4) == [], "nothing is judged that was not measured"
    assert targets.to_peer(FIGURES)[0].value == pytest.approx(0.5)
    (faster,) = targets.times_faster("times", OURS, FAST, 3, "fast")
    assert (faster.value, faster.met) == (pytest.approx(2.0), False)
    assert targets.times_faster("times", OURS, None, 3, "fast") == []


def test_parts_of_the_limit() -> None:
    first, second = targets.parts_of_limit(FIGURES, 0.8)
    assert (first.met, first.bound, first.key) == (False, "least", "limit")
    assert second.value == pytest.approx(2.0) and second.met is None
    assert [one.met for one in targets.parts_of_limit([OURS, FAST])] == [None], (
        "without a limit: the peer only"
    )


def test_the_table_has_both_ratios_and_the_verdicts() -> None:
    result = Result("A title", FIGURES, ["a note"], verdicts=targets.to_limit(FIGURES, 1.2))
    shown = io.StringIO()
    Console(file=shown, width=140).print(table(result))
    lines = shown.getvalue().splitlines()
    assert any("to limit" in line and "to best peer" in line for line in lines)
    (row,) = [line for line in lines if "│ fencelock" in line]
    assert "1.30" in row and "0.50" in row
    assert any("target at most 1.2: missed" in line for line in lines) and any(
        "a note" in line for line in lines
    )


def test_a_table_without_a_limit_or_a_peer_has_no_such_column() -> None:
    shown = io.StringIO()
    Console(file=shown, width=140).print(table(Result("alone", [OURS])))
    assert "to limit" not in shown.getvalue() and "to best peer" not in shown.getvalue()


@pytest.mark.parametrize(
    ("value", "unit", "rate", "said"),
    [
        (4.05e-5, "s", False, "40.5 µs"),
        (0.25, "s", False, "250.0 ms"),
        (1 / 15600, "s", True, "15,600 /s"),
        (3 * 2**20, "B", False, "3.0 MiB"),
        (82723.4, "instructions", False, "82,723"),
    ],
)
def test_amounts(value: float, unit: str, rate: bool, said: str) -> None:
    assert amount(value, unit, rate) == said


def test_percentiles() -> None:
    figure = Figure("it", "fencelock", [number / 1e6 for number in range(1, 1001)])
    assert percentiles(figure) == "it: p50 0.501 ms, p95 0.950 ms, p99 0.990 ms, longest 1.00 ms"


def test_one_round_has_no_spread() -> None:
    assert Figure("it", "fencelock", [5.0]).quartiles == (5.0, 5.0)


def test_what_is_written_as_json() -> None:
    series = Series("handoffs", "processes", 8)
    result = Result(
        "A title", FIGURES, rate=True, key="a.b", series=series, verdicts=[Verdict("x", 1.0, 2.0)]
    )
    told = json.loads(json.dumps(keep.told(result)))
    assert told["series"] == {"name": "handoffs", "axis": "processes", "x": 8}
    assert told["verdicts"][0]["met"] is True
    ours = next(one for one in told["figures"] if one["name"] == "fencelock")
    assert ours["to_best_peer"] == pytest.approx(2.0) and ours["to_limit"] == pytest.approx(1 / 1.3)
    assert ours["rounds"] == [13.0, 12.0, 14.0]


def test_plots_draw_series_together(tmp_path: Any) -> None:
    def of(x: int) -> Result:
        figures = [Figure("fencelock", "fencelock", [x * 1e-6] * 3, {"rss": x * 1000.0})]
        return Result(f"{x}", figures, series=Series("leases", "leases", x, also=("rss",)))

    spread = Result("spread", [Figure("fencelock", "fencelock", [0.1, 0.2, 0.4])], distribution=True)
    results = [Result("bars", FIGURES), of(10), of(100), spread]
    assert [kind for kind, _ in panels(results)] == ["bars", "lines", "lines", "curves"]
    plot(tmp_path / "all.png", results)
    assert (tmp_path / "all.png").stat().st_size > 1000
