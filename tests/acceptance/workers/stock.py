"""Buys the last items of a shop, one buyer after the other, in one of several ways.

stock.py DATABASE LOCKS WAY BUYERS, where WAY is naive, lock, optimistic or atomic. Says how many it sold.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from databases import asked, connected
from resources import say

from holdfast import Client, optimistic
from holdfast.optimistic import Conflicted

MOMENT = 0.002
KEY = {"sku": "A1"}


def sell(conn: Any) -> bool:
    asked(conn, "INSERT INTO sales (sku) VALUES ('A1')")
    conn.commit()
    return True


def naive(conn: Any) -> bool:
    left = optimistic.read(conn, "stock", key=KEY)["remaining"]
    conn.rollback()
    time.sleep(MOMENT)
    if left <= 0:
        return False
    asked(conn, "UPDATE stock SET remaining = ? WHERE sku = 'A1'", left - 1)
    return sell(conn)


@optimistic.retry(timeout=60)
def optimistically(conn: Any) -> Any:
    row = optimistic.read(conn, "stock", key=KEY)
    conn.rollback()
    time.sleep(MOMENT)
    if row["remaining"] <= 0:
        return False
    change = {"remaining": row["remaining"] - 1}
    done = optimistic.update(conn, "stock", key=KEY, version=row["version"], set=change)
    if isinstance(done, Conflicted):
        conn.rollback()
        return done
    return sell(conn)


def atomically(conn: Any) -> bool:
    time.sleep(MOMENT)
    cursor = conn.cursor()
    cursor.execute("UPDATE stock SET remaining = remaining - 1 WHERE sku = 'A1' AND remaining > 0")
    changed = cursor.rowcount
    cursor.close()
    if not changed:
        conn.rollback()
        return False
    return sell(conn)


def main(database: str, locks: str, way: str, buyers: int) -> None:
    conn = connected(database)
    ways: dict[str, Callable[[Any], bool]] = {
        "naive": naive,
        "optimistic": optimistically,
        "atomic": atomically,
    }
    with Client(locks) as client:
        lock = client.lock("stock", ttl=60)
        say(ready=True)
        sys.stdin.readline()
        sold = 0
        for _ in range(buyers):
            if way == "lock":
                with lock:
                    sold += naive(conn)
            else:
                sold += ways[way](conn)
    conn.close()
    say(sold=sold)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
