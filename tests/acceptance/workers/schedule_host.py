"""A host with a schedule, whose clock is wrong.

    schedule_host.py URL FLAVOUR SHIFT MODE OPTIONS

The clock is SHIFT seconds ahead. MODE `beat` runs a tick each second until SIGTERM and writes every run to
the file in OPTIONS; `once` runs today's tick, says so, and waits in the middle of it for a line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from fencelock import AsyncClient, Client
from fencelock.schedule import AsyncSchedule, Schedule

DAY = 86_400


def say(**words: Any) -> None:
    print(json.dumps(words), flush=True)


def note(file: str, tick: Any) -> None:
    """Write down what was run. One write at the end of a file is not torn apart."""
    line = json.dumps({"tick": tick.instant, "token": tick.token, "pid": os.getpid()}) + "\n"
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, line.encode())
    os.close(handle)


def blocking(url: str, shift: float, mode: str, options: dict[str, Any]) -> None:
    with Client(url) as locks, Schedule(locks, ttl=options["ttl"]) as schedule:
        schedule._wall = lambda: time.time() + shift
        if mode == "beat":
            schedule.every(1, name="beat", catch_up="all", catch_up_limit=10_000)(
                lambda tick: note(options["file"], tick)
            )
            say(ready=True)
            schedule.run()
            return

        def work(tick: Any) -> None:
            note(options["file"], tick)
            say(begun=tick.instant, attempt=tick.attempt, token=tick.token)
            sys.stdin.readline()

        run = schedule.once("job", work, per=DAY, at_most_for=options["at_most_for"])
        say(run=None if run is None else run.state)


async def asynchronous(url: str, shift: float, mode: str, options: dict[str, Any]) -> None:
    async with AsyncClient(url) as locks, AsyncSchedule(locks, ttl=options["ttl"]) as schedule:
        schedule._wall = lambda: time.time() + shift
        if mode == "beat":

            @schedule.every(1, name="beat", catch_up="all", catch_up_limit=10_000)
            async def beat(tick: Any) -> None:
                note(options["file"], tick)

            say(ready=True)
            await schedule.run()
            return

        async def work(tick: Any) -> None:
            note(options["file"], tick)
            say(begun=tick.instant, attempt=tick.attempt, token=tick.token)
            await asyncio.to_thread(sys.stdin.readline)

        run = await schedule.once("job", work, per=DAY, at_most_for=options["at_most_for"])
        say(run=None if run is None else run.state)


def main() -> None:
    url, flavour, shift, mode, options = sys.argv[1:]
    if flavour == "blocking":
        blocking(url, float(shift), mode, json.loads(options))
    else:
        asyncio.run(asynchronous(url, float(shift), mode, json.loads(options)))


if __name__ == "__main__":
    main()
