"""Takes the lock `job` and leaves the program in one of many ways: leaver.py FOLDER WAY.

The ttl is long, so a lock that is free when the program is gone was given back, and did not expire.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from pathlib import Path

from resources import say

from fencelock import AsyncClient, Client

FOLDER = Path(sys.argv[1])
URL = f"sqlite://{FOLDER / 'locks.db'}"
TTL = 120.0


def sleep() -> None:
    """Sleep for long, by small steps: a signal that came just before one is seen after it."""
    for _ in range(6000):
        time.sleep(0.1)


def plain_end() -> None:
    locks = Client(URL)
    lease = locks.lock("job", ttl=TTL).acquire()
    say(token=lease.token)
    globals()["kept"] = locks, lease  # alive until the interpreter takes everything down


def many() -> None:
    locks = Client(URL)
    leases = [locks.lock(f"job:{number}", ttl=TTL).acquire() for number in range(50)]
    leases.append(locks.semaphore("job", 3, ttl=TTL).acquire())
    say(token=leases[-1].token)
    globals()["kept"] = locks, leases


def sys_exit() -> None:
    with Client(URL).lock("job", ttl=TTL) as lease:
        say(token=lease.token)
        sys.exit(3)


def raises_inside() -> None:
    with Client(URL).lock("job", ttl=TTL) as lease:
        say(token=lease.token)
        raise RuntimeError("inside the block")


def raises_outside() -> None:
    lease = Client(URL).lock("job", ttl=TTL).acquire()
    say(token=lease.token)
    raise RuntimeError("with a lease in hand")


def thread_raises() -> None:
    locks = Client(URL)

    def body() -> None:
        lease = locks.lock("job", ttl=TTL).acquire().__enter__()
        say(token=lease.token)
        raise RuntimeError("the thread dies with a lease in a local variable")

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    say(joined=True)
    sys.stdin.readline()


def daemon_thread() -> None:
    locks = Client(URL)
    taken = threading.Event()

    def body() -> None:
        with locks.lock("job", ttl=TTL) as lease:
            say(token=lease.token)
            taken.set()
            sleep()

    threading.Thread(target=body, daemon=True).start()
    taken.wait()


def hold() -> None:
    with Client(URL).lock("job", ttl=TTL) as lease:
        say(token=lease.token)
        sleep()


def hold_in_hand() -> None:
    lease = Client(URL).lock("job", ttl=TTL).acquire()
    say(token=lease.token)
    sleep()


def wait() -> None:
    with Client(URL).lock("job", ttl=TTL) as lease:
        say(token=lease.token)


async def async_block_end() -> None:
    async with AsyncClient(URL) as locks:
        lease = await locks.lock("job", ttl=TTL).acquire()
        say(token=lease.token)


async def async_never_closed() -> None:
    lease = await AsyncClient(URL).lock("job", ttl=TTL).acquire()
    say(token=lease.token)
    globals()["kept"] = lease


async def async_hold() -> None:
    async with AsyncClient(URL) as locks, locks.lock("job", ttl=TTL) as lease:
        say(token=lease.token)
        await asyncio.sleep(600)


async def async_wait() -> None:
    async with AsyncClient(URL) as locks, locks.lock("job", ttl=TTL) as lease:
        say(token=lease.token)


def hard_exit() -> None:
    lease = Client(URL).lock("job", ttl=TTL).acquire()
    say(token=lease.token)
    os._exit(0)


if __name__ == "__main__":
    way = globals()[sys.argv[2]]
    if asyncio.iscoroutinefunction(way):
        asyncio.run(way())
    else:
        way()
