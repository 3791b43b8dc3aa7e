"""Forks while it holds a lock, and says what parent and child find.

mysql_fork.py URL FLAVOUR

The child uses the very same client for a lock of its own, and ends without closing anything.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
import warnings
from typing import Any

from resources import say

from fencelock import AsyncClient, Client


def fork(child: Any) -> None:
    """Run `child` in a child, let it say what it found, and reap it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            say(who="child", **child())
        except BaseException:
            say(who="child", error=traceback.format_exc())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def blocking(url: str) -> None:
    locks = Client(url)
    lease = locks.lock("mine", ttl=30).acquire()
    say(who="parent", token=lease.token)
    sys.stdin.readline()

    def child() -> dict[str, Any]:
        taken = locks.lock("mine", ttl=30).try_acquire()
        with locks.lock("child", ttl=30) as own:
            return {"held": lease.is_held(), "taken": taken is not None, "own": own.verify()}

    fork(child)
    say(who="parent", held=lease.is_held(), verified=lease.verify())
    sys.stdin.readline()
    say(who="parent", released=lease.release())
    locks.close()


async def with_asyncio(url: str) -> None:
    locks = AsyncClient(url)
    lease = await locks.lock("mine", ttl=30).acquire()
    say(who="parent", token=lease.token)
    sys.stdin.readline()

    async def look() -> dict[str, Any]:
        taken = await locks.lock("mine", ttl=30).try_acquire()
        async with locks.lock("child", ttl=30) as own:
            return {"held": lease.is_held(), "taken": taken is not None, "own": await own.verify()}

    def child() -> dict[str, Any]:
        asyncio._set_running_loop(None)
        return asyncio.new_event_loop().run_until_complete(look())

    fork(child)
    say(who="parent", held=lease.is_held(), verified=await lease.verify())
    sys.stdin.readline()
    say(who="parent", released=await lease.release())
    await locks.close()


if __name__ == "__main__":
    warnings.simplefilter("error")
    if sys.argv[2] == "asyncio":
        asyncio.run(with_asyncio(sys.argv[1]))
    else:
        blocking(sys.argv[1])
