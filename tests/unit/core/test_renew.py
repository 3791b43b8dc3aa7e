"""Renewal: the timekeeper, the renewer, and the four outcomes."""

from __future__ import annotations

import math
from collections.abc import ValuesView

import pytest

from fencelock.core.acquire import acquire
from fencelock.core.dropped import DroppedLeases
from fencelock.core.hold import HELD, LOST, RELEASED, Hold
from fencelock.core.ports import Outcome, Renewal
from fencelock.core.release import release
from fencelock.core.renew import extend, settle, verify
from fencelock.errors import BackendError, BackendUnavailable, LeaseLost, NotHeld
from fencelock.runtime.blocking import run
from unit.core.scripted import Bench, after, down, keep, terms


def take(bench: Bench, **changes: object) -> Hold:
    return run(acquire(bench.session, terms(**changes), math.inf, keep))


# One service for all leases --------------------------------------------------------------


def test_a_lease_is_renewed_for_as_long_as_it_is_wanted(bench: Bench) -> None:
    hold = take(bench)
    bench.runtime.go(300)
    assert hold.state is HELD
    assert 28 <= bench.backend.count("renew") <= 32


def test_all_leases_are_renewed_by_one_service_in_batches(bench: Bench) -> None:
    holds = [take(bench, name=f"n{i}") for i in range(8)]
    bench.runtime.go(10)
    assert sorted(bench.runtime.alive()) == ["fencelock-renewer", "fencelock-timekeeper"]
    assert [len(renewals) for renewals, _ in bench.backend.taken("renew")] == [3, 3, 2]
    assert all(hold.deadline == 1000 + 10 + 30 for hold in holds)


def test_what_is_nearly_due_is_renewed_along_with_the_rest(bench: Bench) -> None:
    take(bench, name="a")
    bench.runtime.time += 1
    take(bench, name="b")
    bench.runtime.go(9.5)
    assert [len(renewals) for renewals, _ in bench.backend.taken("renew")] == [2]


def test_a_renewal_counts_from_before_it_was_sent(bench: Bench) -> None:
    hold = take(bench)
    bench.backend.say("renew", after(4, Outcome.RENEWED))
    bench.runtime.go(10)
    assert hold.deadline == 1010 + 30


def test_services_end_when_there_is_nothing_to_do_and_start_again(bench: Bench) -> None:
    run(release(bench.session, take(bench)))
    bench.runtime.go(60)
    assert bench.runtime.alive() == []
    hold = take(bench)
    bench.runtime.go(60)
    assert hold.state is HELD
    assert sorted(bench.runtime.alive()) == ["fencelock-renewer", "fencelock-timekeeper"]


