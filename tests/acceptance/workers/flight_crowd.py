"""Many ask at once for what is to be computed once: processes, and threads or tasks in each.

flight_crowd.py URL FILE. Each line on its input is a flavour, a key, how stale a value may be, a number of
processes and how many ask in each. Each computation writes a line to FILE. It says how many got which value.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
import threading
import time
from collections import Counter
from multiprocessing.synchronize import Barrier
from typing import Any

from resources import say

from fencelock import AsyncClient, Client
from fencelock.flight import AsyncFlight, Flight

PAUSE = 0.3
"""Seconds: so long does it take, for others to come meanwhile."""
PATIENCE = 120


def note(file: str, key: str) -> str:
    """Leave a trace of a computation, and return who has made it."""
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, f"{key}\n".encode())
    os.close(fd)
    return f"{key} by {os.getpid()}"


def threads(url: str, file: str, key: str, stale: float, count: int) -> Counter[str]:
    results: list[str] = []

    def compute() -> str:
        time.sleep(PAUSE)
        return note(file, key)

    with Client(url) as locks, Flight(locks) as flight:

        def work() -> None:
            try:
                results.append(flight.get(key, compute, 600, stale=stale, timeout=PATIENCE))
            except Exception as error:
                results.append(repr(error))

        all_of_them = [threading.Thread(target=work) for _ in range(count)]
        for thread in all_of_them:
            thread.start()
        for thread in all_of_them:
            thread.join()
    return Counter(results)


async def tasks(url: str, file: str, key: str, stale: float, count: int) -> Counter[str]:
    async def compute() -> str:
        await asyncio.sleep(PAUSE)
        return note(file, key)

    async with AsyncClient(url) as locks, AsyncFlight(locks) as flight:
        asking = (flight.get(key, compute, 600, stale=stale, timeout=PATIENCE) for _ in range(count))
        found = await asyncio.gather(*asking, return_exceptions=True)
    return Counter(repr(one) if isinstance(one, BaseException) else one for one in found)


def member(together: Barrier, answers: Any, flavour: str, *rest: Any) -> None:
    together.wait(PATIENCE)
    try:
        answers.put(threads(*rest) if flavour == "blocking" else asyncio.run(tasks(*rest)))
    except BaseException as error:
        answers.put({repr(error): 1})


def main(url: str, file: str) -> None:
    context = multiprocessing.get_context("fork")
    Client(url).close()  # here, so that not every process has to import it
    say(ready=True)
    for line in sys.stdin:
        flavour, key, stale, processes, each = json.loads(line)
        together, answers = context.Barrier(processes), context.SimpleQueue()
        given = (together, answers, flavour, url, file, key, stale, each)
        members = [context.Process(target=member, args=given) for _ in range(processes)]
        for one in members:
            one.start()
        results: Counter[str] = Counter()
        for _ in members:
            results.update(answers.get())
        for one in members:
            one.join()
        say(results=results)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
