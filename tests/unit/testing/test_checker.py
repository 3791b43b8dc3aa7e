"""Each rule: a history that breaks it is caught, and its nearest legal neighbour passes."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from fencelock.testing import (
    Attempt,
    Event,
    History,
    Mode,
    Report,
    brute_check,
    check,
    check_available,
    check_exclusion,
    check_fifo,
    check_guard,
    check_loss,
    check_token_order,
    check_unique_tokens,
    compatible,
    definite_holds,
    lost_updates,
)

OPERATIONS = int(os.environ.get("FENCELOCK_OPERATIONS", "20000"))


def grant(
    history: History,
    client: str,
    token: int,
    invoked: float,
    returned: float,
    deadline: float = 1000.0,
    *,
    mode: Mode = "exclusive",
    limit: int | None = None,
    queued: float | None = None,
    release: float | None = None,
    name: str = "x",
) -> Attempt:
    attempt = history.acquire(client, name, mode=mode, limit=limit, at=invoked)
    if queued is not None:
        attempt.queued(at=queued)
    attempt.granted(token=token, deadline=deadline, owner=client, at=returned)
    if release is not None:
        attempt.release(at=release)
        attempt.released(at=release)
    return attempt


def rules(history: History, *, fifo: bool = True, exact: bool = False) -> list[str]:
    """The broken rules; the brute-force check must say the same."""
    report = check(history, fifo=fifo, exact=exact)
    found: list[str] = [violation.rule for violation in report.violations]
    slow = {rule for rule, _ in brute_check(history, fifo=fifo)}
    assert ("tokens" in slow) == bool({"unique-token", "token-order"} & set(found))
    assert ("exclusion" in slow) == ("exclusion" in found)
    if "exclusion" not in found:
        assert ("fifo" in slow) == ("fifo" in found)
    assert report.ok == (not found)
    assert all(str(violation) for violation in report.violations)
    return found


def unordered(history: History) -> History:
    return History(history.events, ordered=False)


# ------------------------------------------------------------------------------------------ tokens


@pytest.mark.parametrize(("second", "expected"), [(1, ["unique-token"]), (2, [])])
def test_tokens_are_unique(second: int, expected: list[str]) -> None:
    history = History()
    grant(history, "a", 1, 0, 3, mode="shared")
    grant(history, "b", second, 1, 2, mode="shared")
    assert rules(history) == expected


def test_tokens_of_different_names_may_be_equal() -> None:
    history = History()
    grant(history, "a", 1, 0, 1, name="x")
    grant(history, "b", 1, 0, 1, name="y")
    assert rules(history) == []


@pytest.mark.parametrize(("invoked", "expected"), [(3.0, ["token-order"]), (1.9, [])])
def test_a_later_grant_has_the_greater_token(invoked: float, expected: list[str]) -> None:
    history = History()
    grant(history, "a", 2, 0, 2, mode="shared")
    grant(history, "b", 1, invoked, 4, mode="shared")
    assert rules(history) == expected


def test_token_order_is_judged_over_distance() -> None:
    history = History()
    grant(history, "a", 9, 0, 1, release=1.5)
    grant(history, "c", 8, 0.5, 60, release=61)
    grant(history, "b", 3, 70, 80, release=90)
    violations = check(history).violations
    assert [violation.rule for violation in violations] == ["token-order"]
    assert [op.request for op in violations[0].operations if not isinstance(op, Event)] == ["a/1", "b/1"]


def test_equal_tokens_are_reported_once() -> None:
    history = History()
    grant(history, "a", 5, 0, 1, release=2)
    grant(history, "b", 5, 3, 4, release=5)
    grant(history, "c", 4, 6, 7, release=8)
    assert rules(history) == ["unique-token", "token-order"]


def test_at_equal_times_only_the_recorder_knows_the_order() -> None:
    history = History()
    grant(history, "a", 2, 0, 2, release=2)
    grant(history, "b", 1, 2, 4, release=4)
    assert rules(history) == ["token-order"]
    assert rules(unordered(history)) == []


# --------------------------------------------------------------------------------------- exclusion


def two_holds(
    first: tuple[Mode, int | None], second: tuple[Mode, int | None], release: float = 5.0
) -> History:
    history = History()
    grant(history, "a", 1, 0, 1, mode=first[0], limit=first[1], release=release)
    grant(history, "b", 2, 2, 4, mode=second[0], limit=second[1], release=6)
    return history


EXCLUSIVE: tuple[Mode, int | None] = ("exclusive", None)
SHARED: tuple[Mode, int | None] = ("shared", None)
ONE: tuple[Mode, int | None] = ("permit", 1)
TWO: tuple[Mode, int | None] = ("permit", 2)
THREE: tuple[Mode, int | None] = ("permit", 3)

PAIRS = [
    (EXCLUSIVE, EXCLUSIVE, False),
    (EXCLUSIVE, SHARED, False),
    (SHARED, EXCLUSIVE, False),
    (SHARED, SHARED, True),
    (SHARED, TWO, False),
    (TWO, SHARED, False),
    (TWO, EXCLUSIVE, False),
    (EXCLUSIVE, TWO, False),
    (ONE, ONE, False),
    (TWO, TWO, True),
    (ONE, THREE, False),
    (THREE, ONE, False),
]


@pytest.mark.parametrize(("first", "second", "together"), PAIRS)
def test_incompatible_holds_do_not_overlap(
    first: tuple[Mode, int | None], second: tuple[Mode, int | None], together: bool
) -> None:
    assert rules(two_holds(first, second)) == ([] if together else ["exclusion"])
    assert rules(two_holds(first, second, release=3)) == []
    assert compatible([first, second]) is together


def test_compatibility_of_many() -> None:
    assert compatible([])
    assert compatible([EXCLUSIVE])
    assert compatible([SHARED] * 9)
    assert compatible([THREE] * 3)
    assert not compatible([THREE] * 4)


def test_a_limit_is_for_all_permits_together() -> None:
    history = History()
    for number in range(4):
        grant(history, f"p{number}", number, number, number + 0.5, mode="permit", limit=3, release=9 + number)
    assert rules(history) == ["exclusion"]
    history = History()
    for number in range(4):
        release = 3.2 if number == 1 else 9.0
        grant(history, f"p{number}", number, number, number + 0.5, mode="permit", limit=3, release=release)
    assert rules(history) == []


def test_holds_are_half_open() -> None:
    assert rules(unordered(two_holds(EXCLUSIVE, EXCLUSIVE, release=4))) == []
    # The one who recorded both knows that b was granted first.
    history = History()
    a = history.acquire("a", "x", at=0)
    a.granted(token=1, deadline=100, at=1)
    grant(history, "b", 2, 2, 4)
    a.release(at=4)
    assert rules(history) == ["exclusion"]


End = Callable[[History, Attempt, float], None]

ENDS: dict[str, End] = {
    "release": lambda _history, attempt, at: attempt.release(at=at),
    "loss": lambda _history, attempt, at: attempt.lost(at=at),
    "crash": lambda history, _attempt, at: history.crashed("a", at=at),
    "break": lambda history, _attempt, at: history.breaking("op", "x", at=at),
    "break of the owner": lambda history, _attempt, at: history.breaking("op", "x", owner="a", at=at),
    "break of everything": lambda history, _attempt, at: history.breaking("op", at=at),
}


@pytest.mark.parametrize("how", ENDS)
def test_what_ends_a_hold(how: str) -> None:
    for at, expected in [(3.0, []), (5.0, ["exclusion"])]:
        history = History()
        attempt = grant(history, "a", 1, 0, 1)
        ENDS[how](history, attempt, at)
        # Held by someone else, whose break this is not.
        grant(history, "b", 2, 3.5 if at == 3.0 else 2, 4)
        if how.startswith("break"):
            history.broke(
                "op", "" if "everything" in how else "x", owner="a" if "owner" in how else None, at=at
            )
        assert rules(history) == expected


def test_a_break_of_someone_else_changes_nothing() -> None:
    for name, owner in [("y", None), ("x", "c")]:
        history = History()
        grant(history, "a", 1, 0, 1)
        history.breaking("op", name, owner=owner, at=2)
        history.broke("op", name, owner=owner, at=2.5)
        grant(history, "b", 2, 3, 4)
        assert rules(history) == ["exclusion"]


def test_a_break_that_was_over_changes_nothing() -> None:
    history = History()
    history.breaking("op", "x", at=0)
    history.broke("op", "x", at=1)
    grant(history, "a", 1, 2, 3)
    grant(history, "b", 2, 4, 5)
    assert rules(history) == ["exclusion"]


def test_a_grant_during_a_break_claims_nothing() -> None:
    history = History()
    history.breaking("op", "x", at=0)
    grant(history, "a", 1, 0.5, 1)
    history.broke("op", "x", at=2)
    grant(history, "b", 2, 3, 4)
    assert rules(history) == []


@pytest.mark.parametrize(("deadline", "expected"), [(4.0, []), (4.1, ["exclusion"])])
def test_the_deadline_ends_a_hold(deadline: float, expected: list[str]) -> None:
    history = History()
    grant(history, "a", 1, 0, 1, deadline)
    grant(history, "b", 2, 2, 4)
    assert rules(history) == expected


def test_renewals_and_observations_move_the_deadline() -> None:
    for move in (Attempt.renewed, Attempt.held, Attempt.extended):
        for deadline, expected in [(4.0, []), (4.1, ["exclusion"])]:
            history = History()
            attempt = grant(history, "a", 1, 0, 1, 3)
            move(attempt, deadline, at=2)
            grant(history, "b", 2, 2, 4)
            assert rules(history) == expected


def test_an_observation_vouches_for_the_time_before() -> None:
    history = History()
    attempt = grant(history, "a", 1, 0, 1, 3)
    grant(history, "b", 2, 2, 4, 5)
    attempt.held(9, at=6)
    assert rules(history) == ["exclusion"]


def test_an_extend_on_its_way_may_have_shortened_the_lease() -> None:
    history = History()
    attempt = grant(history, "a", 1, 0, 1, 30)
    attempt.extend(1, at=2)
    grant(history, "b", 2, 2, 4, 5)
    assert rules(history) == []
    attempt.renewed(40, at=4.5)  # the extend never arrived: nothing was short, nothing revived
    assert rules(history) == ["exclusion"]


def test_a_grant_that_came_back_expired_claims_nothing() -> None:
    history = History()
    grant(history, "b", 2, 2, 4)
    grant(history, "a", 1, 0, 5, 5)
    assert rules(history) == []
    assert [hold.operation.client for hold in definite_holds(history)] == ["b"]


# -------------------------------------------------------------------------------------------- fifo


def jump(
    *, queued: float = 1.0, mode: Mode = "exclusive", late_mode: Mode = "exclusive"
) -> tuple[History, Attempt]:
    """b comes and is granted while a, who came first, waits for its own grant at 10."""
    history = History()
    a = history.acquire("a", "x", mode=mode, at=0)
    a.queued(at=queued)
    grant(history, "b", 2, 2, 4, mode=late_mode, release=6)
    return history, a


def test_who_queued_first_is_granted_first() -> None:
    history, a = jump()
    a.granted(token=3, deadline=99, at=10)
    assert rules(history) == ["fifo"]
    assert rules(history, fifo=False) == []


@pytest.mark.parametrize(("queued", "expected"), [(1.9, ["fifo"]), (2.0, ["fifo"]), (2.1, []), (20.0, [])])
def test_a_place_counts_from_its_acknowledgement(queued: float, expected: list[str]) -> None:
    history, a = jump(queued=queued)
    a.granted(token=3, deadline=99, at=10)
    assert rules(history) == expected


def test_at_equal_times_a_place_proves_nothing_without_order() -> None:
    history, a = jump(queued=2.0)
    a.granted(token=3, deadline=99, at=10)
    assert rules(unordered(history)) == []


def test_requests_that_were_never_granted_have_no_claim() -> None:
    for give_up in (Attempt.timeout, Attempt.cancelled, Attempt.failed):
        history, a = jump()
        give_up(a, at=10)
        assert rules(history) == []
    history, a = jump()
    history.crashed("a", at=10)
    assert rules(history) == []
    assert rules(jump()[0]) == []


def test_a_lost_place_is_no_place() -> None:
    for lose in (Attempt.requeued, lambda a, at: a.queued(77, at=at)):
        history, a = jump()
        lose(a, at=7)
        a.granted(token=3, deadline=99, at=10)
        assert rules(history) == []


def test_the_new_place_counts_again() -> None:
    history, a = jump()
    a.requeued(at=7)
    grant(history, "c", 4, 7.5, 8, release=9)
    a.granted(token=3, deadline=99, at=10)
    assert rules(history) == ["fifo"]


def test_a_client_that_stood_still_may_have_lost_its_place() -> None:
    for paused, resumed, expected in [(2, 3, []), (0.2, 0.5, ["fifo"]), (11, 12, ["fifo"]), (9, None, [])]:
        history, a = jump()
        history.paused("a", at=paused)
        if resumed is not None:
            history.resumed("a", at=resumed)
        a.granted(token=3, deadline=99, at=10)
        assert rules(history) == expected


def test_a_break_may_have_cost_the_place() -> None:
    history, a = jump()
    history.breaking("op", "x", at=3)
    history.broke("op", "x", at=3.5)
    a.granted(token=3, deadline=99, at=10)
    assert rules(history) == []


def test_a_grant_that_was_heard_of_too_late_was_no_jump() -> None:
    history, a = jump()
    a.granted(token=1, deadline=10, at=10)
    assert rules(history) == []


def test_compatible_requests_may_hear_in_any_order() -> None:
    history, a = jump(mode="shared", late_mode="shared")
    a.granted(token=3, deadline=99, at=10)
    assert rules(history) == []


def test_a_reader_that_must_have_been_admitted_keeps_writers_out() -> None:
    history, a = jump(mode="shared", late_mode="shared")
    # Invoked before a was queued, so neither came first for certain; but b proves a's admission.
    grant(history, "c", 4, 0.5, 7, release=8)
    a.granted(token=3, deadline=99, at=10)
    assert rules(history) == ["fifo"]


@pytest.mark.parametrize(("limit", "expected"), [(2, ["fifo"]), (3, [])])
def test_permits_are_given_in_order(limit: int, expected: list[str]) -> None:
    history = History()
    grant(history, "z", 1, 0, 0.5, mode="permit", limit=limit, release=5)
    a = history.acquire("a", "x", mode="permit", limit=limit, at=0.6)
    a.queued(at=1)
    grant(history, "b", 3, 2, 4, mode="permit", limit=limit, release=6)
    a.granted(token=2, deadline=99, at=10)
    assert rules(history) == expected


# ------------------------------------------------------------------------------------------- guard


def writes(*accepted: tuple[int, int, int]) -> History:
    history = History()
    for seq, token, base in accepted:
        history.write("p", "ledger", token=token, base=base, value=base + 1, seq=seq, at=1)
    return history


def test_tokens_at_a_guarded_resource_never_fall() -> None:
    assert rules(writes((1, 5, 0), (2, 5, 1), (3, 7, 2))) == []
    assert rules(writes((1, 5, 0), (3, 6, 2), (2, 7, 1))) == ["guard"]
    # The recorded order is no argument, the resource's is.
    assert rules(writes((3, 7, 2), (1, 5, 0), (2, 6, 1))) == []


def test_two_writes_from_one_version_are_a_lost_update() -> None:
    assert rules(writes((1, 5, 0), (2, 6, 0))) == ["guard"]
    history = writes((1, 5, 0))
    history.write("q", "ledger", token=4, base=0, accepted=False)
    history.write("q", "ledger", token=6, base=0, accepted=None)
    history.write("q", "other", token=4, base=0, seq=1)
    assert rules(history) == []
    assert check(history).rejected == 1


def test_lost_updates_of_the_plain_resource_are_counted() -> None:
    history = History()
    for base in (0, 1, 1, 2, 2, 2):
        history.plain("p", "file", base=base, value=base + 1)
    history.plain("p", "file", base=1, accepted=None)
    history.plain("p", "other", base=1)
    assert lost_updates(history) == lost_updates(history, "file") == 3
    assert lost_updates(history, "other") == 0
    report = check(history)
    assert report.ok
    assert report.lost_updates == 3


# -------------------------------------------------------------------------------------------- loss


def lease(deadline: float = 10.0) -> tuple[History, Attempt]:
    history = History()
    return history, grant(history, "a", 1, 0, 1, deadline)


def test_a_loss_is_signalled_once() -> None:
    history, a = lease()
    a.lost(at=10)
    assert rules(history) == []
    a.lost(at=11)
    assert rules(history) == ["loss"]


def test_a_renewal_does_not_come_after_the_deadline() -> None:
    for at, expected in [(9.9, []), (10.0, ["loss"]), (12.0, ["loss"])]:
        history, a = lease()
        a.renewed(20, at=at)
        assert rules(history) == expected


def test_renewals_follow_one_another() -> None:
    history, a = lease()
    a.renewed(20, at=9)
    a.renewed(30, at=19)
    assert rules(history) == []
    a.renewed(40, at=31)
    assert rules(history) == ["loss"]


@pytest.mark.parametrize("move", [Attempt.renewed, Attempt.held, Attempt.extended])
def test_nothing_revives_a_lost_lease(move: Callable[..., None]) -> None:
    for at, expected in [(4.0, []), (6.0, ["loss"])]:
        history, a = lease()
        a.lost(at=5)
        move(a, 20, at=at)
        assert rules(history) == expected


def test_an_extend_is_judged_by_its_invocation_unless_exact() -> None:
    history, a = lease()
    a.extend(20, at=4)
    a.lost(at=5)
    a.extended(24, at=6)
    assert rules(history) == []
    assert rules(history, exact=True) == ["loss"]
    history, a = lease()
    a.lost(at=5)
    a.extend(20, at=5.5)
    a.extended(24, at=6)
    assert rules(history) == ["loss"]


@pytest.mark.parametrize("move", [Attempt.held, Attempt.extended])
def test_what_an_exact_recorder_must_not_see(move: Callable[..., None]) -> None:
    for at, expected in [(9.9, []), (10.0, ["loss"])]:
        history, a = lease()
        move(a, 20, at=at)
        assert rules(history) == []
        assert rules(history, exact=True) == expected


def test_a_lease_with_nothing_remaining_is_not_held() -> None:
    for deadline, expected in [(5.1, []), (5.0, ["loss"])]:
        history, a = lease()
        a.held(deadline, at=5)
        assert rules(history) == expected


def test_a_released_lease_is_not_held() -> None:
    for at, expected in [(3.0, []), (5.0, ["loss"])]:
        history, a = lease()
        a.release(at=2)
        a.released(at=4)
        a.held(9, at=at)
        assert rules(history) == expected


def test_a_loss_recorded_before_its_grant_is_no_riddle() -> None:
    history = History()
    a = history.acquire("a", "x", at=0)
    a.lost(at=5)
    a.granted(token=1, deadline=5, at=6)
    assert rules(history) == []


def late(history: History, *, end: float = 100.0) -> bool:
    history.acquire("end", "end", at=end)
    return bool(check_loss(history, loss_within=1.0))


def test_a_loss_is_signalled_in_time_if_asked() -> None:
    history, _ = lease()
    assert not check_loss(history)
    assert late(history)
    history, _ = lease()
    assert not late(history, end=10.9)
    for at, expected in [(10.5, False), (11.5, True)]:
        history, a = lease()
        a.lost(at=at)
        assert late(history) is expected
    for at, expected in [(9.0, False), (12.0, True)]:
        history, a = lease()
        a.release(at=at)
        assert late(history) is expected
    history, a = lease()
    a.renewed(50, at=5)
    assert not late(history, end=20)
    history, a = lease()
    history.crashed("a", at=5)
    assert not late(history)


def test_who_was_told_less_than_is_left_has_not_run_out_by_then() -> None:
    """It was stalled while it asked: from before it asked, that makes too little."""
    for at, expected in [(10.5, False), (11.5, True)]:
        history, a = lease()
        a.held(8, at=5)
        a.lost(at=at)
        assert late(history) is expected
    history, a = lease()
    a.renewed(20, at=5)
    a.held(12, at=6)
    assert not late(history, end=20.5)
    a.extended(15, at=7)  # an extension may shorten it
    assert late(history)


def test_a_sleeping_client_signals_its_loss_on_waking() -> None:
    for at, expected in [(30.5, False), (31.5, True)]:
        history, a = lease()
        history.paused("a", at=5)
        history.resumed("a", at=10.5)
        history.paused("a", at=11)
        history.resumed("a", at=30)
        a.lost(at=at)
        assert late(history) is expected
    history, _ = lease()
    history.paused("a", at=5)
    assert not late(history)


# --------------------------------------------------------------------------------------- available


def waiter(returned: float | None, *, crash: float | None = None) -> History:
    """a's process is killed at 5; b waits from 2 on."""
    history = History()
    grant(history, "a", 1, 0, 1, 30)
    b = history.acquire("b", "x", at=2)
    history.crashed("a", at=5)
    if returned is not None:
        b.granted(token=2, deadline=returned + 30, at=returned)
    if crash is not None:
        history.crashed("b", at=crash)
    history.acquire("end", "end", at=100).timeout(at=100)
    return history