def test_many_short_leases_with_a_near_renewal_need_one_service_and_few_looks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is due before the service would look, and is over before it does."""
    looks = 0
    collect = DroppedLeases.collect

    def look(dropped: DroppedLeases) -> None:
        nonlocal looks
        looks += 1
        collect(dropped)

    monkeypatch.setattr(DroppedLeases, "collect", look)
    for _ in range(400):
        run(release(bench.session, take(bench, ttl=3.0)))
        bench.runtime.go(0.01)
    assert [service.name for service in bench.runtime.services].count("fencelock-timekeeper") == 1
    assert looks <= 2 * 4 + 1, "twice for each second, after which such a lease would be due"


def test_a_service_without_work_stays_while_anything_is_held(bench: Bench) -> None:
    hold = take(bench, ttl=3000.0)
    bench.runtime.go(200)
    assert "fencelock-timekeeper" in bench.runtime.alive()
    bench.runtime.go(3000)
    assert hold.state is HELD


@pytest.mark.parametrize(("ttl", "looks"), [(3000.0, 1), (3.0, 2)])
def test_a_lease_that_comes_while_others_are_looked_at_calls_back_only_if_it_is_due_early(
    bench: Bench, ttl: float, looks: int
) -> None:
    class Looked(dict[str, Hold]):
        looks = 0

        def values(self) -> ValuesView[Hold]:
            seen = dict(self).values()
            self.looks += 1
            if self.looks == 1:
                bench.session.holds.add(hold)
            return seen

    hold = take(bench, name="meanwhile", ttl=ttl)
    bench.session.holds.end(hold)
    bench.session.holds._table = table = Looked()
    bench.runtime.go(0.5)
    assert table.looks == looks


def test_a_shorter_lease_wakes_a_service_that_rests(bench: Bench) -> None:
    take(bench, name="long", ttl=3000.0)
    bench.runtime.go(1)
    hold = take(bench, name="short", ttl=3.0)
    bench.runtime.go(30)
    assert hold.state is HELD


# The four outcomes -----------------------------------------------------------------------


def test_lost_is_final_and_reported_once(bench: Bench) -> None:
    told: list[object] = []
    hold = take(bench, on_lost=told.append)
    hold.lease = lambda: "the lease"
    event = bench.session.holds.event(hold)
    bench.backend.say("renew", Outcome.LOST)
    bench.runtime.go(100)
    assert hold.state is LOST
    assert "force-released" in hold.reason
    assert event.is_set()
    assert told == ["the lease"]
    assert bench.backend.count("renew") == 1
    assert bench.backend.count("abandon") == 1, "what lies there expired may become live again"


@pytest.mark.parametrize("answer", [Outcome.UNKNOWN, down(), BackendError(backend="s", detail="odd")])
def test_no_answer_is_asked_for_again_soon(bench: Bench, answer: object) -> None:
    hold = take(bench)
    bench.backend.say("renew", answer, answer, answer)
    bench.runtime.go(15)
    assert hold.state is HELD
    assert bench.backend.count("renew") == 4
    assert hold.deadline > 1000 + 30


def test_no_answer_until_the_deadline_is_a_loss_at_the_deadline(bench: Bench) -> None:
    hold = take(bench)
    bench.backend.keep_saying("renew", down())
    bench.runtime.go(29.9)
    assert bench.session.holds.is_held(hold)
    bench.runtime.go(0.2)
    assert hold.state is LOST
    assert "not renewed within its ttl" in hold.reason
    assert bench.backend.count("abandon") == 1


def test_without_renew_a_lease_is_only_looked_at(bench: Bench) -> None:
    hold = take(bench, renew=False)
    bench.runtime.go(29)
    assert hold.deadline == 1000 + 30
    assert all(not renewal.extend for renewals, _ in bench.backend.taken("renew") for renewal in renewals)
    assert bench.backend.count("renew") >= 2
    bench.runtime.go(2)
    assert "renew is off" in hold.reason


def test_without_renew_a_loss_is_noticed_by_looking(bench: Bench) -> None:
    hold = take(bench, renew=False)
    bench.backend.say("renew", Outcome.LOST)
    bench.runtime.go(12)
    assert hold.state is LOST


def test_max_hold_ends_a_lease_that_is_renewed(bench: Bench) -> None:
    hold = take(bench, max_hold=45.0)
    bench.runtime.go(44.9)
    assert bench.session.holds.is_held(hold)
    bench.runtime.go(0.2)
    assert hold.state is LOST
    assert hold.reason == "max_hold of 45s is over"


def test_near_max_hold_a_renewal_asks_for_no_more_than_what_is_left(bench: Bench) -> None:
    take(bench, max_hold=35.0)
    bench.runtime.go(34.9)
    asked = [(r.ttl, r.extend) for renewals, _ in bench.backend.taken("renew") for r in renewals]
    assert asked[0] == (pytest.approx(25), True)
    assert not any(extend for _, extend in asked[1:])


# Replies that come too late --------------------------------------------------------------


def test_a_renewal_never_revives(bench: Bench) -> None:
    hold = take(bench)
    bench.backend.say("renew", after(25, Outcome.RENEWED))
    bench.runtime.go(40)
    assert hold.state is LOST
    assert bench.session.holds.all() == []
    assert bench.backend.count("abandon") == 1


def test_a_late_reply_without_news_is_a_loss_too(bench: Bench) -> None:
    hold = take(bench)
    bench.backend.say("renew", after(25, Outcome.UNKNOWN))
    bench.runtime.go(40)
    assert hold.state is LOST


def test_a_reply_for_a_lease_released_meanwhile_leaves_no_record(bench: Bench) -> None:
    hold = take(bench)

    def meanwhile(*_: object) -> Outcome:
        run(release(bench.session, hold))
        return Outcome.RENEWED

    bench.backend.say("renew", meanwhile)
    bench.runtime.go(20)
    assert hold.state is RELEASED
    assert bench.is_clean()


def test_the_deadline_fires_while_the_renewer_is_stuck(bench: Bench) -> None:
    """The timekeeper talks to no backend: seen here by running it alone."""
    hold = take(bench)
    timekeeper = bench.runtime.services[0]
    while bench.runtime.time < 1031:
        bench.runtime.time += 1
        if timekeeper.is_ready():
            timekeeper.step()
    assert hold.state is LOST
    assert bench.backend.count("renew") == 0


def test_a_running_task_is_interrupted_once_if_it_is_still_inside(bench: Bench) -> None:
    hold, left = take(bench, name="a"), take(bench, name="b")
    hold.task, left.task = "task", "other"
    bench.session.runtime.interrupt = lambda task, wanted: bench.runtime.interrupted.append(  # type: ignore[method-assign]
        (task, wanted())
    )
    bench.session.holds.lose(hold, "test")
    task_left = left.task
    assert left.take_interrupt(task_left)
    left.task = None
    assert not left.take_interrupt(task_left)
    assert bench.runtime.interrupted == [("task", True)]
    assert hold.interrupted


# Verify and extend -----------------------------------------------------------------------


def test_verify_asks_the_backend_and_changes_nothing(bench: Bench) -> None:
    hold = take(bench)
    bench.runtime.time += 5
    assert run(verify(bench.session, hold)) is True
    assert hold.deadline == 1030
    assert not bench.backend.taken("renew")[0][0][0].extend


def test_verify_of_a_lease_that_is_over_asks_nobody(bench: Bench) -> None:
    hold = take(bench)
    run(release(bench.session, hold))
    assert run(verify(bench.session, hold)) is False
    assert bench.backend.count("renew") == 0


def test_verify_settles_a_loss(bench: Bench) -> None:
    hold = take(bench)
    bench.backend.say("renew", Outcome.LOST)
    assert run(verify(bench.session, hold)) is False
    assert hold.state is LOST


@pytest.mark.parametrize("answer", [Outcome.UNKNOWN, down()])
def test_verify_without_an_answer_is_neither_yes_nor_no(bench: Bench, answer: object) -> None:
    hold = take(bench)
    bench.backend.say("renew", answer)
    with pytest.raises(BackendUnavailable):
        run(verify(bench.session, hold))
    assert hold.state is HELD


def test_verify_whose_answer_comes_after_the_deadline_is_no(bench: Bench) -> None:
    hold = take(bench)
    bench.backend.say("renew", after(31, Outcome.HELD))
    assert run(verify(bench.session, hold)) is False


def test_extend_counts_from_now_and_stays_for_later_renewals(bench: Bench) -> None:
    hold = take(bench)
    bench.runtime.time += 5
    run(extend(bench.session, hold, 60.0))
    assert hold.ttl == 60
    assert hold.deadline == 1005 + 60
    bench.runtime.go(200)
    assert hold.state is HELD
    assert {r.ttl for renewals, _ in bench.backend.taken("renew") for r in renewals} == {60.0}


def test_a_renewal_that_comes_back_after_the_lease_was_shortened_does_not_lengthen_it(bench: Bench) -> None:
    """Another thread has shortened it between the answer and its being written down: seed 428819."""
    hold = take(bench)
    run(extend(bench.session, hold, 5.0))
    settle(bench.session, hold, Outcome.RENEWED, 1000.0, 30.0)
    assert hold.deadline == 1005.0


def test_extend_may_shorten(bench: Bench) -> None:
    hold = take(bench)
    run(extend(bench.session, hold, 3.0))
    assert hold.deadline == 1003
    bench.runtime.go(60)
    assert hold.state is HELD


def test_a_shorter_ttl_counts_before_it_is_sent_and_for_good_if_it_has_no_answer(bench: Bench) -> None:
    hold = take(bench)
    seen: list[float] = []

    def lost(renewals: list[Renewal], deadline: float) -> list[Outcome]:
        seen.append(hold.deadline)
        raise BackendUnavailable(backend="scripted", detail="no answer")

    bench.backend.say("renew", lost)
    with pytest.raises(BackendUnavailable):
        run(extend(bench.session, hold, 3.0))
    assert seen == [1003] and (hold.deadline, hold.ttl) == (1003, 3)
    with pytest.raises(BackendUnavailable, match="an extension to 3s has no answer and may yet be done"):
        run(extend(bench.session, hold, 60.0))
    bench.runtime.time += 1
    run(extend(bench.session, hold, 2.0))
    assert hold.deadline == 1003
    bench.runtime.go(30)
    assert hold.state is HELD, "it is renewed, with the shorter ttl"


def test_a_longer_extension_does_not_outlast_a_shorter_one_that_began_meanwhile(bench: Bench) -> None:
    """Two threads extend one lease, and the store may do the shorter one last."""
    hold = take(bench)

    def meanwhile(renewals: list[Renewal], deadline: float) -> list[Outcome]:
        run(extend(bench.session, hold, 3.0))
        return [Outcome.RENEWED]

    bench.backend.say("renew", meanwhile)
    run(extend(bench.session, hold, 60.0))
    assert (hold.deadline, hold.ttl) == (1003, 3)


def test_a_longer_extension_is_refused_while_a_shorter_one_is_under_way(bench: Bench) -> None:
    hold = take(bench)

    def meanwhile(renewals: list[Renewal], deadline: float) -> list[Outcome]:
        with pytest.raises(BackendUnavailable, match="has no answer"):
            run(extend(bench.session, hold, 60.0))
        return [Outcome.RENEWED]

    bench.backend.say("renew", meanwhile)
    run(extend(bench.session, hold, 3.0))
    run(extend(bench.session, hold, 60.0))
    assert (hold.deadline, hold.ttl) == (1060, 60)


def test_extend_does_not_pass_max_hold(bench: Bench) -> None:
    hold = take(bench, max_hold=40.0)
    run(extend(bench.session, hold, 60.0))
    assert hold.deadline == 1040
    assert bench.backend.taken("renew")[0][0][0].ttl == 40


def test_extend_of_a_lost_lease_is_lease_lost(bench: Bench) -> None:
    hold = take(bench)
    bench.backend.say("renew", Outcome.LOST)
    with pytest.raises(LeaseLost):
        run(extend(bench.session, hold, 60.0))
    with pytest.raises(LeaseLost):
        run(extend(bench.session, hold, 60.0))
    assert bench.backend.count("renew") == 1


def test_extend_of_a_released_lease_is_not_held(bench: Bench) -> None:
    hold = take(bench)
    run(release(bench.session, hold))
    with pytest.raises(NotHeld):
        run(extend(bench.session, hold, 60.0))


def test_extend_without_an_answer_changes_nothing(bench: Bench) -> None:
    hold = take(bench)
    bench.backend.say("renew", Outcome.UNKNOWN)
    with pytest.raises(BackendUnavailable):
        run(extend(bench.session, hold, 60.0))
    assert (hold.ttl, hold.deadline) == (30, 1030)


def test_a_renewal_under_way_during_an_extension_promises_no_more_than_it_asked_for(bench: Bench) -> None:
    """The renewal was sent with the old ttl, and reaches the backend after the extension.

    A backend never moves a deadline back; that is part of its contract.
    """
    hold = take(bench)
    in_backend = 0.0

    def apply(renewals: list[Renewal], deadline: float) -> Outcome:
        nonlocal in_backend
        if bench.backend.count("renew") == 1:  # this one is overtaken
            run(extend(bench.session, hold, 300.0))
        in_backend = max(in_backend, bench.runtime.time + renewals[0].ttl)
        return Outcome.RENEWED

    bench.backend.keep_saying("renew", apply)
    bench.runtime.go(10)
    assert hold.deadline <= in_backend
