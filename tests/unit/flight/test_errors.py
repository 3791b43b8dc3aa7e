"""Errors of computations, in each policy, in both flavours."""

from __future__ import annotations

import time

import pytest
from tests.unit.flight.desk import PATIENCE, Desk, Gate, counted, desk_for, followers, until

from fencelock import ConfigurationError
from fencelock.flight import ComputeFailed


def test_raised_for_all_who_wait_here(desk: Desk) -> None:
    gate = Gate(LookupError("no such thing"))
    futures = [desk.begin("get", "k", gate, 60)]
    assert gate.begun.wait(PATIENCE)
    futures += [desk.begin("get", "k", gate, 60) for _ in range(5)]
    until(lambda: followers(desk, "k") == 5, "five wait")
    gate.may_end.set()
    for future in futures:
        with pytest.raises(LookupError, match="no such thing"):
            future.result(PATIENCE)
    assert gate.calls == 1
    assert desk.get("k", lambda: 1, 60) == 1, "an error is not kept"
    assert desk.ask("list") == []


def test_others_compute_again_one_at_a_time(flavour: str, url: str) -> None:
    with desk_for(flavour, url) as one, desk_for(flavour, url) as two:
        gate = Gate(LookupError("no"))
        first = one.begin("get", "k", gate, 60)
        assert gate.begun.wait(PATIENCE)
        second = two.begin("get", "k", lambda: "second", 60)
        until(lambda: one.ask("inspect", "flight:k").waiters, "the second waits")
        gate.may_end.set()
        with pytest.raises(LookupError):
            first.result(PATIENCE)
        assert second.result(PATIENCE) == "second"


def test_shared_with_everybody(flavour: str, any_url: str) -> None:
    options = {"error_ttl": 1.0}
    with desk_for(flavour, any_url, **options) as one, desk_for(flavour, any_url, **options) as two:
        gate = Gate(LookupError("no such thing"))
        futures = [one.begin("get", "k", gate, 60, errors="share")]
        assert gate.begun.wait(PATIENCE)
        futures += [two.begin("get", "k", gate, 60, errors="share") for _ in range(5)]
        until(lambda: one.ask("inspect", "flight:k").waiters, "the others wait")
        gate.may_end.set()
        for future in futures:
            with pytest.raises(ComputeFailed) as caught:
                future.result(PATIENCE)
            assert (caught.value.key, caught.value.kind, caught.value.detail) == (
                "k",
                "LookupError",
                "no such thing",
            )
        assert gate.calls == 1
        with pytest.raises(ComputeFailed, match=r"^computing 'k' failed: LookupError: no such thing$"):
            one.get("k", counted(), 60, errors="share")
        assert two.get("k", counted("mine"), 60) == "mine", "who does not want it is not given it"


def test_an_error_that_is_shared_is_not_for_who_waits_and_wants_a_value(flavour: str, any_url: str) -> None:
    with desk_for(flavour, any_url) as one, desk_for(flavour, any_url) as two:
        gate = Gate(LookupError("no"))
        first = one.begin("get", "k", gate, 60, errors="share")
        assert gate.begun.wait(PATIENCE)
        second = two.begin("get", "k", lambda: "mine", 60)
        until(lambda: one.ask("inspect", "flight:k").waiters, "the second waits")
        gate.may_end.set()
        with pytest.raises(ComputeFailed):
            first.result(PATIENCE)
        assert second.result(PATIENCE) == "mine"
        assert one.get("k", lambda: "again", 60, errors="share") == "mine"


def test_a_shared_error_is_kept_for_a_moment(flavour: str, url: str) -> None:
    with desk_for(flavour, url, error_ttl=0.05) as desk:
        with pytest.raises(ComputeFailed) as caught:
            desk.get("k", counted(LookupError()), 60, errors="share")
        assert isinstance(caught.value.__cause__, LookupError), "here it is known"
        assert str(caught.value) == "computing 'k' failed: LookupError"
        time.sleep(0.06)
        assert desk.get("k", lambda: 1, 60, errors="share") == 1


def test_the_next_one_tries(desk: Desk) -> None:
    gate = Gate(LookupError("no"))
    first = desk.begin("get", "k", gate, 60, errors="retry")
    assert gate.begun.wait(PATIENCE)
    good = counted()
    rest = [desk.begin("get", "k", good, 60, errors="retry") for _ in range(5)]
    until(lambda: followers(desk, "k") == 5, "five wait")
    gate.may_end.set()
    with pytest.raises(LookupError):
        first.result(PATIENCE)
    assert [future.result(PATIENCE) for future in rest] == [1] * 5


def test_a_value_that_cannot_be_kept_is_an_error(desk: Desk) -> None:
    with pytest.raises(ConfigurationError, match="is not JSON"):
        desk.get("k", lambda: {1, 2}, 60)
    with pytest.raises(ConfigurationError, match="is not JSON"):
        desk.put("k", object(), 60)
    assert desk.get("k", lambda: 1, 60) == 1
