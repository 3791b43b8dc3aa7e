"""Loss: how the work learns that its lease is gone, in every way there is.

An operator breaks the lock while it is held. The holder hears of it at its next renewal at the
latest (every third of the ttl): `lost` is set, `on_lost` is called once, `check()` and the end of the
block raise `LeaseLost`. Under asyncio the body of the block is cancelled.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading

from fencelock import AsyncClient, Client, Lease, LeaseLost, release_on_exit


def blocking(url: str) -> None:
    told = threading.Event()

    def on_lost(lease: Lease) -> None:
        print(f"on_lost: token {lease.token}")
        told.set()

    with Client(url) as locks:
        try:
            with locks.lock("report", ttl=0.6, on_lost=on_lost) as lease:
                locks.force_release("report")  # from another program, usually: fencelock break report
                lease.lost.wait(5)  # or look now and then: lease.is_held()
                print(f"is_held() says {lease.is_held()}")
                try:
                    lease.check()  # between two steps of the work
                except LeaseLost as error:
                    print(f"check() raises: {error}")
                told.wait(5)
        except LeaseLost:
            print("and so does the end of the block")


async def with_asyncio(url: str) -> None:
    async with AsyncClient(url) as locks:
        try:
            async with locks.lock("report", ttl=0.6):
                await locks.force_release("report")
                await asyncio.sleep(60)  # the work: cancelled as soon as the loss is known
                print("never printed")
        except LeaseLost as error:
            print(f"the body was cancelled: {error.reason}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        blocking(url)
        asyncio.run(with_asyncio(url))


if __name__ == "__main__":
    release_on_exit()  # SIGTERM releases what is held
    main()
