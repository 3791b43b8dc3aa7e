"""A payment that is sent twice is made once: an idempotency key, and no lock.

A lock keeps two from paying at once, not from paying one after the other. A key says which payment it is.
The first request pays; those that come meanwhile wait, those that come later find its answer. Key, payment
and answer are one transaction, so a crash in the middle undoes all of it, and the next request pays.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from fencelock import Client, release_on_exit
from fencelock.idempotency import FingerprintChanged, create_table, fingerprint, once


def pay(path: str, key: str, customer: str, amount: int) -> dict[str, int]:
    with closing(sqlite3.connect(path, timeout=30)) as db, db:

        def effect() -> dict[str, int]:
            db.execute("INSERT INTO payment VALUES (?, ?)", (customer, amount))
            return {"paid": amount}

        return once(db, key, fingerprint(customer, amount), effect)


def pay_in_turn(path: str, locks: Client, customer: str, amount: int) -> None:
    with locks.lock(f"pay:{customer}"), closing(sqlite3.connect(path, timeout=30)) as db, db:
        db.execute("INSERT INTO payment VALUES (?, ?)", (customer, amount))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/bank.db"
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("CREATE TABLE payment (customer TEXT, amount INTEGER)")
            create_table(db)

        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        with Client(url) as locks, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: pay_in_turn(path, locks, "alice", 30), range(8)))
            answers = list(pool.map(lambda _: pay(path, "order-42", "bob", 30), range(8)))
        try:
            pay(path, "order-42", "bob", 3000)
        except FingerprintChanged as error:
            print(f"refused: {error}")

        with closing(sqlite3.connect(path)) as db:
            paid = dict(db.execute("SELECT customer, count(*) FROM payment GROUP BY customer"))
    print(f"8 requests under a lock: {paid['alice']} payments; 8 with one key: {paid['bob']} payment")
    assert answers == [{"paid": 30}] * 8
    assert paid == {"alice": 8, "bob": 1}


if __name__ == "__main__":
    release_on_exit()  # SIGTERM releases what is held
    main()
