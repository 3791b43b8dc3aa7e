"""Election: who leads, and when that changes."""

from __future__ import annotations

import pytest

from fencelock.core.election import Watch, head, leader
from fencelock.errors import BackendUnavailable, ConfigurationError, Unsupported
from fencelock.runtime.blocking import run
from fencelock.state import LockState
from unit.core.scripted import Bench, down, entry


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
    assert run(Watch(bench.session, "x").change()) == LockState(name="x")
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
    bench.backend.say("inspect", before, before, before, before, now)
    watch = Watch(bench.session, "x")
    assert run(watch.change()) is before
    assert run(watch.change()) is now


def test_watching_goes_on_for_as_long_as_nothing_changes(bench: Bench) -> None:
    same, other = state(("a", 1)), state(("b", 2))
    bench.backend.say("inspect", *[same] * 1000, other)
    watch = Watch(bench.session, "x")
    assert run(watch.change()) is same
    assert run(watch.change()) is other
    assert bench.runtime.time > 1000 + 100


def test_a_second_reader_beside_the_first_is_no_change_of_leader(bench: Bench) -> None:
    """`observe` returns when holders differ; the leader is the first of them."""
    before, joined, left = state(("a", 1)), state(("a", 1), ("b", 2)), state(("b", 2))
    bench.backend.say("inspect", before, joined, left)
    watch = Watch(bench.session, "x")
    assert run(watch.change()) is before
    assert run(watch.change()) is left


def test_a_closed_client_watches_nothing(bench: Bench) -> None:
    bench.session.closed = True
    with pytest.raises(ConfigurationError):
        run(leader(bench.session, "x"))
    with pytest.raises(ConfigurationError):
        run(Watch(bench.session, "x").change())


@pytest.mark.parametrize("fails", [False, True])
def test_closing_the_client_ends_the_watch(bench: Bench, fails: bool) -> None:
    def closes(name: str, deadline: float) -> LockState:
        bench.session.closed = True
        if fails:
            raise down()
        return state()

    bench.backend.say("inspect", state(), closes)
    watch = Watch(bench.session, "x")
    assert run(watch.change()) == state()
    assert run(watch.change()) is None
    assert bench.runtime.time < 1000 + 3


def test_a_watch_goes_on_through_an_outage_and_tells_once_each(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    before, now = state(("a", 1)), state(("b", 2))
    bench.backend.say("inspect", down(), down(), before, down(), now, down())
    watch = Watch(bench.session, "x")
    assert run(watch.change()) is before
    assert len(caplog.records) == 2
    assert run(watch.change()) is now
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 4
    assert caplog.messages[0] == "watching who leads 'x' goes on, though the store is away: scripted: down"
    assert caplog.messages[1].startswith("watching who leads 'x': the store is back after ")


def test_a_watch_ends_with_what_waiting_cannot_help(bench: Bench) -> None:
    bench.backend.say("inspect", down(transient=False))
    with pytest.raises(BackendUnavailable):
        run(Watch(bench.session, "x").change())


def test_a_backend_that_cannot_be_looked_into_cannot_say_who_leads(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(bench.backend), "capabilities", frozenset({"exclusive"}))
    with pytest.raises(Unsupported, match="inspect"):
        run(leader(bench.session, "x"))
    with pytest.raises(Unsupported, match="inspect"):
        run(Watch(bench.session, "x").change())
