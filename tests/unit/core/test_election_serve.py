"""The life of a candidate: campaign, lead, step down, campaign again."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fencelock.core.acquire import RIDE_OUT, acquire
from fencelock.core.election import LONGEST_PAUSE, STAND_BACK, campaign, resign, serve
from fencelock.core.hold import LOST, RELEASED, Hold
from fencelock.core.ports import Busy, Grant, Outcome
from fencelock.core.release import release
from fencelock.core.renew import ensure_held, extend
from fencelock.errors import (
    AcquireTimeout,
    BackendError,
    BackendUnavailable,
    ConfigurationError,
    LeaseLost,
    QuorumNotReached,
)
from fencelock.runtime.blocking import run
from unit.core.scripted import Bench, down, keep, terms


def led(bench: Bench, **changes: Any) -> Hold:
    """A hold with whatever terms."""
    wanted = terms(**changes)
    return run(acquire(bench.session, wanted, wanted.timeout, keep))


class Office:
    """Work that notes its terms of office, and does in each what it is told."""

    def __init__(self, bench: Bench, *deeds: Any) -> None:
        self.bench = bench
        self.deeds = list(deeds)
        self.tokens: list[int] = []

    async def __call__(self, hold: Hold) -> str:
        self.tokens.append(hold.token)
        if self.deeds:
            deed = self.deeds.pop(0)
            deed(hold)
        ensure_held(self.bench.session, hold)
        await release(self.bench.session, hold)
        return "done"

    def serve(self, **changes: Any) -> str:
        return run(serve(self.bench.session, terms(**changes), keep, self))


# The campaign ----------------------------------------------------------------------------


def test_a_campaign_that_wins_says_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    assert run(campaign(bench.session, terms(), keep)).token == 1
    assert caplog.records == []


def test_a_campaign_goes_on_while_the_store_is_away_and_tells_once_each(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when it is not elected at once: the store is back when it answers, not when it elects."""
    answered: list[int] = []

    def busy(*_: Any) -> Busy:
        answered.append(len(caplog.records))
        return Busy(1.0, None)

    bench.backend.say("acquire", *[down()] * 500, busy, busy, busy)
    hold = run(campaign(bench.session, terms(), keep))
    assert hold.token == 1
    assert answered == [1, 2, 2]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert caplog.messages[0] == "the campaign for 'x' goes on, though the store is away: scripted: down"
    assert caplog.messages[1].startswith("the campaign for 'x': the store is back after ")


def test_the_pauses_of_a_campaign_grow_and_are_bounded(bench: Bench) -> None:
    bench.backend.say("acquire", *[down()] * 500)
    run(campaign(bench.session, terms(), keep))
    pauses = [seconds for seconds in bench.runtime.slept if seconds > 0.1]
    assert pauses[:5] == [0.375, 0.75, 1.5, 3.0, 3.75]
    assert max(pauses) <= LONGEST_PAUSE


