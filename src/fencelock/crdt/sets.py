"""Sets without clocks: one that only grows, and one that forgets for good.

`GSet` merges by union. `TwoPhaseSet` is two of them, what was added and what was removed; an element
is in it if it was added and never removed. A removed element stays known for ever and cannot come
back: for sets that shrink and grow, take `ORSet`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fencelock.crdt import shape
from fencelock.crdt.base import Change, Crdt, Element, check_element
from fencelock.crdt.codec import register
from fencelock.crdt.packing import Tree, Wrong
from fencelock.errors import ConfigurationError
from fencelock.names import shown

if TYPE_CHECKING:
    from typing import Self

__all__ = ["GSet", "TwoPhaseSet"]

Held = frozenset[Element]
NONE: Held = frozenset()


@register
class GSet(Crdt):
    """A set that only grows.

    Example:
        >>> seen, delta = GSet().add("a", "b")
        >>> sorted(seen), "a" in seen, len(seen)
        (['a', 'b'], True, 2)
    """

    __slots__ = ("_held",)
    code = 4

    def __init__(self) -> None:
        """Start with nothing."""
        self._held = NONE

    @property
    def elements(self) -> frozenset[Element]:
        """All that is in it."""
        return self._held

    def add(self, *elements: Element) -> Change[GSet]:
        """Add elements."""
        new = frozenset(map(check_element, elements)) - self._held
        return Change(_grown(self._held | new), _grown(new))

    def merge(self, other: GSet) -> GSet:
        """Return the union."""
        self._check_same(other)
        return _grown(self._held | other._held)

    def __contains__(self, element: Element) -> bool:
        return element in self._held

    def __iter__(self) -> Iterator[Element]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def _tree(self) -> Tree:
        return shape.sorted_elements(self._held)

    @classmethod
    def _from_tree(cls, tree: Tree) -> Self:
        made = cls()
        made._held = frozenset(shape.elements(tree))
        return made

    def _state(self) -> object:
        return self._held

    def __repr__(self) -> str:
        return f"<GSet of {len(self)}>"


def _grown(held: Held) -> GSet:
    made = GSet()
    made._held = held
    return made


@register
class TwoPhaseSet(Crdt):
    """A set whose elements are added once and removed once.

    Example:
        >>> open_, _ = TwoPhaseSet().add("order-1", "order-2")
        >>> open_, _ = open_.remove("order-1")
        >>> sorted(open_)
        ['order-2']
    """

    __slots__ = ("_added", "_removed")
    code = 5

    def __init__(self) -> None:
        """Start with nothing."""
        self._added = NONE
        self._removed = NONE

    @property
    def elements(self) -> frozenset[Element]:
        """What was added and not removed."""
        return self._added - self._removed

    def add(self, *elements: Element) -> Change[TwoPhaseSet]:
        """Add elements; one that was removed is a `ConfigurationError`."""
        wanted = frozenset(map(check_element, elements))
        for gone in wanted & self._removed:
            raise ConfigurationError(
                f"element={shown(gone)} was removed, and a TwoPhaseSet takes nothing back"
            )
        new = wanted - self._added
        return Change(_phases(self._added | new, self._removed), _phases(new, NONE))

    def remove(self, *elements: Element) -> Change[TwoPhaseSet]:
        """Remove elements for good; those that are not in it are left alone."""
        gone = (frozenset(map(check_element, elements)) & self._added) - self._removed
        # The delta has them as added too: an element is removed only where it is known.
        return Change(_phases(self._added, self._removed | gone), _phases(gone, gone))

    def merge(self, other: TwoPhaseSet) -> TwoPhaseSet:
        """Return the set that has added and removed all that the two have."""
        self._check_same(other)
        return _phases(self._added | other._added, self._removed | other._removed)

    def __contains__(self, element: Element) -> bool:
        return element in self._added and element not in self._removed

    def __iter__(self) -> Iterator[Element]:
        return iter(self.elements)

    def __len__(self) -> int:
        return len(self._added) - len(self._removed)

    def _tree(self) -> Tree:
        return shape.sorted_elements(self._added - self._removed), shape.sorted_elements(self._removed)

    @classmethod
    def _from_tree(cls, tree: Tree) -> Self:
        live, removed = (frozenset(shape.elements(part)) for part in shape.sequence(tree, 2))
        if live & removed:
            raise Wrong("an element is both there and removed")
        made = cls()
        made._added, made._removed = live | removed, removed
        return made

    def _state(self) -> object:
        return self._added, self._removed

    def __repr__(self) -> str:
        return f"<TwoPhaseSet of {len(self)}>"


def _phases(added: Held, removed: Held) -> TwoPhaseSet:
    made = TwoPhaseSet()
    made._added, made._removed = added, removed
    return made
