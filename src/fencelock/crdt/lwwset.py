"""A set in which the latest add or remove of each element counts.

State: for each element that was ever added or removed, a timestamp and whether it is in. So it
grows with every element that it has ever known, and of two changes that were made apart the clocks
choose one, in silence (see `registers.py`). `ORSet` has neither flaw; take this one where the time
of a change is what decides: settings, opt-outs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fencelock.crdt import shape
from fencelock.crdt.base import Change, Crdt, Element, check_element
from fencelock.crdt.clocks import HybridLogicalClock, Timestamp, stamp_from_tree
from fencelock.crdt.codec import register
from fencelock.crdt.packing import Tree, Wrong
from fencelock.crdt.registers import check_clock, stamp_after

if TYPE_CHECKING:
    from typing import Self

__all__ = ["LWWElementSet"]

Known = dict[Element, tuple[Timestamp, bool]]


@register
class LWWElementSet(Crdt):
    """A set in which the latest change of each element counts.

    Example:
        >>> clock = HybridLogicalClock("anna")
        >>> muted, _ = LWWElementSet().add(clock, "news", "sport")
        >>> muted, _ = muted.remove(clock, "news")
        >>> sorted(muted)
        ['sport']
    """

    __slots__ = ("_known",)
    code = 9

    def __init__(self) -> None:
        """Start with nothing."""
        self._known: Known = {}

    @property
    def elements(self) -> frozenset[Element]:
        """All whose latest change was an add."""
        return frozenset(element for element, (_, there) in self._known.items() if there)

    def add(self, clock: HybridLogicalClock, *elements: Element) -> Change[LWWElementSet]:
        """Add elements now; raises `ClockAhead` if what is known of one lies too far ahead of `clock`."""
        return self._changed(clock, elements, True)

    def remove(self, clock: HybridLogicalClock, *elements: Element) -> Change[LWWElementSet]:
        """Remove elements now, also such as are not known yet; raises `ClockAhead` as `add` does."""
        return self._changed(clock, elements, False)

    def _changed(
        self, clock: HybridLogicalClock, elements: tuple[Element, ...], there: bool
    ) -> Change[LWWElementSet]:
        check_clock(clock)
        wanted = frozenset(map(check_element, elements))
        if not wanted:
            return Change(self, LWWElementSet())
        last = max((self._known[one][0] for one in wanted if one in self._known), default=None)
        stamp = stamp_after(clock, last)
        new: Known = dict.fromkeys(wanted, (stamp, there))
        return Change(_knowing({**self._known, **new}), _knowing(new))

    def merge(self, other: LWWElementSet) -> LWWElementSet:
        """Return the set with the later change of each element."""
        self._check_same(other)
        mine = self._known
        later = {one: told for one, told in other._known.items() if one not in mine or told > mine[one]}
        return _knowing({**mine, **later})

    def latest(self) -> Timestamp | None:
        return max((stamp for stamp, _ in self._known.values()), default=None)

    def __contains__(self, element: Element) -> bool:
        return self._known.get(element, (None, False))[1]

    def __iter__(self) -> Iterator[Element]:
        return iter(self.elements)

    def __len__(self) -> int:
        return sum(there for _, there in self._known.values())

    def _tree(self) -> Tree:
        known = self._known
        return tuple((one, *known[one][0], known[one][1]) for one in shape.sorted_elements(known))

    @classmethod
    def _from_tree(cls, tree: Tree) -> Self:
        rows = [shape.sequence(row, 5) for row in shape.sequence(tree)]
        made = cls()
        found = shape.elements(tuple(row[0] for row in rows))
        for element, row in zip(found, rows, strict=True):
            if type(row[4]) is not bool:
                raise Wrong("a part has the wrong shape")
            made._known[element] = stamp_from_tree(row[1:4]), row[4]
        return made

    def _state(self) -> object:
        return self._known

    def __repr__(self) -> str:
        return f"<LWWElementSet of {len(self)}>"


def _knowing(known: Known) -> LWWElementSet:
    made = LWWElementSet()
    made._known = known
    return made
