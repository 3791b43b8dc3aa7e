"""Buys the last items of a shop, in many processes, in one of several ways.

stock.py DATABASE LOCKS. Each line on its input is a way, a number of processes and how many buyers come one
after the other in each; it says what was sold, and how many tries were refused.

    naive        read, write: the first buyers of all processes have read before any of them writes
    lock         the same under a lock
    broken       the same under locks that are broken once the first buyer of each process has read
    fence        those broken locks, and the token admitted before reading and before writing
    optimistic   read, write if unchanged: the first buyers have read before any of them writes
    atomic       one statement
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.synchronize import Barrier
from typing import Any

from databases import asked, connected
from resources import say

from fencelock import Client, Lease, NotHeld, StaleToken, fencing, optimistic
from fencelock.optimistic import Conflicted

KEY = {"sku": "A1"}
PATIENCE = 60


class Shop:
    """What one process has of it."""

    def __init__(self, database: str, client: Client, together: Barrier) -> None:
        self.conn = connected(database)
        self.client = client
        self.lock = client.lock("stock", ttl=60)
        self.refused = 0
        self._together = together
        self._has_met = False

    def meet(self) -> bool:
        """Wait, the first time, until every process is here; say whether it was the first time."""
        if self._has_met:
            return False
        self._has_met = True
        self._together.wait(PATIENCE)
        return True

    def left(self) -> int:
        left: int = optimistic.read(self.conn, "stock", key=KEY)["remaining"]
        return left

    def sell(self, left: int) -> bool:
        """Write what is left, and the sale, with what else is in the transaction."""
        asked(self.conn, "UPDATE stock SET remaining = ? WHERE sku = 'A1'", left)
        return self.book()

    def book(self) -> bool:
        asked(self.conn, "INSERT INTO sales (sku) VALUES ('A1')")
        self.conn.commit()
        return True


def naive(shop: Shop) -> bool:
    left = shop.left()
    shop.conn.rollback()
    shop.meet()
    return left > 0 and shop.sell(left - 1)


def locked(shop: Shop) -> bool:
    with shop.lock:
        left = shop.left()
        shop.conn.rollback()
        return left > 0 and shop.sell(left - 1)


def broken(shop: Shop) -> bool:
    lease = shop.lock.acquire()
    try:
        left = shop.left()
        shop.conn.rollback()
        break_in(shop, lease)
        return left > 0 and shop.sell(left - 1)
    finally:
        with suppress(NotHeld):
            lease.release()


def fenced(shop: Shop) -> bool:
    while True:
        lease = shop.lock.acquire()
        try:
            fencing.admit(shop.conn, "stock", lease.token)
            left = shop.left()
            shop.conn.commit()
            break_in(shop, lease)
            fencing.admit(shop.conn, "stock", lease.token)
            if left > 0:
                return shop.sell(left - 1)
            shop.conn.rollback()
            return False
        except StaleToken:
            shop.conn.rollback()
            shop.refused += 1
        finally:
            with suppress(NotHeld):
                lease.release()


def break_in(shop: Shop, lease: Lease) -> None:
    """Break the lock of the first buyer, and go on when all processes have come so far."""
    if not shop._has_met:
        shop.client.force_release("stock", owner=lease.owner)
        shop.meet()


@optimistic.retry(timeout=PATIENCE)
def optimistically(shop: Shop) -> Any:
    row = optimistic.read(shop.conn, "stock", key=KEY)
    shop.conn.rollback()
    shop.meet()
    if row["remaining"] <= 0:
        return False
    change = {"remaining": row["remaining"] - 1}
    done = optimistic.update(shop.conn, "stock", key=KEY, version=row["version"], set=change)
    if isinstance(done, Conflicted):
        shop.conn.rollback()
        shop.refused += 1
        return done
    return shop.book()


def atomically(shop: Shop) -> bool:
    shop.meet()
    cursor = shop.conn.cursor()
    cursor.execute("UPDATE stock SET remaining = remaining - 1 WHERE sku = 'A1' AND remaining > 0")
    changed = cursor.rowcount
    cursor.close()
    if not changed:
        shop.conn.rollback()
        return False
    return shop.book()


WAYS: dict[str, Callable[[Shop], bool]] = {
    "naive": naive,
    "lock": locked,
    "broken": broken,
    "fence": fenced,
    "optimistic": optimistically,
    "atomic": atomically,
}


def buy(urls: tuple[str, str], way: str, buyers: int, together: Barrier, answers: Any) -> None:
    try:
        with Client(urls[1]) as client:
            shop = Shop(urls[0], client, together)
            together.wait(PATIENCE)
            sold = sum(WAYS[way](shop) for _ in range(buyers))
            shop.conn.close()
        answers.put((sold, shop.refused))
    except BaseException as error:
        together.abort()
        answers.put(repr(error))


def main(database: str, locks: str) -> None:
    context = multiprocessing.get_context("fork")
    with Client(locks) as client:  # here, so that not every process has to import it
        assert client.inspect("stock").holders == ()
    connected(database).close()
    say(ready=True)
    for line in sys.stdin:
        way, buyers = json.loads(line)
        together, answers = context.Barrier(len(buyers)), context.SimpleQueue()
        members = [
            context.Process(target=buy, args=((database, locks), way, each, together, answers))
            for each in buyers
        ]
        for member in members:
            member.start()
        told = [answers.get() for _ in members]
        for member in members:
            member.join()
        errors = [one for one in told if isinstance(one, str)]
        sums = [sum(each) for each in zip(*(one for one in told if not isinstance(one, str)), strict=True)]
        say(errors=errors, sold=sums[0] if sums else 0, refused=sums[1] if sums else 0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
