"""The first lock: one at a time, first come first served, and given back whatever happens.

Three clerks want to print on one printer. They are threads here; they could as well be processes, or
machines, with another URL.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time

from fencelock import AcquireTimeout, Client


def print_page(locks: Client, clerk: str) -> None:
    with locks.lock("printer", ttl=30) as lease:
        print(f"{clerk} prints, token {lease.token}")
        time.sleep(0.1)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        with Client(url) as locks:
            clerks = [
                threading.Thread(target=print_page, args=(locks, name)) for name in ("Ada", "Ben", "Cleo")
            ]
            for clerk in clerks:
                clerk.start()
            for clerk in clerks:
                clerk.join()

            # With a timeout you wait no longer than that; try_acquire does not wait at all.
            printer = locks.lock("printer")
            with printer:
                assert printer.try_acquire() is None
                try:
                    printer.acquire(timeout=0.2)
                except AcquireTimeout as error:
                    print(f"no luck: {error}")
            print(f"now it is free: {locks.inspect('printer').is_free}")


if __name__ == "__main__":
    main()
