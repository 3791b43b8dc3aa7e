"""Counters that many replicas raise at once.

Each replica has a count of its own and only ever raises that; merging takes the higher one of each.
`GCounter` adds them up. `PNCounter` keeps two, what was added and what was taken away.

Not promised: a floor. Two replicas may both take the last piece, and the sum is then -1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencelock.crdt import shape
from fencelock.crdt.base import Change, Crdt, check_replica
from fencelock.crdt.clocks import check_count, counts_from_tree, counts_tree, highest, raised
from fencelock.crdt.codec import register
from fencelock.crdt.packing import Tree

if TYPE_CHECKING:
    from typing import Self

__all__ = ["GCounter", "PNCounter"]

Counts = dict[str, int]


@register
class GCounter(Crdt):
    """A counter that only grows.

    Example:
        >>> anna, _ = GCounter().increment("anna", 3)
        >>> ben, _ = GCounter().increment("ben")
        >>> (anna | ben).value
        4
    """

    __slots__ = ("_counts",)
    code = 2

    def __init__(self) -> None:
        """Start at 0."""
        self._counts: Counts = {}

    @property
    def value(self) -> int:
        """The sum."""
        return sum(self._counts.values())

    def increment(self, replica: str, by: int = 1) -> Change[GCounter]:
        """Add `by`, 0 or more, on the account of `replica`."""
        check_replica(replica)
        counts, delta = raised(self._counts, replica, check_count(by, "by"))
        return Change(_grown(counts), _grown(delta))

    def merge(self, other: GCounter) -> GCounter:
        """Return the counter that has counted all that the two have."""
        self._check_same(other)
        return _grown(highest(self._counts, other._counts))

    def _tree(self) -> Tree:
        return counts_tree(self._counts)

    @classmethod
    def _from_tree(cls, tree: Tree) -> Self:
        made = cls()
        made._counts = counts_from_tree(tree)
        return made

    def _state(self) -> object:
        return self._counts

    def __repr__(self) -> str:
        return f"<GCounter {self.value}>"


def _grown(counts: Counts) -> GCounter:
    made = GCounter()
    made._counts = counts
    return made


@register
class PNCounter(Crdt):
    """A counter that goes up and down.

    Example:
        >>> stock, _ = PNCounter().increment("anna", 10)
        >>> sold, _ = stock.decrement("ben", 4)
        >>> more, _ = stock.increment("anna", 5)
        >>> (sold | more).value
        11
    """

    __slots__ = ("_down", "_up")
    code = 3

    def __init__(self) -> None:
        """Start at 0."""
        self._up: Counts = {}
        self._down: Counts = {}

    @property
    def value(self) -> int:
        """What was added less what was taken away."""
        return sum(self._up.values()) - sum(self._down.values())

    def increment(self, replica: str, by: int = 1) -> Change[PNCounter]:
        """Add `by`, 0 or more, on the account of `replica`."""
        check_replica(replica)
        counts, delta = raised(self._up, replica, check_count(by, "by"))
        return Change(_both(counts, self._down), _both(delta, {}))

    def decrement(self, replica: str, by: int = 1) -> Change[PNCounter]:
        """Take `by`, 0 or more, away on the account of `replica`."""
        check_replica(replica)
        counts, delta = raised(self._down, replica, check_count(by, "by"))
        return Change(_both(self._up, counts), _both({}, delta))

    def merge(self, other: PNCounter) -> PNCounter:
        """Return the counter that has counted all that the two have."""
        self._check_same(other)
        return _both(highest(self._up, other._up), highest(self._down, other._down))

    def _tree(self) -> Tree:
        return counts_tree(self._up), counts_tree(self._down)

    @classmethod
    def _from_tree(cls, tree: Tree) -> Self:
        up, down = shape.sequence(tree, 2)
        made = cls()
        made._up, made._down = counts_from_tree(up), counts_from_tree(down)
        return made

    def _state(self) -> object:
        return self._up, self._down

    def __repr__(self) -> str:
        return f"<PNCounter {self.value}>"


def _both(up: Counts, down: Counts) -> PNCounter:
    made = PNCounter()
    made._up, made._down = up, down
    return made
