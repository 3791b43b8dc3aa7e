"""Takes the lock `job` after `release_on_exit` and is sent a signal: signalled.py URL WAY [SIGNAL...].

Without signals `release_on_exit` is not called. The ttl is long, so a lock that is free when the program is
gone was released, and did not expire.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import logging.handlers
import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from resources import say

from fencelock import AsyncClient, Client, release_on_exit

URL = sys.argv[1]
WAY = sys.argv[2]
SIGNALS = tuple(sys.argv[3:])
TTL = 120.0


def sleep(seconds: float = 600.0) -> None:
    """Sleep by small steps: a signal that came just before one is seen after it."""
    for _ in range(int(seconds * 10)):
        time.sleep(0.1)


def hold() -> None:
    with Client(URL).lock("job", ttl=TTL) as lease:
        say(token=lease.token)
        sleep()


def hold_and_close() -> None:
    with Client(URL) as locks, locks.lock("job", ttl=TTL) as lease:
        say(token=lease.token)
        sleep()


def keep() -> None:
    lease = Client(URL).lock("job", ttl=TTL).acquire()
    globals()["kept"] = lease
    say(token=lease.token)
    sleep()


def wait() -> None:
    say(waits=True)
    with Client(URL).lock("job", ttl=TTL) as lease:
        say(token=lease.token)


async def async_hold() -> None:
    async with AsyncClient(URL) as locks, locks.lock("job", ttl=TTL) as lease:
        say(token=lease.token)
        await asyncio.sleep(600)


async def async_busy() -> None:
    """The signal comes while a task runs, not while the loop waits."""
    async with AsyncClient(URL) as locks, locks.lock("job", ttl=TTL) as lease:
        say(token=lease.token)
        while True:
            await asyncio.sleep(0)


async def async_tasks() -> None:
    async def part(locks: AsyncClient, number: int) -> None:
        async with locks.lock(f"job:{number}", ttl=TTL):
            taken.append(number)
            await asyncio.sleep(600)

    taken: list[int] = []
    async with AsyncClient(URL) as locks, asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(part(locks, number))
        while len(taken) < 5:
            await asyncio.sleep(0.01)
        async with locks.lock("job", ttl=TTL) as lease:
            say(token=lease.token)
            await asyncio.sleep(600)


async def async_keep() -> None:
    lease = await AsyncClient(URL).lock("job", ttl=TTL).acquire()
    globals()["kept"] = lease
    say(token=lease.token)
    await asyncio.sleep(600)


async def async_wait() -> None:
    say(waits=True)
    async with AsyncClient(URL) as locks, locks.lock("job", ttl=TTL) as lease:
        say(token=lease.token)


def caught() -> None:
    """The program catches the first exception, and goes on."""
    locks = Client(URL)
    for _ in range(2):
        try:
            with locks.lock("job", ttl=TTL) as lease:
                say(token=lease.token)
                sleep()
        except SystemExit as error:
            say(caught=error.code, goes_on=locks.list() == [])
            if sys.stdin.readline() == "end\n":
                return


def work(locks: Client, taken: threading.Event) -> None:
    """Hold the lock in a thread until told to end."""
    with locks.lock("job", ttl=TTL) as lease:
        taken.set()
        say(token=lease.token)
        sys.stdin.readline()
        say(held=lease.verify())


def join() -> None:
    """The main thread waits for the one that holds the lock."""
    thread = threading.Thread(target=work, args=(Client(URL), threading.Event()))
    thread.start()
    try:
        thread.join()
    finally:
        say(joining="interrupted")


def executor() -> None:
    """The main thread has ended; Python waits for the executor whose thread holds the lock."""
    taken = threading.Event()
    ThreadPoolExecutor(1).submit(work, Client(URL), taken)
    taken.wait()


def main_is_over() -> None:
    """The main thread has ended; Python waits for the one that holds the lock."""
    taken = threading.Event()
    threading.Thread(target=work, args=(Client(URL), taken)).start()
    taken.wait()


def fork() -> None:
    """The child is forked inside of a block of its parent and has a block of its own."""
    locks = Client(URL)
    with locks.lock("job", ttl=TTL) as lease:
        child = os.fork()
        if child == 0:
            with locks.lock("child", ttl=TTL) as mine:
                say(token=mine.token, pid=os.getpid())
                sleep()
        _, status = os.waitpid(child, 0)
        say(child=os.waitstatus_to_exitcode(status), held=lease.verify())
        sleep()


def multiprocessing_fork() -> None:
    locks = Client(URL)

    def hold_too() -> None:
        with locks.lock("job", ttl=TTL) as lease:
            say(token=lease.token, pid=os.getpid())
            sleep()

    child = multiprocessing.get_context("fork").Process(target=hold_too)
    child.start()
    child.join()
    say(child=child.exitcode)


def served() -> None:
    """A server with handlers of its own ends in its own way first."""
    import contextlib
    from collections.abc import AsyncIterator

    import uvicorn
    from starlette.applications import Starlette

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncClient(URL) as locks, locks.lock("job", ttl=TTL) as lease:
            say(token=lease.token)
            yield
            say(orderly=lease.is_held())

    def tell() -> None:
        while not server.started:
            time.sleep(0.01)
        say(serving=True)

    server = uvicorn.Server(uvicorn.Config(Starlette(lifespan=lifespan), port=0, log_level="critical"))
    threading.Thread(target=tell, daemon=True).start()
    server.run()


# Before the call: then the lock is held as by `hold`.


def own_handler() -> None:
    signal.signal(signal.SIGTERM, lambda signum, frame: say(handled=signum))


def own_exit() -> None:
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(7))


def last_words() -> None:
    """Leave something to an orderly exit: a hook that writes to a buffer, and the log."""
    sys.stdout = open(1, "w", buffering=8192, encoding="utf-8", closefd=False)  # noqa: SIM115
    atexit.register(print, '{"hook": "older"}')
    memory = logging.handlers.MemoryHandler(1000, logging.CRITICAL, target=logging.StreamHandler(sys.stderr))
    logging.getLogger("job").addHandler(memory)
    logging.getLogger("job").error("logged")


BEFORE = {"own_handler": own_handler, "own_exit": own_exit, "last_words": last_words}

if __name__ == "__main__":
    if WAY in BEFORE:
        BEFORE[WAY]()
    if SIGNALS:
        release_on_exit(SIGNALS)
    way = hold if WAY in BEFORE else globals()[WAY]
    if asyncio.iscoroutinefunction(way):
        asyncio.run(way())
    else:
        way()
