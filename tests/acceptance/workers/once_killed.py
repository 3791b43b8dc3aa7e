"""Does jobs 0, 1, 2, … once each, and is killed in the middle.

once_killed.py URL FORM COUNT, where FORM is once (in a transaction) or store (with a look before it is done
again). Says each job that is done, and what its result was.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from databases import asked, connected
from resources import say

from holdfast.idempotency import Attempt, InProgress, Store, once

MOMENT = 0.004


def in_a_transaction(url: str, job: str) -> Any:
    conn = connected(url)
    try:

        def do() -> str:
            asked(conn, "INSERT INTO effects (name) VALUES (?)", job)
            time.sleep(MOMENT)
            return f"{job} by {os.getpid()}"

        result = once(conn, job, "f", do)
        time.sleep(MOMENT)
        conn.commit()
        return result
    finally:
        conn.close()


def with_a_store(url: str, store: Store, job: str) -> Any:
    def do(attempt: Attempt) -> str:
        time.sleep(MOMENT)
        conn = connected(url)
        asked(conn, "INSERT INTO effects (name) VALUES (?)", job)
        conn.commit()
        conn.close()
        time.sleep(MOMENT)
        return "done"

    def look(attempt: Attempt) -> str:
        conn = connected(url)
        ((found,),) = asked(conn, "SELECT count(*) FROM effects WHERE name = ?", job)
        conn.close()
        return "found" if found else do(attempt)

    return store.run(job, "f", do, recover=look, timeout=0)


def main(url: str, form: str, count: int) -> None:
    store = Store(lambda: connected(url), ttl=1.0)
    say(ready=True)
    for number in range(count):
        job = f"job-{number}"
        while True:
            try:
                result = in_a_transaction(url, job) if form == "once" else with_a_store(url, store, job)
                break
            except InProgress:
                time.sleep(0.02)
        say(job=job, result=result)
    say(job=None)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