@pytest.mark.parametrize(
    ("history", "ok"),
    [
        (waiter(36), True),
        (waiter(37.1), False),
        (waiter(None), False),
        (waiter(None, crash=36), True),
    ],
)
def test_a_lock_is_available_again(history: History, ok: bool) -> None:
    assert (not check_available(history, healed=0, bound=32)) is ok


def test_only_the_time_after_healing_counts() -> None:
    history = waiter(60)
    assert check_available(history, healed=20, bound=32)
    assert not check_available(history, healed=30, bound=32)
    assert not check_available(history, healed=20, until=50, bound=32)


def test_a_lock_that_is_held_is_not_idle() -> None:
    history = History()
    a = grant(history, "a", 1, 0, 1, 30)
    a.renewed(300, at=20)
    history.acquire("b", "x", at=2).timeout(at=200)
    assert not check_available(history, healed=0, bound=5)


def test_a_lock_that_is_held_is_not_idle_though_it_was_broken_before() -> None:
    """The request stood in line while the lock was broken, and was granted long after that: seed 69922."""
    history = History()
    a = history.acquire("a", "x", at=0)
    history.breaking("op", "x", at=1)
    history.broke("op", "x", at=2)
    a.granted(token=1, deadline=60, owner="a", at=10)
    history.acquire("b", "x", at=11).timeout(at=50)
    assert not check_available(history, healed=5, bound=8)


