"""What a tree must look like to be a state. Each function returns its argument, or raises `Wrong`.

A state that was read is as good as one that was made here: sorted, without doubles, in range. So
whatever is decoded encodes to the same bytes again, and no merge meets a state that cannot be.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from fencelock.crdt.base import Element, check_element
from fencelock.crdt.packing import MAX_INTEGER, Tree, Wrong, pack
from fencelock.errors import ConfigurationError
from fencelock.names import check_name

__all__ = ["element", "elements", "name", "named", "number", "pairs", "rising", "sequence", "sorted_elements"]


def sequence(tree: Tree, size: int | None = None) -> tuple[Any, ...]:
    """A tuple, of that size."""
    if type(tree) is not tuple or (size is not None and len(tree) != size):
        raise Wrong("a part has the wrong shape")
    return tree


def number(tree: Tree, lowest: int = 1) -> int:
    """A whole number from `lowest` on."""
    if type(tree) is not int or not lowest <= tree <= MAX_INTEGER:
        raise Wrong("a number is out of range")
    return tree


def name(tree: Tree) -> str:
    """The name of a replica."""
    try:
        return check_name(tree, "replica")
    except ConfigurationError as error:
        raise Wrong(str(error)) from None


def element(tree: Tree) -> Element:
    """Something that a set can hold."""
    try:
        return check_element(tree)
    except ConfigurationError as error:
        raise Wrong(str(error)) from None


def rising(keys: Sequence[Any]) -> None:
    """Each greater than the one before."""
    if any(one >= next_one for one, next_one in itertools.pairwise(keys)):
        raise Wrong("its parts are not in order")


def pairs(tree: Tree) -> Iterable[tuple[Any, Any]]:
    """A flat tuple (key, value, key, value, …), as pairs."""
    flat = sequence(tree)
    if len(flat) % 2:
        raise Wrong("a part has the wrong shape")
    return zip(flat[::2], flat[1::2], strict=True)


def named(tree: Tree) -> dict[str, Any]:
    """A flat tuple (name, value, …) with the names of replicas in order."""
    found = {name(key): value for key, value in pairs(tree)}
    rising(sequence(tree)[::2])
    return found


def elements(tree: Tree) -> tuple[Element, ...]:
    """Elements in order."""
    found = tuple(element(item) for item in sequence(tree))
    rising([pack(item) for item in found])
    return found


def sorted_elements(held: Iterable[Element]) -> tuple[Element, ...]:
    """Return elements in the order in which they are encoded."""
    return tuple(sorted(held, key=pack))