def test_an_outage_that_every_waiter_rides_out_is_not_worth_a_word(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.backend.say("acquire", *[down()] * int(RIDE_OUT / 0.2))
    run(campaign(bench.session, terms(), keep))
    assert caplog.records == []


def test_a_second_outage_is_told_again_and_begins_with_short_pauses(bench: Bench) -> None:
    told: list[str] = []
    bench.backend.say("acquire", *[down()] * 200, Busy(1.0, None), *[down()] * 30)
    run(campaign(bench.session, terms(), keep, told.append))
    assert ["away" in line for line in told] == [True, False, True, False]
    assert bench.runtime.slept.count(0.375) == 2


@pytest.mark.parametrize(
    "error",
    [
        down(transient=False),
        BackendError(backend="scripted", detail="no such thing"),
        ConfigurationError("wrong"),
    ],
)
def test_a_campaign_ends_with_what_waiting_cannot_help(
    bench: Bench, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    bench.backend.say("acquire", error)
    with pytest.raises(type(error)):
        run(campaign(bench.session, terms(), keep))
    assert caplog.records == []


def test_too_few_votes_are_an_outage(bench: Bench) -> None:
    bench.backend.say("acquire", *[QuorumNotReached(backend="scripted", votes={"a": "no answer"})] * 5)
    assert run(campaign(bench.session, terms(), keep)).token == 1


@pytest.mark.parametrize("answer", [down(), Busy(1.0, None)])
def test_one_deadline_covers_the_whole_campaign(bench: Bench, answer: object) -> None:
    bench.backend.say("acquire", *[down()] * 60)
    bench.backend.keep_saying("acquire", answer)
    with pytest.raises(BackendUnavailable if isinstance(answer, Exception) else AcquireTimeout):
        run(campaign(bench.session, terms(timeout=20.0), keep))
    assert bench.runtime.time == pytest.approx(1020, abs=0.2)


def test_a_campaign_that_may_not_wait_tries_once(bench: Bench) -> None:
    bench.backend.say("acquire", down())
    with pytest.raises(BackendUnavailable):
        run(campaign(bench.session, terms(timeout=0.0), keep))
    assert bench.backend.count("acquire") == 1


# In office -------------------------------------------------------------------------------


def test_serving_ends_when_the_work_does(bench: Bench) -> None:
    office = Office(bench)
    assert office.serve() == "done"
    assert office.tokens == [1]
    assert bench.is_clean()


def test_after_a_loss_it_serves_again_with_a_new_lease(bench: Bench) -> None:
    def lose(hold: Hold) -> None:
        bench.session.holds.lose(hold, "test", gone=True)

    office = Office(bench, lose, lose)
    assert office.serve() == "done"
    assert office.tokens == [1, 2, 3]
    owners = [request.owner for request, _, _ in bench.backend.taken("acquire")]
    assert len(set(owners)) == 3
    assert bench.backend.count("abandon") == 0  # the backend had said that there is no record
    assert bench.is_clean()


@pytest.mark.parametrize(("name", "token"), [("x", 2), ("y", 1)])
def test_the_loss_of_another_lease_is_not_its_own(bench: Bench, name: str, token: int) -> None:
    other = LeaseLost(name=name, token=token, reason="test")

    async def work(hold: Hold) -> None:
        await release(bench.session, hold)
        raise other

    with pytest.raises(LeaseLost) as caught:
        run(serve(bench.session, terms(), keep, work))
    assert caught.value is other


def test_who_resigns_hands_over_when_the_work_has_ended_and_stands_again(bench: Bench) -> None:
    def retire(hold: Hold) -> None:
        run(resign(bench.session, hold, in_office=True))
        assert (hold.state, hold.reason) == (LOST, "resigned")
        bench.runtime.go(10)
        assert bench.backend.count("abandon") == 0

    office = Office(bench, retire)
    assert office.serve() == "done"
    steps = [step for step, _ in bench.backend.calls]
    assert steps == ["acquire", "abandon", "acquire", "release"]
    assert bench.is_clean()
    assert bench.runtime.slept == []


def test_without_a_queue_who_resigns_lets_the_others_try_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(bench.backend), "capabilities", frozenset({"exclusive"}))
    office = Office(bench, lambda hold: run(resign(bench.session, hold, in_office=True)))
    assert office.serve() == "done"
    assert bench.runtime.slept == [STAND_BACK]


def test_resigning_elsewhere_is_a_release_however_often_it_was_entered(bench: Bench) -> None:
    hold = led(bench)
    hold.depth = 3
    run(resign(bench.session, hold, in_office=False))
    assert (hold.state, hold.depth) == (RELEASED, 0)
    assert bench.backend.count("release") == 1
    run(resign(bench.session, hold, in_office=False))
    run(resign(bench.session, hold, in_office=True))
    assert hold.state is RELEASED


# The margin ------------------------------------------------------------------------------


def test_the_loss_is_told_a_margin_before_the_lease_runs_out(bench: Bench) -> None:
    bench.backend.keep_saying("renew", down())
    hold = led(bench, ttl=30.0, margin=5.0)
    bench.runtime.go(24.9)
    assert bench.session.holds.is_held(hold)
    bench.runtime.go(0.2)
    assert hold.state is LOST
    assert hold.reason == "not renewed within its ttl of 30s, 5s before the end"


def test_the_record_stays_until_the_margin_is_over(bench: Bench) -> None:
    bench.backend.keep_saying("renew", down())
    led(bench, ttl=30.0, margin=5.0)
    bench.runtime.go(29.9)
    assert bench.backend.count("abandon") == 0
    bench.runtime.go(0.2)
    assert bench.backend.count("abandon") == 1
    assert bench.is_clean()


def test_work_that_ends_within_the_margin_lets_the_next_one_lead_at_once(bench: Bench) -> None:
    bench.backend.say("renew", *[down()] * 100)

    def outlive(hold: Hold) -> None:
        bench.runtime.go(27)

    assert Office(bench, outlive).serve(ttl=30.0, margin=5.0) == "done"
    steps = [step for step, _ in bench.backend.calls if step != "renew"]
    assert steps == ["acquire", "abandon", "acquire", "release"]
    assert bench.runtime.time == pytest.approx(1027)


def test_renewals_move_the_margin_along(bench: Bench) -> None:
    hold = led(bench, ttl=30.0, margin=15.0)
    bench.runtime.go(600)
    assert bench.session.holds.is_held(hold)
    assert bench.runtime.time + 4 < hold.deadline <= bench.runtime.time + 15


def test_a_renewal_that_comes_within_the_margin_revives_nothing(bench: Bench) -> None:
    """It is owed once more: the backend may have given it another ttl."""
    hold = led(bench, ttl=30.0, margin=5.0)

    def late(renewals: Any, deadline: float) -> list[Outcome]:
        bench.runtime.time = 1026
        return [Outcome.RENEWED]

    bench.backend.say("renew", late)
    bench.runtime.go(32)
    assert hold.state is LOST
    assert bench.backend.count("abandon") == 1
    assert bench.is_clean()


def test_a_term_limit_ends_a_margin_early_as_well(bench: Bench) -> None:
    hold = led(bench, ttl=30.0, margin=5.0, max_hold=60.0)
    bench.runtime.go(54.9)
    assert bench.session.holds.is_held(hold)
    ends = [
        deadline - 5.0 + renewal.ttl  # it is given five seconds to answer
        for renewals, deadline in bench.backend.taken("renew")
        for renewal in renewals
        if renewal.extend
    ]
    assert max(ends) == pytest.approx(1060)
    bench.runtime.go(0.2)
    assert hold.state is LOST
    assert hold.reason == "max_hold of 60s is over, 5s before the end"


def test_an_extension_leaves_the_margin_where_it_is(bench: Bench) -> None:
    hold = led(bench, ttl=30.0, margin=5.0)
    run(extend(bench.session, hold, 12.0))
    assert hold.deadline == 1007
    run(extend(bench.session, hold, 60.0))
    assert hold.deadline == 1055
    with pytest.raises(ConfigurationError, match="margin=5 is too long for ttl=9: give at most half of it"):
        run(extend(bench.session, hold, 9.0))
    assert bench.session.holds.is_held(hold)


def test_a_grant_that_comes_when_its_margin_has_begun_is_no_grant(bench: Bench) -> None:
    def slow(*_: Any) -> Any:
        bench.runtime.time += 26
        return bench.backend.grant()

    bench.backend.say("acquire", slow)
    hold = led(bench, ttl=30.0, margin=5.0)
    assert hold.token == 2
    assert hold.deadline == 1026 + 25


@pytest.mark.parametrize(("margin", "token"), [(0.0, 7), (2.9, 1), (3.0, 1), (5.0, 1)])
def test_a_pushed_grant_is_enough_if_it_outlasts_the_margin(bench: Bench, margin: float, token: int) -> None:
    """A push may be good for three seconds only; if that is not enough, another step is taken."""

    def push(request: Any, deadline: float) -> Grant:
        bench.runtime.time += 0.2
        return Grant(7, 3.0)

    bench.backend.say("acquire", Busy(1.0, None))
    bench.backend.say("wait", push)
    hold = led(bench, ttl=30.0, margin=margin)
    assert hold.token == token
    assert bench.session.holds.is_held(hold)


@pytest.mark.parametrize("margin", [15.1, 30.0, 1e9])
def test_a_margin_longer_than_half_the_ttl_is_refused(margin: float) -> None:
    with pytest.raises(ConfigurationError, match="too long for ttl=30"):
        terms().with_margin(margin)
    with pytest.raises(ConfigurationError, match="too long for max_hold=20"):
        terms(ttl=1e10, max_hold=20.0).with_margin(margin)


def test_terms_with_a_margin_are_otherwise_the_same() -> None:
    plain = terms(timeout=math.inf, metadata="{}")
    other = plain.with_margin(15.0)
    assert (plain.margin, other.margin) == (0.0, 15.0)
    assert (other.name, other.ttl, other.metadata) == (plain.name, plain.ttl, plain.metadata)
