"""Many ask at once for what is to be done once: processes, and threads or tasks in each.

once_crowd.py URL. Each line on its input is a form, a flavour, a key, for how many seconds to wait, a number
of processes, how many ask in each, and whether somebody has begun before and not ended. It says what
everybody got.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import threading
from multiprocessing.synchronize import Barrier
from typing import Any

from databases import connected
from once_forms import perform, perform_async, store_at
from resources import say

from fencelock.idempotency import Attempt

PAUSE = 0.1
"""Seconds: so long does it take, for others to come meanwhile."""


def slowly(point: str, attempt: Attempt | None) -> float:
    return PAUSE if point == "done" else 0.0


def threads(url: str, form: str, key: str, timeout: float, count: int) -> list[Any]:
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(perform(url, form, key, slowly, timeout=timeout))
        except Exception as error:
            results.append(repr(error))

    all_of_them = [threading.Thread(target=work) for _ in range(count)]
    for thread in all_of_them:
        thread.start()
    for thread in all_of_them:
        thread.join()
    return results


async def tasks(url: str, form: str, key: str, timeout: float, count: int) -> list[Any]:
    asking = (perform_async(url, form, key, slowly, timeout=timeout) for _ in range(count))
    found = await asyncio.gather(*asking, return_exceptions=True)
    return [repr(one) if isinstance(one, BaseException) else one for one in found]


def member(together: Barrier, answers: Any, flavour: str, *rest: Any) -> None:
    together.wait(60)
    try:
        answers.put(threads(*rest) if flavour == "blocking" else asyncio.run(tasks(*rest)))
    except BaseException as error:
        answers.put([repr(error)])


def main(url: str) -> None:
    context = multiprocessing.get_context("fork")
    if not url.startswith("redis"):
        connected(url).close()  # here, so that not every process has to import it
    say(ready=True)
    for line in sys.stdin:
        form, flavour, key, timeout, processes, each, crashed = json.loads(line)
        if crashed:
            with store_at(url, 60) as store:
                begun = store.begin(key, "f")
                assert isinstance(begun, Attempt)
                store.abandon(begun)
        together, answers = context.Barrier(processes), context.SimpleQueue()
        given = (together, answers, flavour, url, form, key, timeout, each)
        members = [context.Process(target=member, args=given) for _ in range(processes)]
        for one in members:
            one.start()
        results = [result for _ in members for result in answers.get()]
        for one in members:
            one.join()
        say(results=results)


if __name__ == "__main__":
    main(sys.argv[1])
