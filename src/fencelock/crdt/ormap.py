"""A map of CRDTs, with one causal context for all of them.

An entry is known by its key *and* its type: two replicas that use one key for a counter and for a set
have made two entries, and neither is lost.

Entries that keep dots themselves (`ORSet`, `MVRegister`, `ORMap`) have their stores in the map and
share its context. Of any other type each replica has a part of its own, all that it has contributed,
under a dot that every change renews; the value is the merge of the parts. Removing a key drops the
dots that are seen. So what others changed at the same time survives the removal, and a key that is
made again starts anew: dots are never used twice, so nothing of the earlier life comes back.

Not promised: that a removal takes along what it has not seen. After a removal and an increment at the
same time, a counter has what that replica had contributed, and nothing of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from fencelock.crdt import shape
from fencelock.crdt.base import Change, Crdt, Element, check_element, check_replica, settled
from fencelock.crdt.causal import Causal, Context, Dot, Dotted, Payload, Store, dots_of
from fencelock.crdt.clocks import Timestamp
from fencelock.crdt.codec import TYPES, register
from fencelock.crdt.packing import Tree, Wrong, pack
from fencelock.errors import ConfigurationError
from fencelock.names import shown

if TYPE_CHECKING:
    from typing import Self

__all__ = ["MAX_NESTING", "ORMap"]

C = TypeVar("C", bound=Crdt)
Key = tuple[Element, int]
MAX_NESTING = 8
"""Maps in maps: so deep and no deeper."""


class Parts(Payload):
    """At each dot stands what one replica has contributed to a value of one type."""

    def __init__(self, kind: type[Crdt]) -> None:
        self._kind = kind

    def tree(self, payload: Crdt) -> Tree:
        return payload._tree()

    def from_tree(self, tree: Tree) -> Crdt:
        return self._kind._from_tree(tree)

    def settle(self, one: Crdt, two: Crdt) -> Crdt:
        return one.merge(two)


class Plain:
    """Entries of a type that keeps no dots itself."""

    def __init__(self, kind: type[Crdt]) -> None:
        self._kind = kind
        self._dotted = Dotted(Parts(kind))
        self._join = self._dotted.join
        self._store_tree = self._dotted.tree
        self._store_from_tree = self._dotted.from_tree
        self._store_dots = dots_of

    def value(self, store: Store) -> Crdt:
        """Return the merge of all parts."""
        value = self._kind()
        for column in store.values():
            for part in column.values():
                value = value.merge(part)
        return value

    def renewed(self, store: Store, replica: str, n: int, delta: Crdt) -> tuple[Store, Context]:
        """Return the delta of a store in which `replica` contributes `delta` as well."""
        own = store.get(replica, {})
        for part in own.values():
            delta = part.merge(delta)
        return {replica: {n: delta}}, Context.of([(replica, n), *((replica, old) for old in own)])


def _ways(code: int) -> Any:
    """Return how the stores of a type are joined and encoded: its own class, or `Plain`."""
    kind = TYPES[code]
    if issubclass(kind, Causal):
        return kind
    if code not in _plain:
        _plain[code] = Plain(kind)
    return _plain[code]


_plain: dict[int, Plain] = {}


@register
class ORMap(Causal):
    """A map from keys to CRDTs; a change wins over a removal that has not seen it.

    Example:
        >>> from fencelock.crdt import GCounter, ORSet
        >>> page, _ = ORMap().update("anna", "visits", GCounter, lambda c: c.increment("anna"))
        >>> page, _ = page.update("anna", "tags", ORSet, lambda s: s.add("anna", "new"))
        >>> page.get("visits", GCounter).value, sorted(page.get("tags", ORSet))
        (1, ['new'])
        >>> page, delta = page.remove("visits")
        >>> sorted(page)
        ['tags']
    """

    __slots__ = ()
    code = 10

    def get(self, key: Element, kind: type[C]) -> C:
        """Return the value of an entry; an empty one if there is none."""
        entry = check_element(key, "key"), _code(kind)
        store = self._store.get(entry, {})
        ways = _ways(entry[1])
        value: Any = ways.value(store) if isinstance(ways, Plain) else ways._of(store, self._context)
        found: C = value
        return found

    def update(
        self, replica: str, key: Element, kind: type[C], change: Callable[[C], Change[C]]
    ) -> Change[ORMap]:
        """Change an entry by a mutator of its type, in the name of `replica`; make it if it is not there."""
        entry = check_element(key, "key"), _code(kind)
        check_replica(replica)
        delta = settled(change, self.get(key, kind)).delta
        store, ways = self._store.get(entry, {}), _ways(entry[1])
        if isinstance(ways, Plain):
            part, seen = ways.renewed(store, replica, self._context.next(replica), delta)
        else:
            part, seen = _of_this_entry(delta, store, ways)
        joined = ways._join(store, self._context, part, seen)
        _check_nesting(part, entry[1], 1)
        after = {**self._store, entry: joined}
        if not joined:
            del after[entry]
        made = self._of({entry: part} if part else {}, seen)
        return Change(self._of(after, self._context.join(seen)), made)

    def remove(self, key: Element, kind: type[Crdt] | None = None) -> Change[ORMap]:
        """Remove the entries of a key as far as they have been seen, of all types or of one."""
        check_element(key, "key")
        code = None if kind is None else _code(kind)
        gone = [entry for entry in self._store if entry[0] == key and code in {None, entry[1]}]
        seen = Context.of(dot for entry in gone for dot in _ways(entry[1])._store_dots(self._store[entry]))
        after = {entry: store for entry, store in self._store.items() if entry not in gone}
        return Change(self._of(after, self._context), self._of({}, seen))

    def keys(self) -> frozenset[tuple[Element, type[Crdt]]]:
        """Return the key and the type of each entry."""
        return frozenset((key, TYPES[code]) for key, code in self._store)

    def latest(self) -> Timestamp | None:
        """Return the newest timestamp in it, `None` if it has none."""
        stamps = (self.get(key, TYPES[code]).latest() for key, code in self._store)
        return max((stamp for stamp in stamps if stamp is not None), default=None)

    def __contains__(self, key: Element) -> bool:
        return any(key == there for there, _ in self._store)

    def __iter__(self) -> Iterator[Element]:
        return iter({key for key, _ in self._store})

    def __len__(self) -> int:
        return len(self._store)

    @classmethod
    def _join(cls, one: Any, seen: Context, two: Any, seen_by_two: Context) -> Any:
        joined = {}
        for entry in one.keys() | two.keys():
            store = _ways(entry[1])._join(one.get(entry, {}), seen, two.get(entry, {}), seen_by_two)
            if store:
                joined[entry] = store
        return joined

    @classmethod
    def _store_dots(cls, store: Any) -> Iterator[Dot]:
        return (dot for entry, part in store.items() for dot in _ways(entry[1])._store_dots(part))

    @classmethod
    def _store_tree(cls, store: Any) -> Tree:
        entries = sorted(store, key=pack)
        return tuple((key, code, _ways(code)._store_tree(store[key, code])) for key, code in entries)

    @classmethod
    def _store_from_tree(cls, tree: Tree, context: Context) -> Any:
        store = {}
        for row in shape.sequence(tree):
            key, code, part = shape.sequence(row, 3)
            if type(code) is not int or code not in TYPES:
                raise Wrong(f"{shown(code)} is no type of CRDT")
            entry = shape.element(key), code
            store[entry] = _ways(code)._store_from_tree(part, context)
            if not store[entry]:
                raise Wrong("an entry is empty")
        shape.rising([pack(tuple(row[:2])) for row in tree])
        return store

    @classmethod
    def _from_tree(cls, tree: Tree) -> Self:
        made = super()._from_tree(tree)
        try:
            _check_nesting(made._store, cls.code, 0)
        except ConfigurationError as error:
            raise Wrong(str(error)) from None
        return made

    def __repr__(self) -> str:
        return f"<ORMap of {len(self)}>"


def _of_this_entry(delta: Any, store: Any, ways: Any) -> tuple[Any, Context]:
    """Return the store of a delta, and of what it has seen only what belongs to the entry.

    A value that came from another map has seen dots of all its entries. Taken over here, they would
    count as removed.
    """
    known = (dot for dot in ways._store_dots(store) if delta._context.has(*dot))
    return delta._store, Context.of(chain(known, ways._store_dots(delta._store)))


def _code(kind: type[Crdt]) -> int:
    code = getattr(kind, "code", None)
    if not isinstance(code, int) or TYPES.get(code) is not kind:
        raise ConfigurationError(f"kind={shown(kind)} is not a type of CRDT")
    return code


def _check_nesting(store: Any, code: int, depth: int) -> None:
    if code != ORMap.code:
        return
    if depth == MAX_NESTING:
        raise ConfigurationError(f"maps are nested too deeply: {MAX_NESTING} levels are possible")
    for entry, part in store.items():
        _check_nesting(part, entry[1], depth + 1)
