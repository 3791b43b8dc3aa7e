"""Values that are changed in many places and agree again: CRDTs, and the clocks they need.

Where the work of a lock would only be to merge changes, take no lock: let everybody change a copy,
and merge the copies. See docs/explanation/crdts.md for what each type keeps and what it drops.

Example:
    >>> from holdfast.crdt import ORSet
    >>> here, delta = ORSet().add("anna", "milk")
    >>> there, _ = ORSet().add("ben", "bread")
    >>> sorted(there.merge(delta))
    ['bread', 'milk']
"""

from holdfast.crdt.base import Change, Crdt, Element
from holdfast.crdt.clocks import ClockAhead, HybridLogicalClock, Order, Timestamp, VectorClock
from holdfast.crdt.counters import GCounter, PNCounter
from holdfast.crdt.lwwset import LWWElementSet
from holdfast.crdt.ormap import ORMap
from holdfast.crdt.orset import ORSet
from holdfast.crdt.packing import DecodeError
from holdfast.crdt.registers import LWWRegister, MVRegister
from holdfast.crdt.sets import GSet, TwoPhaseSet

__all__ = [
    "Change",
    "ClockAhead",
    "Crdt",
    "DecodeError",
    "Element",
    "GCounter",
    "GSet",
    "HybridLogicalClock",
    "LWWElementSet",
    "LWWRegister",
    "MVRegister",
    "ORMap",
    "ORSet",
    "Order",
    "PNCounter",
    "Timestamp",
    "TwoPhaseSet",
    "VectorClock",
]
