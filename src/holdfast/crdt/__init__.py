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

from holdfast.crdt.aio import AsyncReplica
from holdfast.crdt.base import Change, Crdt, Element
from holdfast.crdt.clocks import ClockAhead, HybridLogicalClock, Order, Timestamp, VectorClock
from holdfast.crdt.counters import GCounter, PNCounter
from holdfast.crdt.exchange import DirectoryExchange, Exchange, Record, RedisExchange, SQLExchange
from holdfast.crdt.lwwset import LWWElementSet
from holdfast.crdt.ormap import ORMap
from holdfast.crdt.orset import ORSet
from holdfast.crdt.packing import DecodeError
from holdfast.crdt.registers import LWWRegister, MVRegister
from holdfast.crdt.replica import Replica, Synced
from holdfast.crdt.sets import GSet, TwoPhaseSet

__all__ = [
    "AsyncReplica",
    "Change",
    "ClockAhead",
    "Crdt",
    "DecodeError",
    "DirectoryExchange",
    "Element",
    "Exchange",
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
    "Record",
    "RedisExchange",
    "Replica",
    "SQLExchange",
    "Synced",
    "Timestamp",
    "TwoPhaseSet",
    "VectorClock",
]
