"""A lock as a decorator: every call of the function is made under the lock, in both flavours."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from fencelock import AsyncClient, Client, release_on_exit


def blocking(url: str) -> None:
    running = most = 0
    with Client(url) as locks:

        @locks.lock("rebuild-index", ttl=10)
        def rebuild(number: int) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            time.sleep(0.05)
            running -= 1
            print(f"rebuilt by thread {number}")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(rebuild, range(4)))
    assert most == 1


async def with_asyncio(url: str) -> None:
    async with AsyncClient(url) as locks:

        @locks.lock("rebuild-index", ttl=10)
        async def rebuild(number: int) -> str:
            await asyncio.sleep(0.05)
            return f"rebuilt by task {number}"

        print(*await asyncio.gather(*(rebuild(number) for number in range(4))), sep="\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        blocking(url)
        asyncio.run(with_asyncio(url))


if __name__ == "__main__":
    release_on_exit()  # SIGTERM releases what is held
    main()
