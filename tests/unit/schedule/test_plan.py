"""What is due: policies, clocks, crashes; and the record's fence."""

from __future__ import annotations

import pytest

from fencelock import BackendError, StaleToken
from fencelock.schedule.plan import ATTEMPTS, GRACE, SKEW, Moment, Plan, Policy, plan
from fencelock.schedule.records import (
    CRASHED,
    DONE,
    FAILED,
    KEPT,
    RUNNING,
    TIMED_OUT,
    Record,
    decoded,
    encoded,
)
from fencelock.schedule.ticks import Every

MINUTE = Every(60)
EMPTY = Record("job", 600)


def moment(wall: float, store: float | None = None, since: float = 0.0) -> Moment:
    return Moment(wall, wall if store is None else store, since)


def crashed(attempts: int = 1) -> Record:
    """Return the record of a schedule whose host has died in the middle of tick 660."""
    record = EMPTY
    for token in range(1, attempts + 1):
        record = record.begun(660, token, "a", 660.0).claimed(token + 1, 700.0)
    return record


@pytest.mark.parametrize(
    ("catch_up", "wall", "tick"),
    [
        ("last", 659, None),
        ("last", 660, 660),
        ("last", 900, 900),
        ("all", 900, 660),
        ("none", 660 + GRACE - 1, 660),
        ("none", 959, 900),
        ("none", 961, None),
    ],
)
def test_which_tick_is_due(catch_up: str, wall: float, tick: int | None) -> None:
    times = Every(300) if catch_up == "none" and wall > 900 else MINUTE
    record = Record("job", 600)
    assert plan(Policy(times, catch_up), record, moment(wall)).tick == tick  # type: ignore[arg-type]


def test_all_is_bounded_and_in_order() -> None:
    policy = Policy(MINUTE, "all", 3)
    record, seen = EMPTY, []
    while (tick := plan(policy, record, moment(1200)).tick) is not None:
        seen.append(tick)
        record = record.begun(tick, len(seen), "a", 0).ended(len(seen), DONE, "", 0)
    assert seen == [1080, 1140, 1200]


def test_when_to_look_again() -> None:
    assert plan(Policy(MINUTE), EMPTY, moment(650)) == Plan(None, 10)
    assert plan(Policy(MINUTE), Record("job", 720), moment(650)) == Plan(None, 130), "somebody was fast"
    running = EMPTY.begun(660, 1, "a", 660)
    assert plan(Policy(MINUTE), running, moment(665)) == Plan(None, 55, is_unclear=True)


def test_a_fast_clock_is_held_back() -> None:
    far = moment(1e9, store=659 - SKEW)
    assert plan(Policy(MINUTE), EMPTY, far) == Plan(None, 1)
    assert plan(Policy(MINUTE), EMPTY, moment(1e9, store=660 - SKEW)).tick == 660
    assert plan(Policy(MINUTE), EMPTY, Moment(1200, None, 0)).tick == 1200, "a store without a clock cannot"


def test_a_crash_is_run_again_when_its_time_is_over() -> None:
    policy = Policy(MINUTE, at_most_for=40)
    assert plan(policy, crashed(), moment(690, since=30)) == Plan(None, 10)
    assert plan(policy, crashed(), moment(700, since=40)).tick == 660
    assert plan(policy, crashed(), moment(720, since=60)).tick == 720, "a newer tick stands for it"
    assert plan(policy, crashed(ATTEMPTS), moment(700, since=40)) == Plan(None, 20), (
        "it may be what kills them"
    )


def test_a_crash_comes_first_if_all_are_run() -> None:
    policy = Policy(MINUTE, "all", at_most_for=100)
    assert plan(policy, crashed(), moment(720, since=60)) == Plan(None, 40)
    assert plan(policy, crashed(), moment(780, since=120)).tick == 660


@pytest.mark.parametrize("policy", [Policy(MINUTE), Policy(MINUTE, after_crash="skip", at_most_for=40)])
def test_a_crash_that_is_never_run_again(policy: Policy) -> None:
    assert plan(policy, crashed(), moment(719, since=1e6)) == Plan(None, 1)
    assert plan(policy, crashed(), moment(720, since=1e6)).tick == 720


