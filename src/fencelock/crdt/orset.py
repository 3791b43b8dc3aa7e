"""A set that elements enter and leave any number of times, without tombstones.

Each add gives its element a new dot and drops the dots that the element had; a remove drops the dots
that it sees, and only those. So an add that a remove has not seen survives it: *add wins*. See
`causal.py` for dots and for the merge.

State: one entry for each live element and one number for each replica. Elements that came and went
leave nothing. A merge costs about what the union of two sets costs; a change copies the columns it
touches, so add and remove many elements in one call.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from fencelock.crdt import shape
from fencelock.crdt.base import Change, Element, check_element, check_replica
from fencelock.crdt.causal import ColumnsCrdt, Context, Dot, Dotted, Payload, with_change
from fencelock.crdt.codec import register
from fencelock.crdt.packing import Tree, pack

if TYPE_CHECKING:
    from typing import Self

__all__ = ["ORSet"]

Index = dict[Element, tuple[Dot, ...]]


class Elements(Payload):
    """At each dot stands the element that it added."""

    def from_tree(self, tree: Tree) -> Element:
        return shape.element(tree)

    def settle(self, one: Element, two: Element) -> Element:
        return max(one, two, key=pack)


@register
class ORSet(ColumnsCrdt):
    """A set that elements may enter and leave; an add wins over a remove that has not seen it.

    Example:
        >>> cart, _ = ORSet().add("anna", "milk", "bread")
        >>> at_bens, _ = cart.remove("milk")
        >>> at_annas, _ = cart.add("anna", "milk")              # at the same time, and wins
        >>> sorted(at_bens | at_annas)
        ['bread', 'milk']
    """

    __slots__ = ("_elements", "_index")
    code = 6
    _dotted = Dotted(Elements())

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()
        self._elements: frozenset[Element] | None = None
        self._index: Index | None = None

    @property
    def elements(self) -> frozenset[Element]:
        """All that is in it."""
        if self._elements is None:
            columns: Any = self._store.values()
            self._elements = frozenset(chain.from_iterable(column.values() for column in columns))
        return self._elements

    def add(self, replica: str, *elements: Element) -> Change[ORSet]:
        """Add elements, in the name of `replica`; one that is there already is renewed."""
        check_replica(replica)
        new = dict.fromkeys(map(check_element, elements))
        if not new:
            return Change(self, ORSet())
        index = self._indexed()
        column = dict(enumerate(new, self._context.next(replica, len(new))))
        gone = [dot for element in new for dot in index.get(element, ())]
        seen = Context.of(chain(gone, ((replica, n) for n in column)))
        delta = self._of({replica: column}, seen)
        after = self._of(with_change(self._store, gone, delta._store), self._context.join(seen))
        after._index = {**index, **{element: ((replica, n),) for n, element in column.items()}}
        return Change(after, delta)

    def remove(self, *elements: Element) -> Change[ORSet]:
        """Remove elements as far as they have been seen; those that are not in it are left alone."""
        index = self._indexed()
        there = [one for one in dict.fromkeys(map(check_element, elements)) if one in index]
        gone = [dot for element in there for dot in index[element]]
        after = self._of(with_change(self._store, gone, {}), self._context)
        after._index = index.copy()
        for element in there:
            del after._index[element]
        return Change(after, self._of({}, Context.of(gone)))

    def _indexed(self) -> Index:
        if self._index is None:
            index: Index = {}
            for replica, column in self._store.items():
                for n, element in column.items():
                    index[element] = (*index[element], (replica, n)) if element in index else ((replica, n),)
            self._index = index
        return self._index

    def merge(self, other: Self) -> Self:
        """Return the set that has seen all adds and removes that the two have."""
        return super().merge(other)

    def __contains__(self, element: Element) -> bool:
        return element in (self._index if self._index is not None else self.elements)

    def __iter__(self) -> Iterator[Element]:
        return iter(self.elements)

    def __len__(self) -> int:
        return len(self._index if self._index is not None else self.elements)

    def __repr__(self) -> str:
        return f"<ORSet of {len(self)}>"
