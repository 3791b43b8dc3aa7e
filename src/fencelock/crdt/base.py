"""What every CRDT here is: an immutable value that merges with others of its type.

Merging is commutative, associative and idempotent, and never loses what either side has. So copies
that were changed apart agree again once each has merged the others, in any order, any number of
times.

One rule for all mutators: they change nothing and return a `Change`, the new value and a *delta*.
The delta is a small value of the same type; whoever merges it has seen the change:

    value, delta = value.add("anna", "milk")       # value == old.merge(delta)

Not promised: that a merge keeps an invariant over several values (a stock that never falls below
zero needs a lock or a transaction), or that two programs may write under one replica name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from fencelock.crdt.packing import MAX_ELEMENT_BYTES, Tree, pack
from fencelock.errors import ConfigurationError
from fencelock.names import check_name, shown

if TYPE_CHECKING:
    from typing import Self

    from fencelock.crdt.clocks import Timestamp

__all__ = ["Change", "Crdt", "Element", "check_element", "check_replica", "settled"]

C = TypeVar("C", bound="Crdt")
Element = str | bytes | int | tuple[Any, ...]
"""What a set holds and a map is keyed by: a string, bytes, a whole number of 64 bits, or a tuple of these."""


class Change(NamedTuple, Generic[C]):
    """What a mutator returns: the new value, and the delta that tells others of it.

    Example:
        >>> from fencelock.crdt import GCounter
        >>> change = GCounter().increment("anna", 2)
        >>> change.value.value, change.delta == change.value
        (2, True)
    """

    value: C
    """The value after the change."""
    delta: C
    """A value of the same type that carries the change alone."""


class Crdt(ABC):
    """An immutable value that merges with others of its type.

    Example:
        >>> from fencelock.crdt import Crdt, GSet
        >>> here, _ = GSet().add("a")
        >>> there, _ = GSet().add("b")
        >>> here | there == there | here == here.merge(there)
        True
        >>> Crdt.from_bytes(here.to_bytes()) == GSet.from_json(here.to_json()) == here
        True
    """

    __slots__ = ()

    code: ClassVar[int] = 0
    """The type's number in the binary form."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Return what knows all that the two know."""

    def __or__(self, other: Self) -> Self:
        return self.merge(other)

    def includes(self, other: Self) -> bool:
        """Whether merging `other` would change nothing."""
        return self.merge(other) == self

    def latest(self) -> Timestamp | None:
        """Return the newest timestamp in it, `None` if it has none."""
        return None

    def to_bytes(self) -> bytes:
        """Return the compact binary form. Equal values have equal forms."""
        from fencelock.crdt import codec

        return codec.to_bytes(self)

    def to_json(self) -> str:
        """Return the form for people and other languages, as JSON text."""
        from fencelock.crdt import codec

        return codec.to_json(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the value that `to_bytes` wrote; `Crdt.from_bytes` takes any type. Raises `DecodeError`."""
        from fencelock.crdt import codec

        return codec.from_bytes(data, cls)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the value that `to_json` wrote; `Crdt.from_json` takes any type. Raises `DecodeError`."""
        from fencelock.crdt import codec

        return codec.from_json(text, cls)

    @abstractmethod
    def _tree(self) -> Tree:
        """Return the whole state as plain values, the same for equal values."""

    @classmethod
    @abstractmethod
    def _from_tree(cls, tree: Tree) -> Self:
        """Return the value of a state that `_tree` made; raise `DecodeError` for any other."""

    @abstractmethod
    def _state(self) -> object:
        """Return what two equal values have in common."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Crdt):
            return NotImplemented
        return type(self) is type(other) and self._state() == other._state()

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_bytes, (self.to_bytes(),)

    def _check_same(self, other: object) -> None:
        if type(other) is not type(self):
            raise ConfigurationError(
                f"other={shown(other)} is not a {type(self).__name__}: only values of one type merge"
            )


def check_replica(replica: str) -> str:
    """Return `replica` if it can name who makes a change."""
    return check_name(replica, "replica")


def check_element(element: Element, what: str = "element") -> Element:
    """Return `element` if it can be in a set.

    Python takes 1, 1.0 and True for the same, their encodings do not: so only one of them is taken.
    """
    if type(element) is str and len(element) < 1000 and element.isascii():
        return element
    _check_types(element, element, what)
    size = len(pack(element))
    if size > MAX_ELEMENT_BYTES:
        raise ConfigurationError(
            f"{what}={shown(element)} has {size} bytes, {MAX_ELEMENT_BYTES} are possible"
        )
    return element


def _check_types(part: Any, whole: Any, what: str) -> None:
    if type(part) is tuple:
        for inner in part:
            _check_types(inner, whole, what)
    elif type(part) not in {str, bytes, int}:
        raise ConfigurationError(
            f"{what}={shown(whole)} cannot be held: give a string, bytes, a whole number or a tuple of these"
        )


def settled(change: Callable[[C], Change[C]], value: C) -> Change[C]:
    """Return the change that a caller's function makes to `value`, if it is one."""
    made = change(value)
    if not isinstance(made, Change) or any(type(part) is not type(value) for part in made):
        raise ConfigurationError(
            f"the change returned {shown(made)}: return what a mutator of {type(value).__name__} returns"
        )
    return made
