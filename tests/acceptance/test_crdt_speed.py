"""Merging two OR-Sets of 100,000 elements takes at most ten times what the union of two sets takes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from bench.suites.crdt import apart, met

from fencelock.crdt import ORSet
from fencelock.testing.conformance.expect import took

LIMIT = 10
ROUNDS = 7


def best(function: Callable[[], object]) -> float:
    """The shortest of several rounds: what others do on the machine only ever adds."""
    taken = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        function()
        taken.append(time.perf_counter() - started)
    return min(taken)


@pytest.mark.timing
@pytest.mark.parametrize("pair", [apart, met])
def test_a_merge_is_within_ten_times_of_a_union(pair: Callable[[], tuple[ORSet, ORSet]]) -> None:
    one, two = pair()
    left, right = set(one.elements), set(two.elements)
    assert len(left) == len(right) == 100_000
    union = best(lambda: left | right)
    merge = best(lambda: (one | two).elements)
    assert (one | two).elements <= left | right
    took(0.0, merge, LIMIT * union, f"a merge, {merge / union:.1f} times the union,")