def test_a_lock_that_is_broken_is_idle_from_then_on() -> None:
    history = History()
    grant(history, "a", 1, 0, 1, 60)
    history.breaking("op", "x", at=10)
    history.broke("op", "x", at=11)
    history.acquire("b", "x", at=12).timeout(at=50)
    assert check_available(history, healed=5, bound=30)
    assert not check_available(history, healed=5, bound=40)


def test_names_need_evidence() -> None:
    history = waiter(36)
    assert not check_available(history, healed=10, bound=32, names=["x"])
    (violation,) = check_available(history, healed=10, bound=32, names=["y"])
    assert (violation.rule, violation.name) == ("available", "y")
    assert len(check_available(waiter(None), healed=10, bound=32, names=["x"])) == 1
    assert not check_available(History(), healed=1, bound=1)


def test_a_name_that_is_asked_for_late_may_be_granted_late() -> None:
    history = History()
    grant(history, "a", 1, 50, 51, 60)
    assert not check_available(history, healed=10, bound=5, names=["x"])
    assert check_available(history, healed=10, bound=5, until=40, names=["x"])  # nobody asked by then


# ------------------------------------------------------------------------------------------ report


def test_the_report_counts() -> None:
    history = History()
    a = grant(history, "a", 1, 0, 1, queued=0.5)
    a.renewed(2000, at=2)
    a.extend(3, at=3)
    a.extended(2001, at=4)
    a.lost(at=5)
    a.release(at=6)
    history.acquire("b", "x").timeout()
    history.acquire("b", "x").cancelled()
    history.acquire("b", "x").failed()
    history.acquire("b", "x")
    history.crashed("b")
    report = check(history)
    assert report == Report(
        violations=(),
        acquires=5,
        grants=1,
        timeouts=1,
        cancelled=1,
        failed=1,
        pending=1,
        queued=1,
        releases=1,
        renewals=2,
        losses=1,
        crashes=1,
    )
    assert str(report).startswith("acquires 5, grants 1, timeouts 1")
    assert "violations 0" in str(report)


