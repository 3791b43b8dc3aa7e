"""The last items of a stock, sold without a lock: who was overtaken is told, and looks again.

Each buyer reads the row with its version, decides, and writes if nobody has written since. Whoever lost the
race gets the row as it stands now, and `retry` calls `merge` with it. The naive way, which writes what it has
worked out from an old row, sells more than there is.
"""

from __future__ import annotations

import sqlite3
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from fencelock import optimistic

BUYERS, ITEMS = 12, 5


def sell(path: str, row: dict[str, Any]) -> Any:
    if row["remaining"] == 0:
        return "sold out"
    with closing(sqlite3.connect(path, timeout=30)) as db, db:
        return optimistic.update(
            db,
            "stock",
            key={"sku": "A1"},
            version=row["version"],
            set={"remaining": row["remaining"] - 1},
        )


def buy(path: str) -> Any:
    @optimistic.retry(timeout=30, merge=lambda row: sell(path, row))
    def once() -> Any:
        with closing(sqlite3.connect(path, timeout=30)) as db:
            row = optimistic.read(db, "stock", key={"sku": "A1"})
        return sell(path, row)

    return once()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/shop.db"
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("CREATE TABLE stock (sku TEXT PRIMARY KEY, remaining INTEGER, version INTEGER)")
            db.execute("INSERT INTO stock VALUES ('A1', ?, 1)", (ITEMS,))
        with ThreadPoolExecutor(BUYERS) as pool:
            answers = list(pool.map(lambda _: buy(path), range(BUYERS)))
        sold = sum(isinstance(answer, optimistic.Updated) for answer in answers)
        with closing(sqlite3.connect(path)) as db:
            left = optimistic.read(db, "stock", key={"sku": "A1"})["remaining"]
    print(f"{BUYERS} buyers, {ITEMS} items: {sold} sold, {left} left")
    assert (sold, left) == (ITEMS, 0)


if __name__ == "__main__":
    main()
