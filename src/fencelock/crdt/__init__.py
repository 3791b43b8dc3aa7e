"""Values that are changed in many places and agree again: CRDTs, and the clocks they need.

Where the work of a lock would only be to merge changes, take no lock: let everybody change a copy,
and merge the copies. See docs/explanation/crdts.md for what each type keeps and what it drops.

Example:
    >>> from fencelock.crdt import ORSet
    >>> here, delta = ORSet().add("anna", "milk")
    >>> there, _ = ORSet().add("ben", "bread")
    >>> sorted(there.merge(delta))
    ['bread', 'milk']
"""

from fencelock.crdt.aio import AsyncReplica
from fencelock.crdt.base import Change, Crdt, Element
from fencelock.crdt.clocks import ClockAhead, HybridLogicalClock, Order, Timestamp, VectorClock
from fencelock.crdt.counters import GCounter, PNCounter
from fencelock.crdt.exchange import DirectoryExchange, Exchange, Record, RedisExchange, SQLExchange
from fencelock.crdt.lwwset import LWWElementSet
from fencelock.crdt.ormap import ORMap
from fencelock.crdt.orset import ORSet
from fencelock.crdt.packing import DecodeError
from fencelock.crdt.registers import LWWRegister, MVRegister
from fencelock.crdt.replica import Replica, Synced
from fencelock.crdt.sets import GSet, TwoPhaseSet

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
