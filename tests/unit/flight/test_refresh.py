"""Values that are stale, or refreshed before they are, in both flavours."""

from __future__ import annotations

import logging
import time

import pytest
from tests.unit.flight.desk import PATIENCE, Desk, Gate, counted, desk_for, followers, until

from fencelock.flight import course


def test_stale_values_are_given_while_one_refreshes(flavour: str, any_url: str) -> None:
    with desk_for(flavour, any_url) as one, desk_for(flavour, any_url) as two:
        one.put("k", "old", 0.02, stale=60)
        time.sleep(0.03)
        gate = Gate("new")
        for _ in range(5):
            assert one.get("k", gate, 60, stale=60) == "old"
            assert two.get("k", gate, 60, stale=60) == "old"
        assert gate.begun.wait(PATIENCE)
        assert one.get("k", gate, 60, stale=60) == "old"
        gate.may_end.set()
        until(lambda: two.get("k", gate, 60, stale=60) == "new", "it is refreshed")
        assert gate.calls == 1
        until(lambda: one.ask("list") == [], "nobody holds anything")


def test_who_may_have_an_old_value_does_not_wait_for_a_new_one(desk: Desk) -> None:
    desk.put("k", "old", 0.01, stale=60)
    time.sleep(0.02)
    gate = Gate("new")
    strict = desk.begin("get", "k", gate, 60)
    assert gate.begun.wait(PATIENCE)
    assert desk.get("k", gate, 60, stale=60) == "old"
    gate.may_end.set()
    assert strict.result(PATIENCE) == "new"


def test_who_may_have_an_old_value_and_finds_none_joins(desk: Desk) -> None:
    gate = Gate("new")
    futures = [desk.begin("get", "k", gate, 60, stale=60)]
    assert gate.begun.wait(PATIENCE)
    futures += [desk.begin("get", "k", gate, 60, stale=60) for _ in range(5)]
    until(lambda: followers(desk, "k") == 5, "five wait")
    gate.may_end.set()
    assert {future.result(PATIENCE) for future in futures} == {"new"}
    assert gate.calls == 1


def test_too_stale_is_computed(desk: Desk) -> None:
    desk.put("k", "old", 0.01, stale=60)
    time.sleep(0.05)
    assert desk.get("k", lambda: "new", 60, stale=0.01) == "new", "it is the reader who says how stale"


def test_without_stale_it_is_computed(desk: Desk) -> None:
    desk.put("k", "old", 0.01, stale=60)
    time.sleep(0.02)
    assert desk.get("k", lambda: "new", 60) == "new"


def test_a_refresh_that_fails_is_logged_and_not_tried_at_once(
    flavour: str, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with desk_for(flavour, url, error_ttl=60) as desk:
        desk.put("k", "old", 0.01, stale=60)
        time.sleep(0.02)
        compute = counted(LookupError("no"))
        with caplog.at_level(logging.WARNING, "fencelock"):
            assert desk.get("k", compute, 60, stale=60) == "old"
            until(lambda: "refreshing 'k' failed: LookupError: no" in caplog.text, "the warning")
        for _ in range(5):
            assert desk.get("k", compute, 60, stale=60, errors="share") == "old"
        assert len(compute.calls) == 1  # type: ignore[attr-defined]


def test_who_refreshes_is_forgotten_in_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "REMEMBERED", 3)
    desk.flight._quiet.update({"old": 0.0, "older": 0.0, "busy": float("inf")})
    desk.put("k", "old", 0.01, stale=60)
    time.sleep(0.02)
    assert desk.get("k", lambda: "new", 60, stale=60) == "old"
    until(lambda: desk.get("k", lambda: "", 60) == "new", "it is refreshed")
    until(lambda: set(desk.flight._quiet) == {"busy"}, "only what is being refreshed is remembered")


def test_early_refresh(flavour: str, url: str) -> None:
    """It took 0.2 s and has 30 left: with a draw of almost 1 and a beta of 100 it is refreshed, else not."""
    with desk_for(flavour, url) as desk:
        assert desk.get("k", lambda: time.sleep(0.2), 30) is None
        compute = counted()
        desk.flight._random = lambda: 0.0
        assert desk.get("k", compute, 30, early=100) is None
        desk.flight._random = lambda: 0.999
        assert desk.get("k", compute, 30) is None
        assert not compute.calls  # type: ignore[attr-defined]
        assert desk.get("k", compute, 30, early=100) is None
        until(lambda: desk.get("k", compute, 30) == 1, "it is refreshed")
