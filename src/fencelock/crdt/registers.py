"""Registers: one value that many replicas set.

`MVRegister` keeps every value that was set without knowledge of the others, and lets you decide:
setting it replaces what was seen. Nothing is lost in silence.

`LWWRegister` keeps one value, that with the latest timestamp (wall time, tick, replica). The price:
of two values that were set apart, one is dropped in silence, and which one is decided by the
machines' clocks. A machine whose clock is ahead wins against later writes of the others. Setting it
first shows the clock the timestamp that is there, so a replica never loses against what it has seen;
it raises `ClockAhead` where that lies too far ahead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencelock.crdt import shape
from fencelock.crdt.base import Change, Crdt, check_replica
from fencelock.crdt.causal import ColumnsCrdt, Context, Dotted, Payload, dots_of
from fencelock.crdt.clocks import HybridLogicalClock, Timestamp, stamp_from_tree
from fencelock.crdt.codec import register
from fencelock.crdt.packing import MAX_ELEMENT_BYTES, Tree, Wrong, pack, unpack
from fencelock.errors import ConfigurationError
from fencelock.names import shown

if TYPE_CHECKING:
    from typing import Self

__all__ = ["LWWRegister", "MVRegister"]


def packed(value: Any) -> bytes:
    """Return a value as it is kept: its binary form tells 1 from True, and has an order."""
    data = pack(value)
    if len(data) > MAX_ELEMENT_BYTES:
        raise ConfigurationError(
            f"value={shown(value)} has {len(data)} bytes: at most {MAX_ELEMENT_BYTES} are possible"
        )
    return data


def packed_from_tree(tree: Tree) -> bytes:
    """Return a value that was read, as it is kept."""
    try:
        return packed(tree)
    except ConfigurationError as error:
        raise Wrong(str(error)) from None


def check_clock(clock: HybridLogicalClock) -> HybridLogicalClock:
    """Return `clock` if it is one."""
    if not isinstance(clock, HybridLogicalClock):
        raise ConfigurationError(f"clock={shown(clock)} is not a HybridLogicalClock")
    return clock


def stamp_after(clock: HybridLogicalClock, last: Timestamp | None) -> Timestamp:
    """Return a timestamp later than `last`; raise `ClockAhead`."""
    if last is not None:
        check_clock(clock).observe(last)
    return check_clock(clock).now()


class Values(Payload):
    """At each dot stands a value in its binary form."""

    def tree(self, payload: bytes) -> Tree:
        return unpack(payload)

    def from_tree(self, tree: Tree) -> bytes:
        return packed_from_tree(tree)

    def settle(self, one: bytes, two: bytes) -> bytes:
        return max(one, two)


@register
class MVRegister(ColumnsCrdt):
    """A value that keeps all that was set at the same time.

    Example:
        >>> here, _ = MVRegister().set("anna", "red")
        >>> there, _ = MVRegister().set("ben", "blue")
        >>> both = here | there
        >>> both.values
        ('red', 'blue')
        >>> both.set("anna", "purple").value.values
        ('purple',)
    """

    __slots__ = ()
    code = 7
    _dotted = Dotted(Values())

    @property
    def values(self) -> tuple[Any, ...]:
        """All values that were set without knowledge of each other, each once, in a fixed order."""
        kept = {payload for column in self._store.values() for payload in column.values()}
        return tuple(unpack(payload) for payload in sorted(kept))

    def set(self, replica: str, value: Any) -> Change[MVRegister]:
        """Set it, in the name of `replica`, and replace all values that are seen here."""
        dot = check_replica(replica), self._context.next(replica)
        store = {replica: {dot[1]: packed(value)}}
        seen = Context.of([*dots_of(self._store), dot])
        return Change(self._of(store, self._context.join(seen)), self._of(store, seen))

    def __repr__(self) -> str:
        return f"<MVRegister {shown(self.values)}>"


@register
class LWWRegister(Crdt):
    """A value of which the latest write stays; one made apart at the same time is dropped in silence.

    Example:
        >>> clock = HybridLogicalClock("anna")
        >>> register, _ = LWWRegister().set(clock, "red")
        >>> register, _ = register.set(clock, "blue")
        >>> register.value
        'blue'
    """

    __slots__ = ("_packed", "_stamp")
    code = 8

    def __init__(self) -> None:
        """Start with `None`, which every write replaces."""
        self._stamp: Timestamp | None = None
        self._packed = b""

    @property
    def value(self) -> Any:
        """The latest value, `None` before the first."""
        return unpack(self._packed) if self._packed else None

    @property
    def stamp(self) -> Timestamp | None:
        """When it was set, by the clock of whoever set it."""
        return self._stamp

    def set(self, clock: HybridLogicalClock, value: Any) -> Change[LWWRegister]:
        """Set it now; raises `ClockAhead` if what is there lies too far ahead of `clock`."""
        data = packed(value)
        made = _set(stamp_after(clock, self._stamp), data)
        return Change(made, made)

    def merge(self, other: LWWRegister) -> LWWRegister:
        """Return the one that was set later."""
        self._check_same(other)
        return max(self, other, key=_order)

    def latest(self) -> Timestamp | None:
        return self._stamp

    def _tree(self) -> Tree:
        return () if self._stamp is None else (tuple(self._stamp), unpack(self._packed))

    @classmethod
    def _from_tree(cls, tree: Tree) -> Self:
        made = cls()
        if tree != ():
            stamp, value = shape.sequence(tree, 2)
            made._stamp, made._packed = stamp_from_tree(stamp), packed_from_tree(value)
        return made

    def _state(self) -> object:
        return self._stamp, self._packed

    def __repr__(self) -> str:
        return f"<LWWRegister {shown(self.value)}>"


def _set(stamp: Timestamp, data: bytes) -> LWWRegister:
    made = LWWRegister()
    made._stamp, made._packed = stamp, data
    return made


def _order(register: LWWRegister) -> tuple[Timestamp, bytes]:
    return register._stamp or Timestamp(-1, 0, ""), register._packed
