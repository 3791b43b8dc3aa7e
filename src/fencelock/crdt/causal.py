"""Dots and what has been seen of them: how removal works without tombstones.

Every change gets a *dot*, (replica, n), that no other change has. A value keeps

- a *store*: for each replica a column {n: payload}, the dots that are alive;
- a *context*: which dots it has ever seen, as a vector (all up to n) and a cloud (single ones above
  that, while something in between is missing). Dots close up into the vector, so the context does
  not grow with the number of changes, only with the number of replicas.

A dot that is in the context and not in the store was removed. So two values merge dot by dot: alive
in both stays; alive in one stays only if the other has not seen it. Nothing is kept of what is gone.

Every dot of a store is in its context. If two stores have different payloads for one dot (a replica
was restored from a copy and used a dot again) a fixed rule picks or joins them, so that all agree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from fencelock.crdt import shape
from fencelock.crdt.base import Crdt
from fencelock.crdt.clocks import counts_from_tree, counts_tree, highest
from fencelock.crdt.packing import MAX_INTEGER, Tree, Wrong
from fencelock.errors import ConfigurationError

if TYPE_CHECKING:
    from typing import Self

__all__ = ["EMPTY", "Causal", "Column", "Context", "Dot", "Dotted", "Store", "dots_of", "with_change"]

Dot = tuple[str, int]
Column = dict[int, Any]
Store = dict[str, Column]
NOTHING: frozenset[int] = frozenset()
NO_COLUMN: Column = {}


class Context:
    """Which dots were seen. Never changed once it is made."""

    __slots__ = ("cloud", "vector")

    def __init__(self, vector: dict[str, int], cloud: dict[str, frozenset[int]]) -> None:
        self.vector = vector
        self.cloud = cloud

    @classmethod
    def of(cls, dots: Iterable[Dot]) -> Context:
        """Return the context of just these dots."""
        apart: dict[str, set[int]] = {}
        for replica, n in dots:
            apart.setdefault(replica, set()).add(n)
        return _closed_up({}, apart)

    def has(self, replica: str, n: int) -> bool:
        """Whether a dot was seen."""
        return n <= self.vector.get(replica, 0) or n in self.cloud.get(replica, NOTHING)

    def next(self, replica: str, count: int = 1) -> int:
        """Return the first n above all that was seen of a replica, where so many are still to be had."""
        cloud = self.cloud.get(replica)
        found = (max(cloud) if cloud else self.vector.get(replica, 0)) + 1
        if found + count - 1 > MAX_INTEGER:
            raise ConfigurationError(f"replica={replica!r} has no dots left: take another name")
        return found

    def join(self, other: Context) -> Context:
        """Return what either has seen."""
        vector = highest(self.vector, other.vector)
        if not self.cloud and not other.cloud:
            return Context(vector, {})
        both = self.cloud.keys() | other.cloud.keys()
        apart = {one: self.cloud.get(one, NOTHING) | other.cloud.get(one, NOTHING) for one in both}
        return _closed_up(vector, apart)

    def tree(self) -> Tree:
        """Return it as plain values."""
        cloud = tuple(part for one in sorted(self.cloud) for part in (one, tuple(sorted(self.cloud[one]))))
        return counts_tree(self.vector), cloud

    @classmethod
    def from_tree(cls, tree: Tree) -> Context:
        """Return the context of a state that was read."""
        vector_tree, cloud_tree = shape.sequence(tree, 2)
        vector = counts_from_tree(vector_tree)
        cloud = {}
        for replica, tree_of_it in shape.named(cloud_tree).items():
            apart = tuple(shape.number(n) for n in shape.sequence(tree_of_it))
            shape.rising(apart)
            if not apart or apart[0] <= vector.get(replica, 0) + 1:
                raise Wrong("a context is not closed up")
            cloud[replica] = frozenset(apart)
        return cls(vector, cloud)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and (self.vector, self.cloud) == (other.vector, other.cloud)

    __hash__ = None  # type: ignore[assignment]


def _closed_up(vector: dict[str, int], apart: dict[str, Any]) -> Context:
    """Move what has no gap below it from the cloud to the vector. The vector is the caller's no more."""
    cloud = {}
    for replica, numbers in apart.items():
        top = vector.get(replica, 0)
        while top + 1 in numbers:
            top += 1
        if top:
            vector[replica] = top
        above = frozenset(n for n in numbers if n > top)
        if above:
            cloud[replica] = above
    return Context(vector, cloud)


EMPTY = Context({}, {})


def dots_of(store: Store) -> Iterator[Dot]:
    """Return the dots of a store."""
    return ((replica, n) for replica, column in store.items() for n in column)


def with_change(store: Store, gone: Iterable[Dot], new: Store) -> Store:
    """Return a store without some dots and with others."""
    changed: Store = {}
    for replica, n in gone:
        if replica not in changed:
            changed[replica] = store[replica].copy()
        del changed[replica][n]
    for replica, column in new.items():
        changed[replica] = {**changed.get(replica, store.get(replica, NO_COLUMN)), **column}
    return {one: column for one, column in {**store, **changed}.items() if column}


