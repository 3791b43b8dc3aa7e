"""Several runs of one cell add up, and one page tells of runs, mutants, model checks and a soak."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chaos.report import main, missing, write
from chaos.summary import markdown
from chaos.verdict import Outcome, total


def ran(backend: str = "redis", fault: str = "clock", subject: str = "fencelock", **more: Any) -> Outcome:
    return Outcome(backend, fault, "passed", subject=subject, **more)


def test_runs_of_one_cell_add_up() -> None:
    one = ran(seed=1, injections=20, grants=300, losses=4, counts={"failed": 2}, declared={"exclusion": 5})
    other = ran(seed=2, injections=30, grants=100, counts={"failed": 1}, declared={"exclusion": 1})
    whole = total([one, other])
    assert (whole.injections, whole.grants, whole.losses) == (50, 400, 4)
    assert whole.counts == {"failed": 3}
    assert whole.declared == {"exclusion": 6}
    assert whole.status == "passed"


def test_a_failure_stays_in_its_cell_whatever_a_later_run_says() -> None:
    failed = Outcome("redis", "clock", "failed", violations=["exclusion: broken"])
    whole = total([failed, ran()])
    assert whole.status == "failed"
    assert whole.violations == ["exclusion: broken"]


def test_one_run_is_its_own_total() -> None:
    one = ran(recovery=0.5)
    assert total([one]) is one


def test_the_page_has_a_column_for_each_library_and_backend_and_a_row_for_all(tmp_path: Path) -> None:
    outcomes = [
        ran(injections=20, grants=3000, seed=1, commit="abc", declared={"exclusion": 30}, declaration="<i>"),
        ran(injections=30, grants=1000, seed=2, commit="def"),
        ran(fault="pause", grants=10, injections=5, seed=1, commit="abc"),
        ran(subject="redis-py", fault="pause", injections=7, violations=["exclusion: two"], seed=1),
        Outcome("redis", "cut", "not run", why="no iptables"),
    ]
    page = write(tmp_path, outcomes).read_text()
    assert "<th>fencelock<br>redis<th>redis-py<br>redis" in page
    assert "50 / 4,000 / 0 / 0" in page
    assert "30 declared: 0.75% of grants" in page
    assert "55 / 4,010 / 0 / 0" in page  # the row of all
    assert "<b>1 violation</b>" in page
    assert "<td class=not title='no iptables'>not run" in page
    assert "commit abc, def, seeds 1, 2" in page
    assert "&lt;i&gt;" in page


def test_reports_mutants_and_models_become_one_page(tmp_path: Path) -> None:
    write(tmp_path / "one", [ran(injections=20, grants=3, seed=1)])
    write(tmp_path / "two", [ran(injections=22, grants=4, seed=2)])
    mutants, model = tmp_path / "mutants.json", tmp_path / "model.json"
    caught = {"name": "no_expiry", "breaks": "a dead waiter stays", "check": "unit/x.py", "caught": True}
    mutants.write_text(json.dumps({"commit": "abc", "caught": 1, "mutants": [caught]}))
    told = {"machine": "lease", "schedules": 1000, "grants": 2, "violations": 0, "faults": {"cut": 9}}
    model.write_text(json.dumps({**told, "commit": "abc"}))
    parts = [str(tmp_path / word / "report.json") for word in ("one", "two")]
    assert main([str(tmp_path / "all"), *parts, str(mutants), str(model)]) == 0
    page = (tmp_path / "all" / "report.html").read_text()
    assert "42 / 7 / 0 / 0" in page
    assert "1 of 1 mutants caught, commit abc" in page
    assert "no_expiry" in page
    assert "1,000 schedules, 2 grants, 0 violations; 9 × cut; commit abc" in page
    assert len(json.loads((tmp_path / "all" / "report.json").read_text())["outcomes"]) == 2


def test_a_soak_has_its_place(tmp_path: Path) -> None:
    write(tmp_path / "one", [ran(injections=20, grants=3, seed=1)])
    part = {"backend": "etcd", "version": "3.4", "counts": {"grants": 5000}, "struck": {"kill": 7}}
    flat = {**part, "findings": [{}], "failures": []}
    grown = {**part, "backend": "redis", "findings": [{}, {}], "failures": ["memory grew"]}
    told = {"commit": "abc", "seconds": 3600, "machine": "m", "date": "d", "command": "make soak"}
    soak = tmp_path / "soak.json"
    soak.write_text(json.dumps({**told, "outcomes": [flat, grown]}))
    assert main([str(tmp_path / "all"), str(tmp_path / "one" / "report.json"), str(soak)]) == 0
    page = (tmp_path / "all" / "report.html").read_text()
    assert "60 minutes of churn" in page and "commit abc" in page
    assert "5,000 grants<td>7 × kill<td>1 measure<td><b>flat</b>" in page
    assert "<tr class=failed><th>redis 3.4" in page and "<b>memory grew</b>" in page
    assert len(json.loads((tmp_path / "all" / "report.json").read_text())["outcomes"]) == 1


def test_the_control_is_listed_where_a_fault_can_bite(tmp_path: Path) -> None:
    outcomes = [
        ran(fault="pause", lost_updates=3, seed=1),
        ran(fault="pause", lost_updates=4, seed=2),
        ran(lost_updates=5, declaration="its clock"),
        ran("zookeeper"),
    ]
    page = write(tmp_path, outcomes).read_text()
    assert "redis × pause: 7; redis × clock: 5." in page
    assert "On zookeeper no clock decides" in page


def test_what_is_no_report_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.json").write_text("{")
    assert main([str(tmp_path), str(tmp_path / "bad.json")]) == 64
    assert main([str(tmp_path), str(tmp_path / "none.json")]) == 64
    assert main([str(tmp_path)]) == 64
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 3
    assert "bad.json is no report" in told[0]
    assert "none.json is no report" in told[1]


def test_a_cell_that_nobody_filled_says_why() -> None:
    found = {one.fault: one for one in missing([ran(fault="pause"), ran("redlock", "pause", "pottery")])}
    assert found["cut"].status == "not run"
    assert found["leader"].status == "does not apply"
    assert found["renewals"].why == "it renews nothing by itself"
    assert "pause" not in found


def test_the_page_of_the_folder_tells_the_same() -> None:
    outcomes = [
        ran(
            injections=20, grants=3000, seed=1, commit="abc", declared={"exclusion": 30}, declaration="clocks"
        ),
        ran(injections=30, grants=1000, seed=2, commit="def"),
        ran(
            "redis",
            "pause",
            "redis-py",
            injections=7,
            grants=9,
            lost_updates=3,
            violations=["exclusion: two"],
        ),
        Outcome("redis", "cut", "not run", why="no iptables"),
    ]
    more = [
        {"caught": 2, "commit": "abc", "mutants": [{}, {}]},
        {"machine": "quorum", "schedules": 1000, "grants": 7, "violations": 0, "commit": "abc"},
    ]
    page = markdown(outcomes, {"machine": "2 cores", "date": "today"}, more)
    assert "2 passed, 0 failed, 1 not run: 50 injections, 4000 grants. Commit abc, def; seed" in page
    assert "| `clock` | 50 / 4,000, 30 declared |" in page
    assert "| `cut` | not run |" in page
    assert "| `pause` | 7 / 9 / 3 **1 violation** |" in page
    assert "| redis, `clock` | exclusion broken in 30 of 4,000 grants | clocks |" in page
    assert "2 of 2 caught" in page and "1,000 schedules" in page


def test_the_committed_page_is_made_of_the_committed_figures(tmp_path: Path) -> None:
    results = Path(__file__).parents[3] / "chaos" / "results"
    parts = [str(part) for part in sorted(results.glob("*.json"))]
    assert main([str(tmp_path), *parts]) == 0
    assert (tmp_path / "README.md").read_text() == (results / "README.md").read_text()
