"""Merging two OR-Sets of 100,000 elements, beside the union of two Python sets of that size.

*apart*: two replicas that have never met, half of the elements in both. *met*: two that have met and
have since changed one in a hundred each; the second one was decoded, so the two share no objects.
Each merge includes reading `elements`, so that it is asked for as much as the union is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from bench.measure import Contestant, Result, Run, Suite, interleave, timed
from bench.suites.targets import to_limit
from fencelock.crdt import ORSet

__all__ = ["SUITE"]

SIZE = 100_000
CHANGED = SIZE // 100
OURS = "ORSet | ORSet"


def ready(function: Callable[[], object]) -> Callable[[], contextlib.AbstractContextManager[Run]]:
    """Measure calls of a function that needs no preparation."""

    @contextlib.contextmanager
    def prepare() -> Iterator[Run]:
        yield timed(function)

    return prepare


def apart() -> tuple[ORSet, ORSet]:
    """Return two sets that have never met."""
    words = [f"element {number}" for number in range(SIZE * 3 // 2)]
    return ORSet().add("anna", *words[:SIZE])[0], ORSet().add("ben", *words[SIZE // 2 :])[0]


def met() -> tuple[ORSet, ORSet]:
    """Return two sets that share most of their history."""
    words = [f"element {number}" for number in range(SIZE)]
    shared = ORSet().add("anna", *words[::2])[0].add("ben", *words[1::2])[0]
    anna = shared.remove(*words[:CHANGED])[0].add("anna", *(f"a{n}" for n in range(CHANGED)))[0]
    ben = shared.remove(*words[-CHANGED:])[0].add("ben", *(f"b{n}" for n in range(CHANGED)))[0]
    return anna, ORSet.from_bytes(ben.to_bytes())


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    results = []
    for key, who, (one, two) in (("apart", "have never met", apart()), ("met", "have met", met())):
        left, right = set(one.elements), set(two.elements)
        contestants = [
            Contestant("set | set", ready(lambda left=left, right=right: left | right), "limit"),  # type: ignore[misc]
            Contestant(OURS, ready(lambda one=one, two=two: (one | two).elements), "fencelock"),  # type: ignore[misc]
        ]
        figures = interleave(contestants, rounds=9, count=5, progress=progress)
        verdicts = to_limit(figures, 10, OURS)
        title = f"Merging two sets of {SIZE:,} that {who}"
        results.append(Result(title, figures, verdicts=verdicts, key=f"crdt.{key}"))
    return results


SUITE = Suite("crdt", "merging two OR-Sets of 100,000 elements", measure)