@pytest.mark.parametrize("state", [FAILED, TIMED_OUT, CRASHED])
def test_a_run_that_did_not_end_well_is_run_again_if_it_is_named(state: str) -> None:
    record = EMPTY.begun(660, 5, "a", 660.0).ended(5, state, "", 661.0)
    now = moment(670, since=10)
    assert plan(Policy(MINUTE), record, now, retry=5) == Plan(660, 0.0)
    for retry in (None, 4, 6):
        assert plan(Policy(MINUTE), record, now, retry).tick is None
    again = record.begun(660, 7, "b", 671.0)
    assert again.last is not None and again.last.attempt == 2
    assert plan(Policy(MINUTE), again, now, retry=5) == Plan(None, 50, is_unclear=True), (
        "another host does it"
    )
    assert plan(Policy(MINUTE), again.ended(7, state, "", 672.0), now, retry=5).tick is None, (
        "and has done it"
    )
    assert plan(Policy(MINUTE), record, moment(720), retry=5).tick == 720, "a newer tick goes first"


@pytest.mark.parametrize("state", [DONE, RUNNING])
def test_what_ended_well_or_runs_is_not_run_again(state: str) -> None:
    record = EMPTY.begun(660, 5, "a", 660.0)
    record = record if state == RUNNING else record.ended(5, state, "", 661.0)
    assert plan(Policy(MINUTE), record, moment(670), retry=5).tick is None


def test_a_dead_host_is_found_and_run_again_in_one_step() -> None:
    """Who has the lock finds the run crashed: it is the run that was named while it seemed to be running."""
    record = EMPTY.begun(660, 5, "a", 660.0).claimed(7, 670.0)
    assert plan(Policy(MINUTE), record, moment(670), retry=5) == Plan(660, 0.0)


def test_the_record_refuses_an_older_token() -> None:
    record = EMPTY.begun(660, 5, "a", 1.0)
    assert record.last is not None and record.last.state == RUNNING and record.cursor == 660
    taken = record.claimed(7, 2.0)
    assert taken.last is not None and (taken.last.state, taken.last.ended, taken.token) == (CRASHED, 2.0, 7)
    for late in (
        lambda: taken.ended(5, DONE, "", 3.0),
        lambda: taken.begun(720, 5, "a", 3.0),
        lambda: taken.claimed(5, 3.0),
        lambda: taken.withdrawn(5, 600),
        lambda: EMPTY.ended(5, DONE, "", 3.0),
    ):
        with pytest.raises(StaleToken):
            late()
    again = taken.begun(660, 7, "b", 3.0)
    assert again.last is not None and again.last.attempt == 2
    assert [run.state for run in again.runs] == [RUNNING, CRASHED]


def test_what_was_not_begun_is_taken_back() -> None:
    record = crashed()
    again = record.begun(660, 5, "a", 1.0)
    assert again.withdrawn(5, record.cursor) == Record("job", 660, 5, record.runs)
    assert again.ended(5, DONE, "", 2.0).withdrawn(5, 600).last == again.ended(5, DONE, "", 2.0).last


def test_how_it_ended_is_said_once() -> None:
    record = EMPTY.begun(660, 5, "a", 1.0)
    over = record.ended(5, TIMED_OUT, "x" * 1000, 2.0)
    assert over.last is not None and over.last.state == TIMED_OUT and len(over.last.detail) == 200
    assert over.ended(5, DONE, "", 3.0) == over
    assert over.claimed(9, 4.0) == over, "nothing is running"


def test_the_record_is_bounded_and_survives_json() -> None:
    record = EMPTY
    for number in range(1, 100):
        record = record.begun(600 + 60 * number, number, "h" * 1000, 1.0).ended(number, DONE, "", 2.0)
    assert len(record.runs) == KEPT
    assert record.last is not None and record.last.tick == 600 + 60 * 99
    assert record.last.at.isoformat() == "1970-01-01T01:49:00+00:00"
    assert decoded(encoded(record), "here") == record
    assert len(encoded(record)) < 10_000


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[]", "{}", '{"name":"a","cursor":1,"token":1,"runs":[{}]}']
)
def test_a_record_that_cannot_be_read(text: str) -> None:
    with pytest.raises(BackendError, match="cannot be read"):
        decoded(text, "redis")
