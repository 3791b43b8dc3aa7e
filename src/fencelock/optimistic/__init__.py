"""Optimistic updates: read with a version, change, write if nobody else has written since.

    row = optimistic.read(conn, "stock", key={"sku": "A1"})
    done = optimistic.update(
        conn, "stock", key={"sku": "A1"}, version=row["version"], set={"left": row["left"] - 1}
    )
    match done:
        case Updated(row): ...          # it was written, and this is the row now
        case Conflicted(row): ...       # somebody else was first, and this is the row now

`rows.py` has the statements and what they do not promise, `retrying.py` the decorator that tries again,
`registers.py` the same shape for one value on Redis, etcd, Consul and ZooKeeper. No lock is taken and
nobody waits; whoever loses does the work again. Under much contention a lock is faster: `bench/` has the
point where they cross.
"""

from fencelock.optimistic.cells import Value
from fencelock.optimistic.registers import AsyncRegister, Register
from fencelock.optimistic.results import Conflicted, NoSuchRow, Updated
from fencelock.optimistic.retrying import retry
from fencelock.optimistic.rows import (
    Change,
    read,
    read_async,
    update,
    update_async,
    update_many,
    update_many_async,
)

__all__ = [
    "AsyncRegister",
    "Change",
    "Conflicted",
    "NoSuchRow",
    "Register",
    "Updated",
    "Value",
    "read",
    "read_async",
    "retry",
    "update",
    "update_async",
    "update_many",
    "update_many_async",
]
