"""Stored results and the page made of them."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from tools.results import Record, Results


def results(folder: Path, names: list[str]) -> Results:
    def page(stored: dict[str, Record]) -> str:
        return "".join(f"- {name}: {record['passed']}\n" for name, record in stored.items())

    return Results(folder / "runs.json", names, page)


def test_records_are_kept_in_the_order_of_the_names_and_the_page_follows(tmp_path: Path) -> None:
    runs = results(tmp_path, ["a", "b"])
    assert runs.load() == {}
    runs.store("b", {"passed": 2})
    runs.store("a", {"passed": 1})
    runs.store("b", {"passed": 3})
    assert list(json.loads((tmp_path / "runs.json").read_text())) == ["a", "b"]
    assert (tmp_path / "runs.md").read_text() == "- a: 1\n- b: 3\n"


def test_what_is_no_name_any_more_is_dropped(tmp_path: Path) -> None:
    results(tmp_path, ["old", "a"]).store("old", {"passed": 1})
    runs = results(tmp_path, ["a"])
    runs.store("a", {"passed": 1})
    assert list(runs.load()) == ["a"]


def test_a_page_that_was_edited_is_not_current(tmp_path: Path) -> None:
    runs = results(tmp_path, ["a"])
    assert not runs.is_current()
    runs.store("a", {"passed": 1})
    assert runs.is_current()
    runs.page.write_text("- a: 9\n")
    assert not runs.is_current()
    runs.write_page()
    assert runs.is_current()


def test_runs_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    names = [str(number) for number in range(20)]
    threads = [
        threading.Thread(target=results(tmp_path, names).store, args=(name, {"passed": 1})) for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(results(tmp_path, names).load()) == names
