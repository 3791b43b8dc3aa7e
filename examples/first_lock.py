"""The first lock: one at a time, first come first served, and given back whatever happens.

Three clerks want to print on one printer. They are threads here; they could as well be processes, or
machines, with another URL.
"""

from __future__ import annotations

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from fencelock import AcquireTimeout, Client, release_on_exit


def print_page(locks: Client, clerk: str) -> None:
    with locks.lock("printer", ttl=30) as lease:
        print(f"{clerk} prints, token {lease.token}")
        time.sleep(0.1)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        with Client(url) as locks:
            with ThreadPoolExecutor(3) as clerks:
                list(clerks.map(lambda clerk: print_page(locks, clerk), ("Ada", "Ben", "Cleo")))

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
    release_on_exit()  # SIGTERM releases what is held
    main()
