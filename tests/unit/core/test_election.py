"""Election: who leads, and when that changes."""

from __future__ import annotations

import pytest

from holdfast.core.election import change_of_leader, head, leader
from holdfast.errors import ConfigurationError, Unsupported
from holdfast.runtime.blocking import run
from holdfast.state import LockState
from unit.core.scripted import Bench, entry


def state(*holders: tuple[str, int]) -> LockState:
    return LockState(name="x", holders=tuple(entry(owner, token) for owner, token in holders))


def test_the_first_holder_leads(bench: Bench) -> None:
    bench.backend.say("inspect", state(("a", 1)))
    found = run(leader(bench.session, "x"))
    assert found is not None
    assert found.owner == "a"


def test_nobody_leads_an_election_without_candidates(bench: Bench) -> None:
    assert run(leader(bench.session, "x")) is None
    assert head(state()) is None


def test_the_first_look_answers_at_once(bench: Bench) -> None:
    assert run(change_of_leader(bench.session, "x", None)) == LockState(name="x")
    assert bench.runtime.time == 1000


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (state(), state(("a", 1))),
        (state(("a", 1)), state(("b", 2))),
        (state(("a", 1)), state(("a", 2))),
        (state(("a", 1)), state()),
    ],
)
def test_a_change_of_leader_is_reported_when_it_happens(
    bench: Bench, before: LockState, now: LockState
) -> None:
    bench.backend.say("inspect", before, before, before, now)
    assert run(change_of_leader(bench.session, "x", before)) is now


def test_watching_goes_on_for_as_long_as_nothing_changes(bench: Bench) -> None:
    same, other = state(("a", 1)), state(("b", 2))
    bench.backend.say("inspect", *[same] * 1000, other)
    assert run(change_of_leader(bench.session, "x", same)) is other
    assert bench.runtime.time > 1000 + 100


def test_a_second_reader_beside_the_first_is_no_change_of_leader(bench: Bench) -> None:
    """`observe` returns when holders differ; the leader is the first of them."""
    before, joined, left = state(("a", 1)), state(("a", 1), ("b", 2)), state(("b", 2))
    bench.backend.say("inspect", joined, left)
    assert run(change_of_leader(bench.session, "x", before)) is left


def test_a_closed_client_watches_nothing(bench: Bench) -> None:
    bench.session.closed = True
    with pytest.raises(ConfigurationError):
        run(leader(bench.session, "x"))
    with pytest.raises(ConfigurationError):
        run(change_of_leader(bench.session, "x", None))


def test_a_backend_that_cannot_be_looked_into_cannot_say_who_leads(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(bench.backend), "capabilities", frozenset({"exclusive"}))
    with pytest.raises(Unsupported, match="inspect"):
        run(leader(bench.session, "x"))
    with pytest.raises(Unsupported, match="inspect"):
        run(change_of_leader(bench.session, "x", None))
