"""Votes, tokens and readmission, case by case; tests/sim has all of it under a scheduler."""

from __future__ import annotations

import pytest

from fencelock.core.quorum import (
    BLANK,
    BUSY,
    GRANTED,
    JOINING,
    MEMBER,
    OPEN,
    RIPE,
    SILENT,
    WRITE,
    Claim,
    Tally,
    drift,
    kept,
    lesson,
    quorum,
    readmission,
    teachers,
)


@pytest.mark.parametrize(
    ("nodes", "majority", "enough"), [(3, 2, 2), (4, 3, 2), (5, 3, 3), (6, 4, 3), (7, 4, 4)]
)
def test_majorities(nodes: int, majority: int, enough: int) -> None:
    assert quorum(nodes) == majority
    assert teachers(nodes) == enough
    assert 2 * majority > nodes, "two quorums have a node in common"
    assert enough + majority > nodes, "teachers and a quorum have a node in common"


def test_nodes_keep_a_lock_longer_than_its_holder_believes() -> None:
    assert kept(10) == 10 + drift(10) > 10.1


# Step 1 ---------------------------------------------------------------------------------------


def test_a_quorum_with_one_counter_is_a_grant_without_another_question() -> None:
    claim = Claim(5)
    assert [claim.grant(node, 8) for node in (4, 0, 2)] == [False, False, True]
    assert (claim.outcome, claim.token) == (GRANTED, 8)


def test_a_quorum_with_different_counters_has_to_write_back() -> None:
    claim = Claim(5)
    assert claim.outcome == OPEN
    for node, counter in ((0, 8), (1, 9), (2, 8)):
        over = claim.grant(node, counter)
    assert over
    assert claim.outcome == WRITE
    assert claim.write_back() == (9, [0, 2, 3, 4])
    assert claim.outcome == OPEN
    assert not claim.agree(0)
    assert claim.agree(3)
    assert (claim.outcome, claim.token) == (GRANTED, 9)


def test_taken_by_so_many_that_no_quorum_is_left() -> None:
    claim = Claim(5)
    assert not claim.refuse()
    assert not claim.refuse()
    assert claim.refuse()
    assert claim.outcome == BUSY


def test_split_votes_are_busy_when_all_have_answered() -> None:
    claim = Claim(5)
    claim.grant(0, 4)
    claim.grant(1, 4)
    claim.refuse()
    assert not claim.refuse()
    assert claim.outcome == OPEN
    assert claim.miss()
    assert claim.outcome == BUSY


def test_too_few_answers_are_not_busy() -> None:
    claim = Claim(5)
    claim.grant(0, 4)
    claim.refuse()
    claim.miss()
    claim.miss()
    assert claim.miss()
    assert claim.outcome == SILENT


def test_half_of_an_even_number_is_no_quorum() -> None:
    claim = Claim(4)
    claim.grant(0, 1)
    claim.grant(1, 1)
    claim.miss()
    assert claim.miss()
    assert claim.outcome == SILENT


# Step 3 ---------------------------------------------------------------------------------------


def writing() -> Claim:
    claim = Claim(5)
    for node, counter in ((0, 8), (1, 9), (2, 8)):
        claim.grant(node, counter)
    claim.write_back()
    return claim


def test_a_node_that_agrees_twice_counts_once() -> None:
    claim = writing()
    assert not claim.agree(1), "it answered 9 in step 1 already"
    assert not claim.agree(0)
    assert not claim.agree(0)
    assert claim.outcome == OPEN


def test_a_vote_of_step_1_that_comes_late_does_not_count_as_agreement() -> None:
    claim = writing()
    assert not claim.grant(3, 12)
    assert claim.outcome == OPEN
    assert claim.highest == 12


def test_the_next_token_is_larger_than_all_that_was_seen() -> None:
    claim = writing()
    assert not claim.disagree(20)
    assert not claim.disagree(15)
    assert claim.disagree(11)
    assert claim.outcome == WRITE
    assert claim.write_back(3) == (24, [0, 1, 2, 3, 4])
    assert [claim.agree(node) for node in (0, 1, 2)] == [False, False, True]
    assert (claim.outcome, claim.token) == (GRANTED, 24)


def test_a_write_back_without_a_quorum_of_answers() -> None:
    claim = writing()
    claim.miss()
    claim.miss()
    claim.miss()
    assert claim.miss()
    assert claim.outcome == SILENT


def test_a_write_back_that_cannot_be_agreed_on_is_tried_again() -> None:
    claim = writing()
    claim.agree(0)
    claim.disagree(9)
    claim.miss()
    assert claim.miss()
    assert claim.outcome == WRITE


# Yes and no -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("yes", "no", "silent", "won", "lost", "heard", "decided"),
    [
        (3, 0, 0, True, False, True, True),
        (2, 2, 0, False, False, True, False),
        (0, 3, 0, False, True, True, True),
        (2, 2, 1, False, False, True, True),
        (1, 1, 3, False, False, False, True),
        (1, 0, 0, False, False, False, False),
    ],
)
def test_tally(yes: int, no: int, silent: int, won: bool, lost: bool, heard: bool, decided: bool) -> None:
    tally = Tally(5)
    tally.yes, tally.no, tally.silent = yes, no, silent
    assert (tally.won, tally.lost, tally.heard, tally.decided) == (won, lost, heard, decided)


# Memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("views", "todo"),
    [
        ([BLANK] * 5, ("found", (0, 1, 2, 3, 4))),
        ([BLANK] * 4 + [None], ("leave out", (0, 1, 2, 3))),
        ([MEMBER, MEMBER, BLANK, MEMBER, MEMBER], ("leave out", (2,))),
        ([MEMBER, MEMBER, JOINING, MEMBER, MEMBER], ("wait", ())),
        ([MEMBER, MEMBER, RIPE, MEMBER, None], ("teach", (2,))),
        ([MEMBER, MEMBER, RIPE, None, None], ("wait", ())),
        ([MEMBER, RIPE, RIPE, RIPE, None], ("begin anew", (1, 2, 3))),
        ([MEMBER, RIPE, RIPE, JOINING, None], ("wait", ())),
        ([MEMBER] * 5, ("wait", ())),
        ([MEMBER, MEMBER, RIPE, RIPE], ("teach", (2, 3))),
    ],
)
def test_readmission(views: list[str | None], todo: tuple[str, tuple[int, ...]]) -> None:
    assert readmission(views) == todo  # type: ignore[arg-type]


def test_a_lesson_is_the_largest_of_all() -> None:
    assert lesson([{1: 5, 2: 1}, {1: 4, 3: 9}, {}]) == {1: 5, 2: 1, 3: 9}
