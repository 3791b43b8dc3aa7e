"""Forks while it holds a lock and waits for another, and says what parent and child find.

postgres_fork.py URL FLAVOUR

The parent holds `mine` and waits for `theirs`, which the test holds. The child says what it thinks of the
parent's lease, uses the very same client for locks of its own, and ends without closing anything.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from resources import say

from fencelock import AsyncClient, Client


def sockets() -> set[str]:
    """The sockets that are open here, by their inodes."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


def fork(child: Callable[[], dict[str, Any]]) -> None:
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
    with Client(url) as locks:
        mine = locks.lock("mine", ttl=30).acquire()
        got: list[Any] = []
        waiter = threading.Thread(target=lambda: got.append(locks.lock("theirs", ttl=30).acquire()))
        waiter.start()
        while locks._session.backend._listener._link is None:  # it waits, and listens
            time.sleep(0.01)
        say(who="parent", ready=True)
        sys.stdin.readline()
        known = sockets()

        def child() -> dict[str, Any]:
            kept = sockets() & known
            found = {
                "held": mine.is_held(),
                "released": mine.release(),
                "tried": locks.lock("mine").try_acquire(),
            }
            with locks.lock("child") as lease:
                found |= {"child": lease.token, "verified": lease.verify()}
            try:
                locks.lock("theirs").acquire(timeout=1)
            except TimeoutError:
                found["waited"] = True
            return {**found, "shared": len(sockets() & known), "kept": len(kept)}

        fork(child)
        say(who="parent", held=mine.is_held(), verified=mine.verify(), sockets=len(known))
        waiter.join(30)
        say(who="parent", token=got[0].token, released=[got[0].release(), mine.release()])


async def with_asyncio(url: str) -> None:
    async with AsyncClient(url) as locks:
        mine = await locks.lock("mine", ttl=30).acquire()
        waiter = asyncio.create_task(locks.lock("theirs", ttl=30).acquire())
        while locks._session.backend._listener._link is None:  # it waits, and listens
            await asyncio.sleep(0.01)
        say(who="parent", ready=True)
        await asyncio.to_thread(sys.stdin.readline)
        known = sockets()

        async def use() -> dict[str, Any]:
            found = {
                "held": mine.is_held(),
                "released": await mine.release(),
                "tried": await locks.lock("mine").try_acquire(),
            }
            async with locks.lock("child") as lease:
                found |= {"child": lease.token, "verified": await lease.verify()}
            try:
                await locks.lock("theirs").acquire(timeout=1)
            except TimeoutError:
                found["waited"] = True
            # The loop that the parent runs has sockets of its own, which any fork inherits.
            return {**found, "sockets": sorted(sockets() & known)}

        def child() -> dict[str, Any]:
            asyncio._set_running_loop(None)
            return asyncio.run(use())

        fork(child)
        say(who="parent", held=mine.is_held(), verified=await mine.verify(), sockets=len(known))
        theirs = await asyncio.wait_for(waiter, 30)
        say(who="parent", token=theirs.token, released=[await theirs.release(), await mine.release()])


if __name__ == "__main__":
    where, flavour = sys.argv[1:]
    if flavour == "asyncio":
        asyncio.run(with_asyncio(where))
    else:
        blocking(where)