class Causal(Crdt):
    """A CRDT of a store and a context. `ORMap` gives the stores of all its parts one context."""

    __slots__ = ("_context", "_store")
    _context: Context
    _store: Any

    def __init__(self) -> None:
        """Start with nothing."""
        self._context = EMPTY
        self._store = {}

    @classmethod
    def _of(cls, store: Any, context: Context) -> Self:
        made = cls()
        made._store, made._context = store, context
        return made

    def merge(self, other: Self) -> Self:
        """Return the value that has seen all changes that the two have."""
        self._check_same(other)
        if self is other:
            return self
        store = self._join(self._store, self._context, other._store, other._context)
        return self._of(store, self._context.join(other._context))

    @classmethod
    @abstractmethod
    def _join(cls, one: Any, seen: Context, two: Any, seen_by_two: Context) -> Any:
        """Return the store of the merged value."""

    @classmethod
    @abstractmethod
    def _store_dots(cls, store: Any) -> Iterator[Dot]:
        """Return all dots of a store."""

    @classmethod
    @abstractmethod
    def _store_tree(cls, store: Any) -> Tree:
        """Return a store as plain values."""

    @classmethod
    @abstractmethod
    def _store_from_tree(cls, tree: Tree, context: Context) -> Any:
        """Return a store that was read; all its dots are in `context`, or it is `Wrong`."""

    def _tree(self) -> Tree:
        return self._context.tree(), self._store_tree(self._store)

    @classmethod
    def _from_tree(cls, tree: Tree) -> Self:
        context_tree, store_tree = shape.sequence(tree, 2)
        context = Context.from_tree(context_tree)
        return cls._of(cls._store_from_tree(store_tree, context), context)

    def _state(self) -> object:
        return self._context, self._store


class Payload(ABC):
    """What stands at a dot: how it is encoded, checked, and settled when two differ."""

    def tree(self, payload: Any) -> Tree:
        """Return it as a plain value."""
        return payload

    @abstractmethod
    def from_tree(self, tree: Tree) -> Any:
        """Return what was read; raise `Wrong`."""

    @abstractmethod
    def settle(self, one: Any, two: Any) -> Any:
        """Return what all agree on when a dot has two payloads."""


class Dotted:
    """A store of columns, with payloads of one sort."""

    def __init__(self, payload: Payload) -> None:
        self._payload = payload

    def join(self, one: Store, seen: Context, two: Store, seen_by_two: Context) -> Store:
        """Return the store of the merged value."""
        joined = {}
        for replica in one.keys() | two.keys():
            mine, theirs = one.get(replica, NO_COLUMN), two.get(replica, NO_COLUMN)
            column = mine if mine is theirs else self._column(mine, seen, theirs, seen_by_two, replica)
            if column:
                joined[replica] = column
        return joined

    def _column(
        self, mine: Column, seen: Context, theirs: Column, seen_by_two: Context, replica: str
    ) -> Column:
        new = _unseen(theirs, seen, replica)
        gone = _removed(mine, theirs, seen_by_two, replica)
        other = self._differing(mine, theirs)
        if not (new or gone or other):
            return mine
        if not mine:
            return new
        column = {**mine, **new, **other}
        for n in gone:
            del column[n]
        return column

    def _differing(self, mine: Column, theirs: Column) -> Column:
        small, big = (mine, theirs) if len(mine) < len(theirs) else (theirs, mine)
        get = big.get
        return {
            n: self._payload.settle(payload, big[n])
            for n, payload in small.items()
            if get(n, payload) is not payload and big[n] != payload
        }

    def tree(self, store: Store) -> Tree:
        """Return the store as (replica, (n, payload, …), …)."""
        tree = self._payload.tree
        return tuple(
            part
            for replica in sorted(store)
            for part in (
                replica,
                tuple(item for n, payload in sorted(store[replica].items(), key=_first)
                      for item in (n, tree(payload))),
            )
        )  # fmt: skip

    def from_tree(self, tree: Tree, context: Context) -> Store:
        """Return a store that was read; raise `Wrong`."""
        read = self._payload.from_tree
        store = {}
        for replica, column_tree in shape.named(tree).items():
            column = {shape.number(n): read(payload) for n, payload in shape.pairs(column_tree)}
            shape.rising(shape.sequence(column_tree)[::2])
            if not column or not all(context.has(replica, n) for n in column):
                raise Wrong("a store has what its context has not")
            store[replica] = column
        return store


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]


def _unseen(theirs: Column, seen: Context, replica: str) -> Column:
    top, cloud = seen.vector.get(replica, 0), seen.cloud.get(replica, NOTHING)
    if not top and not cloud:
        return theirs
    if not theirs or max(theirs) <= top:
        return NO_COLUMN
    return {n: payload for n, payload in theirs.items() if n > top and n not in cloud}


def _removed(mine: Column, theirs: Column, seen: Context, replica: str) -> list[int]:
    top, cloud = seen.vector.get(replica, 0), seen.cloud.get(replica, NOTHING)
    if not top:  # a delta, mostly: its cloud is small
        return [n for n in cloud if n in mine and n not in theirs]
    return [n for n in mine if n not in theirs and (n <= top or n in cloud)]


class ColumnsCrdt(Causal):
    """A causal CRDT whose store is one of columns."""

    __slots__ = ()
    _dotted: ClassVar[Dotted]

    @classmethod
    def _join(cls, one: Any, seen: Context, two: Any, seen_by_two: Context) -> Any:
        return cls._dotted.join(one, seen, two, seen_by_two)

    @classmethod
    def _store_dots(cls, store: Any) -> Iterator[Dot]:
        return dots_of(store)

    @classmethod
    def _store_tree(cls, store: Any) -> Tree:
        return cls._dotted.tree(store)

    @classmethod
    def _store_from_tree(cls, tree: Tree, context: Context) -> Any:
        return cls._dotted.from_tree(tree, context)
