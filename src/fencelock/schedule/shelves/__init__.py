"""Where records are kept: pages of text with a version, in whatever store there is.

A shelf reads a page with its version and the store's own time, and writes one if the version is still the one
that was read. That is all that a fence needs: whoever was overtaken meanwhile finds another version, reads
again, and sees the newer token. One small class for each kind of store:

    memory              a dict of this process
    SQL                 a row each in the table fencelock_schedule, with the server's time
    Redis, Valkey       a hash each, with the server's time
    etcd, Consul, ZooKeeper   a register each (`fencelock.optimistic`); these have no time to give

`shelf_for` finds the shelf of a client of fencelock, or of what the user gave as `record`.
"""

from __future__ import annotations

from fencelock.schedule.shelves.base import Page, Shelf
from fencelock.schedule.shelves.finding import shelf_for

__all__ = ["Page", "Shelf", "shelf_for"]
