"""The queue rule: the admitted prefix."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelock.core.queue import EXCLUSIVE, PERMIT, SHARED, UNLIMITED, Mode, admitted


@dataclass(frozen=True)
class Asked:
    mode: Mode
    limit: int


X = Asked(EXCLUSIVE, 1)
S = Asked(SHARED, UNLIMITED)
P1, P2, P3 = (Asked(PERMIT, limit) for limit in (1, 2, 3))


@pytest.mark.parametrize(
    ("queue", "holders"),
    [
        ([], 0),
        ([X], 1),
        ([X, X], 1),
        ([S], 1),
        ([S, S, S], 3),
        ([S, S, X, S], 2),
        ([X, S, S], 1),
        ([S, X], 1),
        ([P1, P1], 1),
        ([P2, P2, P2], 2),
        ([P3, P3], 2),
        ([P3, X, P3], 1),
        ([X, P3], 1),
        ([S, P3], 1),
        ([P3, S, P3], 1),
    ],
)
def test_the_longest_compatible_run_from_the_head_is_admitted(queue: list[Asked], holders: int) -> None:
    assert admitted(queue) == holders


def compatible(together: list[Asked]) -> bool:
    """The table of the module's docstring, read literally."""
    if len(together) <= 1:
        return True
    if all(asked.mode == SHARED for asked in together):
        return True
    return all(asked.mode == PERMIT for asked in together) and len(together) <= together[0].limit


@given(st.lists(st.sampled_from([X, S]), max_size=12))
def test_the_rule_is_the_table_for_readers_and_writers(queue: list[Asked]) -> None:
    assert admitted(queue) == max(n for n in range(len(queue) + 1) if compatible(queue[:n]))


@given(st.integers(1, 4), st.lists(st.booleans(), max_size=12))
def test_the_rule_is_the_table_for_a_semaphore_with_a_writer_in_between(
    limit: int, writers: list[bool]
) -> None:
    queue = [X if writer else Asked(PERMIT, limit) for writer in writers]
    assert admitted(queue) == max(n for n in range(len(queue) + 1) if compatible(queue[:n]))


@given(st.lists(st.sampled_from([X, S, P3]), min_size=1, max_size=12))
def test_somebody_always_holds_a_lock_that_is_wanted(queue: list[Asked]) -> None:
    assert 1 <= admitted(queue) <= len(queue)


@given(st.lists(st.sampled_from([X, S, P3]), min_size=1, max_size=12), st.sampled_from([X, S, P3]))
def test_a_newcomer_puts_nobody_out(queue: list[Asked], newcomer: Asked) -> None:
    assert admitted([*queue, newcomer]) >= admitted(queue)
