"""A semaphore: at most three at a time, over all processes and machines that use the name.

Ten downloads, three connections allowed by the other side. All must give the same limit; one who
gives another is told so.
"""

from __future__ import annotations

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from fencelock import Client, ConfigurationError, release_on_exit

LIMIT = 3


def main() -> None:
    active: list[int] = []
    most = 0

    def download(number: int) -> None:
        nonlocal most
        with locks.semaphore("api.example.com", LIMIT, ttl=10, metadata={"download": number}):
            active.append(number)
            most = max(most, len(active))
            time.sleep(0.05)
            active.remove(number)

    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        with Client(url) as locks:
            with ThreadPoolExecutor(10) as pool:
                list(pool.map(download, range(10)))
            print(f"10 downloads, at most {most} at a time")

            with locks.semaphore("api.example.com", LIMIT):
                try:
                    locks.semaphore("api.example.com", LIMIT + 1).acquire()
                except ConfigurationError as error:
                    print(f"refused: {error}")
    assert most <= LIMIT


if __name__ == "__main__":
    release_on_exit()  # SIGTERM releases what is held
    main()
