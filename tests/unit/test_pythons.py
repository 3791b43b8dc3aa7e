"""What the project says of Pythons is what was run; nothing here starts another Python.

`make check` compares the stored results with the page and the classifiers. A test here would fail on every
Python because it failed on one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools import interpreters, pythons  # noqa: E402
from tools.servers import ServerError  # noqa: E402

GOOD = {"passed": 9, "failed": 0, "seconds": 1}
RUNS = {run.name: GOOD for run in pythons.RUNS}


def record(**changed: Any) -> dict[str, Any]:
    about = {"version": "3.14.10", "source": "Debian sid", "date": "2026-01-02"}
    return {**about, "runs": {**RUNS, **changed}}


def bad(**changed: Any) -> dict[str, Any]:
    return {**GOOD, "failed": 1, **changed}


def test_the_page_tells_what_ran_and_what_did_not() -> None:
    page = pythons.page({"3.14": record(unit={**GOOD, "skipped": 2, "skips": ["a.py:1: no such file"]})})
    assert "| 3.14.10 | Debian sid | 9 passed, 2 skipped | 9 passed |" in page
    assert "- 3.14.10: a.py:1: no such file" in page
    assert "- Python 3.12: not run yet." in page
    assert "- Python 3.14 without the GIL: " in page
    assert "## Failures" not in page


def test_a_failure_is_on_the_page() -> None:
    page = pythons.page({"3.14": record(redis=bad(failures=["blocking tokens_rise: 7 after 8"]))})
    assert "9 passed, 1 failed" in page
    assert "## Failures\n\n- 3.14.10: blocking tokens_rise: 7 after 8" in page


@pytest.mark.parametrize(
    ("told", "well"),
    [
        (record(), True),
        (record(redis=bad()), False),
        (record(redis={**GOOD, "passed": 0}), False),
        ({**record(), "runs": {key: GOOD for key in RUNS if key != "redis"}}, False),
        ({"error": "Python 3.14 is wanted"}, False),
        ({}, False),
    ],
)
def test_only_what_ran_and_passed_counts(told: dict[str, Any], well: bool) -> None:
    assert pythons.is_well(told) is well


def test_a_page_or_a_classifier_that_is_not_current_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = {name: record() for name in pythons.PYTHONS}
    monkeypatch.setattr(pythons.RESULTS, "load", lambda: stored)
    monkeypatch.setattr(pythons, "claimed", lambda: list(pythons.PYTHONS))
    monkeypatch.setattr(pythons.RESULTS, "page", tmp_path / "pythons.md")
    assert pythons.main(["--check"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "is not current: run python -m tools.pythons --page" in line
    assert pythons.main(["--page"]) == pythons.main(["--check"]) == 0
    stored["3.12"] = record(redis=bad())
    pythons.main(["--page"])
    assert pythons.main(["--check"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "pyproject.toml claims Python 3.11, 3.12, 3.13, 3.14; 3.12 did not pass"


def test_a_python_that_is_nowhere_is_one_line_and_status_69(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cannot(wanted: str, suite: str) -> Any:
        raise ServerError(f"python{wanted}@{suite}: cannot be read\nand more")

    monkeypatch.setattr(interpreters, "_unpacked", cannot)
    monkeypatch.setitem(pythons.PYTHONS, "3.99", "sid")
    monkeypatch.setattr(pythons.RESULTS, "store", lambda name, record: None)
    assert pythons.run_all(["3.99"], short=False) == 69
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert line.startswith("pythons: Python 3.99 is wanted, and 3.") and "cannot be read" in line
    assert line.endswith("install python3.99, or add it to pyenv")
    assert "3.99   not run: Python 3.99 is wanted" in told.out and "3.14t  not run: " in told.out


def test_an_unknown_version_is_one_line_that_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        pythons.main(["2.7"])
    last = capsys.readouterr().err.splitlines()[-1]
    assert "Python '2.7' is not among those that are supported: 3.11 3.12 3.13 3.14" in last


def test_the_running_python_is_found() -> None:
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = interpreters.find(wanted)
    assert found.version.startswith(f"{wanted}.")
    assert found.program.exists()


def test_the_counts_of_all_runs_of_pytest_are_added() -> None:
    said = "a line about 3 passed\n5 passed, 1 skipped in 1.20s\n2 failed, 4 passed in 0.90s (0:00:00)\n"
    assert [pythons._count(said, what) for what in ("passed", "failed", "skipped")] == [9, 2, 1]
