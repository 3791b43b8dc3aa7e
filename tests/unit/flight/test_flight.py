"""What a flight does, in both flavours, with values in memory and in a file."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.unit.flight.desk import PATIENCE, Desk, Gate, counted, desk_for, until

from fencelock import AcquireTimeout, ConfigurationError

# Values ---------------------------------------------------------------------------------------


def test_it_is_computed_once_and_kept(stored: Desk) -> None:
    compute = counted()
    assert [stored.get("k", compute, 60) for _ in range(3)] == [1, 1, 1]
    assert stored.get("other", compute, 60) == 2
    assert stored.ask("list") == []


def test_it_is_computed_anew_when_it_has_expired(stored: Desk) -> None:
    compute = counted()
    assert stored.get("k", compute, 0.05) == 1
    time.sleep(0.06)
    assert stored.get("k", compute, 60) == 2


@pytest.mark.parametrize("value", [None, 0, "", False, [], {"a": [1, 2.5, None]}, "ü"])
def test_any_value_is_a_value(desk: Desk, value: Any) -> None:
    calls: list[None] = []

    def compute() -> Any:
        calls.append(None)
        return value

    for _ in range(2):
        assert desk.get("k", compute, 60) == value
    assert len(calls) == 1


def test_everybody_has_a_value_of_its_own(desk: Desk) -> None:
    first = desk.get("k", lambda: ({"a": 1},), 60)
    assert first == [{"a": 1}], "the same for who computes as for all others"
    first[0]["a"] = 2
    assert desk.get("k", lambda: None, 60) == [{"a": 1}]


def test_put_and_forget(stored: Desk) -> None:
    compute = counted()
    assert stored.forget("k") is False
    stored.put("k", "put", 60)
    assert stored.get("k", compute, 60) == "put"
    assert stored.forget("k") is True
    assert stored.get("k", compute, 60) == 1
    stored.put("k", "put", 60)
    assert stored.get("k", compute, 60) == "put"


def test_namespaces_are_apart(flavour: str, any_url: str) -> None:
    with (
        desk_for(flavour, f"{any_url}?namespace=a") as one,
        desk_for(flavour, f"{any_url}?namespace=b") as two,
    ):
        assert one.get("k", lambda: "a", 60) == "a"
        assert two.get("k", lambda: "b", 60) == "b"
        assert one.get("k", lambda: "c", 60) == "a"


def test_flights_of_one_process_share_values(flavour: str, any_url: str) -> None:
    with desk_for("blocking", any_url) as one, desk_for("asyncio", any_url) as two:
        assert one.get("k", lambda: 1, 60) == 1
        assert two.get("k", lambda: 2, 60) == 1


# One flight -----------------------------------------------------------------------------------


def test_many_in_one_process_compute_once(stored: Desk) -> None:
    gate = Gate()
    first = stored.begin("get", "k", gate, 60)
    assert gate.begun.wait(PATIENCE)
    rest = [stored.begin("get", "k", gate, 60) for _ in range(50)]
    assert stored.ask("inspect", "flight:k").holders and not stored.ask("inspect", "flight:k").waiters
    gate.may_end.set()
    assert {future.result(PATIENCE) for future in [first, *rest]} == {"value"}
    assert gate.calls == 1


def test_two_processes_compute_once(flavour: str, any_url: str) -> None:
    """Two clients are as good as two processes: each has a waiter of its own."""
    with desk_for(flavour, any_url) as one, desk_for(flavour, any_url) as two:
        gate = Gate()
        first = one.begin("get", "k", gate, 60)
        assert gate.begun.wait(PATIENCE)
        rest = [two.begin("get", "k", gate, 60) for _ in range(20)]
        until(lambda: len(one.ask("inspect", "flight:k").waiters) == 1, "one waits")
        gate.may_end.set()
        assert {future.result(PATIENCE) for future in [first, *rest]} == {"value"}
        assert gate.calls == 1


def test_patience_ends(flavour: str, url: str) -> None:
    with desk_for(flavour, url) as one, desk_for(flavour, url) as two:
        gate = Gate()
        first = one.begin("get", "k", gate, 60)
        assert gate.begun.wait(PATIENCE)
        for desk in (one, two):  # in the same process, and in another
            for seconds in (0, 0.05):
                with pytest.raises(AcquireTimeout, match="lock 'flight:k' not acquired within"):
                    desk.get("k", gate, 60, timeout=seconds)
        gate.may_end.set()
        assert first.result(PATIENCE) == "value"
        assert two.get("k", gate, 60, timeout=0) == "value"
        assert two.get("new", gate, 60, timeout=0) == "value", "patience is for others, not for oneself"
        assert two.ask("list") == []


def test_patience_of_the_leader_is_its_own(flavour: str, url: str) -> None:
    """Somebody who waits for another process gives up: those who wait behind it do not."""
    with desk_for(flavour, url) as one, desk_for(flavour, url) as two:
        gate = Gate()
        first = one.begin("get", "k", gate, 60)
        assert gate.begun.wait(PATIENCE)
        hasty = two.begin("get", "k", gate, 60, timeout=0.3)
        until(lambda: one.ask("inspect", "flight:k").waiters, "the hasty one waits")
        patient = two.begin("get", "k", gate, 60)
        with pytest.raises(AcquireTimeout):
            hasty.result(PATIENCE)
        gate.may_end.set()
        assert patient.result(PATIENCE) == first.result(PATIENCE) == "value"
        assert gate.calls == 1


def test_it_cannot_ask_for_itself(desk: Desk, flavour: str) -> None:
    if flavour == "blocking":
        with pytest.raises(ConfigurationError, match="asks for it itself"):
            desk.get("k", lambda: desk.flight.get("k", lambda: 1, 60), 60)
        return

    async def inner() -> Any:
        async def outer() -> Any:
            return await desk.flight.get("k", outer, 60)

        return await desk.flight.get("k", outer, 60)

    with pytest.raises(ConfigurationError, match="asks for it itself"):
        desk._wait(inner())


# Something newer ------------------------------------------------------------------------------


@pytest.mark.parametrize("newer", ["put", "forget"])
def test_what_was_being_computed_is_not_kept_over_something_newer(stored: Desk, newer: str) -> None:
    gate = Gate("old")
    old = stored.begin("get", "k", gate, 60)
    assert gate.begun.wait(PATIENCE)
    if newer == "put":
        stored.put("k", "new", 60)
    else:
        stored.forget("k")
    late = stored.begin("get", "k", lambda: "new", 60)
    gate.may_end.set()
    assert old.result(PATIENCE) == "old"
    assert late.result(PATIENCE) == "new"
    assert stored.get("k", lambda: "newest", 60) == "new"


def test_an_overtaken_computation_is_not_kept(flavour: str, any_url: str) -> None:
    """Its lease is broken, as if it had been paused for longer than its ttl."""
    with desk_for(flavour, any_url) as one, desk_for(flavour, any_url) as two:
        gate = Gate("old")
        old = one.begin("get", "k", gate, 60)
        assert gate.begun.wait(PATIENCE)
        two.ask("force_release", "flight:k")
        slow = Gate("new")
        new = two.begin("get", "k", slow, 60)
        assert slow.begun.wait(PATIENCE)
        gate.may_end.set()
        assert old.result(PATIENCE) == "old", "who asked gets what was computed"
        assert two.begin("get", "other", lambda: 1, 60).result(PATIENCE) == 1
        slow.may_end.set()
        assert new.result(PATIENCE) == "new"
        assert one.get("k", lambda: "newest", 60) == "new"
