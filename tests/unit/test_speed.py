"""The page on speed has the figures that were measured, says of each what it is, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from bench.drawing import decades, percentile
from bench.keep import told
from bench.measure import Figure, Result, Series
from bench.speed import kept, page, pictures, rows
from bench.speed.__main__ import main, page_with
from bench.suites import SUITES
from bench.verdict import Verdict

ABOUT = {"when": "2000-01-02T03:04:05Z", "commit": "abc", "python": "3.11.7", "processors": 2, "load": 0.25}
LIMIT = Figure("raw socket", "limit", [10e-6, 11e-6, 12e-6])
OURS = Figure("fencelock", "fencelock", [13e-6, 14e-6, 15e-6])


def suite(name: str, *results: Result, quick: bool = False) -> dict[str, Any]:
    return {"suite": name, **ABOUT, "quick": quick, "results": [told(result) for result in results]}


def measured(*results: Result, name: str = "redis") -> dict[str, Any]:
    return {"suites": {name: kept.condensed(suite(name, *results))}}


def pair(value: float, target: float = 1.4) -> Result:
    verdicts = [Verdict("to the limit", value, target, key="limit"), Verdict("only told", 3.0)]
    return Result(
        "A pair", [OURS, LIMIT], ["left out: tooz (no wheel)", "said"], verdicts=verdicts, key="redis.pair"
    )


# What is there --------------------------------------------------------------------------------


def test_page_and_pictures_are_current() -> None:
    assert main(["--check"]) == 0


def test_every_suite_of_the_page_exists() -> None:
    assert set(rows.suites()) <= set(SUITES)


def test_no_target_is_listed_twice() -> None:
    listed = [row for section in rows.SECTIONS for row in section.rows]
    assert len(listed) == len(set(listed))


def test_every_target_that_was_judged_is_on_the_page() -> None:
    listed = {row for section in rows.SECTIONS for row in section.rows}
    assert set(page.judged(kept.load())) <= listed


def test_reasons_are_for_targets_of_the_page() -> None:
    listed = {row for section in rows.SECTIONS for row in section.rows}
    for key, said in page.reasons().items():
        assert key in listed, f"{key} is no target"
        assert set(said) <= {"reason", "tried"} and said["reason"]


def test_whoever_misses_a_target_says_why() -> None:
    silent = [key for key in page.missed(kept.load()) if key not in page.reasons()]
    assert not silent, f"bench/speed/reasons.toml has no reason for {silent}"


# What is said ---------------------------------------------------------------------------------


def test_a_target_that_is_met() -> None:
    text = page.block(measured(pair(1.25)), {}, {})
    assert "| A pair | raw socket: 11.0 µs | to the limit | 1.25 | at most 1.4 | met |" in text
    assert "Nothing that was measured." in text
    assert "only told" not in text, "it has no target"
    assert "Left out: tooz (no wheel)." in text and "\nsaid" not in text


def test_a_target_that_is_missed_has_its_reason() -> None:
    data = measured(pair(1.5))
    assert page.missed(data) == ["redis.pair/limit"]
    assert "The reason is not known yet." in page.block(data, {}, {})
    why = {"redis.pair/limit": {"reason": "The moon.", "tried": "Another moon."}}
    text = page.block(data, why, {})
    assert "| 1.50 | at most 1.4 | **missed** |" in text
    assert (
        "- **A pair: to the limit**: 1.50, wanted at most 1.4.\n  The moon.\n  Tried: Another moon." in text
    )


def test_what_is_not_measured_is_said_to_be_missing() -> None:
    count = sum(len(section.rows) for section in rows.SECTIONS)
    text = page.block({"suites": {}}, {}, {})
    assert text.startswith(f"Of {count} targets 0 are met and 0 are missed; {count} are not measured yet.")
    assert "| `redis.pair/limit` | | | not measured yet | | |" in text
    assert f"Of {count} targets 1 are met" in page.block(measured(pair(1.0)), {}, {})


def test_all_figures_with_both_ratios() -> None:
    peer = Figure("peer", "peer", [28e-6, 28e-6, 28e-6])
    result = measured(Result("Handoffs", [OURS, LIMIT, peer], rate=True))["suites"]["redis"]["results"][0]
    text = "\n".join(page.figures(result))
    assert "(more is better)" in text
    assert "| fencelock | 71,429 /s | 66,667 /s – 76,923 /s | 0.79 | 2.00 |" in text


def test_when_and_where() -> None:
    later = {**ABOUT, "when": "2000-01-09T00:00:00Z", "load": 1.5}
    said = page.taken([ABOUT, later])
    assert "on 2000-01-02 to 2000-01-09 at commit `abc`" in said and "at most 1.5" in said
    assert "on 2000-01-02 at" in page.taken([ABOUT])


def test_a_page_keeps_what_is_around_its_marks() -> None:
    text = "before <!-- measured: bench/speed -->\nold\n<!-- /measured --> after"
    assert page_with(text, "new") == text.replace("old", "new")
    with pytest.raises(ValueError, match="has no <!-- measured"):
        page_with("nothing", "x")


# What is kept ---------------------------------------------------------------------------------


def test_taking_keeps_what_was_not_measured_again(tmp_path: Path) -> None:
    (tmp_path / "redis.json").write_text(json.dumps(suite("redis", pair(1.3))))
    before = {"suites": {"sqlite": {**ABOUT, "results": []}, "redis": {**ABOUT, "results": []}}}
    data = kept.take(before, ["redis", "sqlite", "memory"], tmp_path)
    assert list(data["suites"]) == ["redis", "sqlite"]
    assert data["suites"]["redis"]["results"][0]["verdicts"][0]["value"] == 1.3
    kept.save(data, tmp_path / "speed.json")
    assert kept.load(tmp_path / "speed.json") == data


def test_a_quick_measurement_is_not_taken() -> None:
    with pytest.raises(SystemExit, match="FENCELOCK_QUICK"):
        kept.condensed(suite("redis", pair(1.3), quick=True))


def test_a_distribution_is_kept_by_some_points() -> None:
    times = [number / 1e6 for number in range(1, 1002)]
    result = Result("Latencies", [Figure("fencelock", "fencelock", times)], distribution=True)
    (figure,) = measured(result)["suites"]["redis"]["results"][0]["figures"]
    found = dict(zip(kept.PLACES, figure["points"], strict=True))
    assert found[0.5] == pytest.approx(501e-6) and found[0.99] == pytest.approx(991e-6)
    assert figure["rounds"] == 1001 and len(json.dumps(figure)) < 600


# Pictures -------------------------------------------------------------------------------------


def handoffs(place: str, kind: str) -> list[Result]:
    return [
        Result(
            f"{kind} {size}",
            [
                Figure("token", "limit", [1 / 15_000] * 3),
                Figure("fencelock", "fencelock", [1 / 11_000] * 3),
                Figure("other", "peer", [size / 3_000] * 3),
            ],
            rate=True,
            series=Series(f"handoffs on {place} among {kind}", kind, size),
        )
        for size in (2, 8, 32)
    ]


def leases() -> list[Result]:
    return [
        Result(
            f"{count}",
            [
                Figure("bare", "limit", [count * 1e-6] * 3, {"rss": 0.0, "threads": 0.0}),
                Figure("fencelock", "fencelock", [count * 2e-6] * 3, {"rss": count * 900.0, "threads": 1.0}),
            ],
            series=Series("leases on redis://", "leases", count),
        )
        for count in (1_000, 10_000, 100_000)
    ]


def everything() -> dict[str, Any]:
    times = [number / 1e6 for number in range(40, 1040)]
    spread = Result("Single pairs, blocking", [Figure("fencelock", "fencelock", times)], distribution=True)
    data = measured(*handoffs("redis://", "processes"), *handoffs("redis://", "tasks"), *leases())
    data["suites"] |= measured(*handoffs("sqlite://", "threads"), name="contended")["suites"]
    data["suites"] |= measured(spread, name="redis-latency")["suites"]
    return data


def test_every_picture_is_drawn_small_and_for_both_sorts_of_page() -> None:
    files = pictures.drawn(everything())
    assert set(files) == {picture.file for picture in pictures.PICTURES}
    for text in files.values():
        ElementTree.fromstring(text)
        assert len(text) < 10_000 and "prefers-color-scheme:dark" in text
        heights = [float(y) for y in re.findall(r'cy="([\d.]+)"', text)]
        height = float(re.findall(r'viewBox="0 0 \d+ (\d+)"', text)[0])
        assert all(0 < y < height for y in heights)


def test_nothing_is_drawn_of_nothing() -> None:
    assert pictures.drawn({"suites": {}}) == {}
    assert pictures.shown({}) == {}


def test_pictures_stand_below_headings_that_exist() -> None:
    titles = {section.title for section in rows.SECTIONS}
    shown = pictures.shown(pictures.drawn(everything()))
    assert set(shown) <= titles
    assert "](../pictures/speed-leases.svg)" in shown["Held leases"][0]


def test_what_is_linear_is_a_straight_line() -> None:
    text = pictures.drawn(everything())["speed-leases.svg"]
    path = re.search(r'class="l w0" d="M([^"]+)" */>\n<circle', text)
    assert path is not None
    spots = [tuple(map(float, spot.split())) for spot in path[1].split("L")]
    (x1, y1), (x2, y2), (x3, y3) = spots
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2) and y1 - y2 == pytest.approx(y2 - y3, abs=0.2)


def test_scales() -> None:
    assert [percentile(part) for part in (0, 0.9, 0.99)] == pytest.approx([0, 1, 2])
    assert decades([30, 4000]) == {"10": 10.0, "100": 100.0, "1k": 1000.0, "10k": 10000.0}
    assert decades([1.0]) == {"1": 1.0, "10": 10.0}


def test_fencelock_and_the_limit_have_their_colours() -> None:
    figures = [
        {"name": name, "role": role} for name, role in (("p", "peer"), ("l", "limit"), ("h", "fencelock"))
    ]
    assert pictures.numbered(figures) == {"h": 0, "l": 1, "p": 2}
    many = [{"name": f"p{n}", "role": "peer"} for n in range(9)]
    assert len(pictures.numbered(many)) == pictures.MOST - 2, "what has no colour is not drawn"