def test_each_rule_may_be_asked_alone() -> None:
    history = two_holds(EXCLUSIVE, EXCLUSIVE)
    assert [violation.rule for violation in check_exclusion(history)] == ["exclusion"]
    assert check_unique_tokens(history) == check_token_order(history) == check_guard(history) == []
    history, a = jump()
    a.granted(token=3, deadline=99, at=10)
    assert [violation.rule for violation in check_fifo(history)] == ["fifo"]
    assert check_exclusion(history) == []


def test_a_violation_shows_what_happened() -> None:
    text = str(check(two_holds(EXCLUSIVE, EXCLUSIVE)))
    assert "exclusion: 'x': b/1 was granted at 4.000000 while a/1 held it" in text
    assert "a/1 exclusive 'x' granted token 1 [0.000000, 1.000000]" in text
    assert "write" in str(check(writes((1, 5, 0), (2, 6, 0))))


# ------------------------------------------------------------------------------------------- speed


def long_history(operations: int, names: int) -> History:
    history = History()
    choose = random.Random(1)
    now = [0.0] * names
    for number in range(operations):
        place = number % names
        start = now[place]
        hold = choose.random()
        attempt = history.acquire(f"p{number % 8}", f"n{place}", at=max(0.0, start - 3))
        attempt.queued(at=max(0.0, start - 2.5 + choose.random() / 10))
        attempt.granted(token=number, deadline=start + 9, at=start + 0.1)
        attempt.renewed(start + 20, at=start + 0.2)
        attempt.release(at=start + 0.3 + hold)
        now[place] = start + 0.4 + hold
    return history


@pytest.mark.parametrize(("operations", "names"), [(OPERATIONS, 1), (5_000, 1000)])
def test_very_many_operations_are_checked_in_seconds(operations: int, names: int) -> None:
    history = long_history(operations, names)
    start = time.process_time()
    report = check(history, exact=True, loss_within=1.0)
    assert not check_available(history, healed=0, bound=10)
    took = time.process_time() - start
    assert report.ok, str(report)[:2000]
    assert report.grants == report.queued == operations
    assert took < 15, f"{took:.1f}s"
