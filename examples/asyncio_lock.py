"""The same in asyncio: a hundred tasks take turns, and cancelling one of them leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import tempfile

from fencelock import AsyncClient, release_on_exit

total = 0


async def add_one(locks: AsyncClient) -> None:
    global total
    async with locks.lock("total", timeout=30):
        seen = total
        await asyncio.sleep(0)  # here any other task may run: without the lock, updates get lost
        total = seen + 1


async def story(url: str) -> None:
    async with AsyncClient(url) as locks:
        await asyncio.gather(*(add_one(locks) for _ in range(100)))
        print(f"100 tasks have added one each: {total}")

        async with locks.lock("total"):
            waiting = asyncio.create_task(add_one(locks))
            await asyncio.sleep(0.1)
            print(f"a task waits: {len((await locks.inspect('total')).waiters)}")
            waiting.cancel()
            await asyncio.wait([waiting])
            print(f"it was cancelled, and waits no more: {len((await locks.inspect('total')).waiters)}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(story(os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"))
    assert total == 100


if __name__ == "__main__":
    release_on_exit()  # SIGTERM releases what is held
    main()
