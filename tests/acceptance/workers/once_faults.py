"""What is to be done once, by processes that are killed or stopped in the middle.

once_faults.py URL. Each line on its input is one of

    killed FORM FLAVOUR KEY POINT    a process is killed at that point of `once_forms`, another comes after it
    chaos FORM FLAVOUR PREFIX JOBS   processes do jobs and are killed at any moment, until so many kills
          KILLS                      have struck in the middle of one; then one does what is left
    paused FORM FLAVOUR KEY          a process is stopped when it has done it, longer than its ttl; another
                                     takes over and is stopped as well; then the first goes on, then the other

and it says what was seen.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from databases import connected
from once_forms import performed, store_at, traces
from resources import say

from fencelock import StaleToken
from fencelock.idempotency import Attempt, InProgress

CONTEXT = multiprocessing.get_context("fork")
TTL = 0.3
MOMENT = 0.003
PATIENCE = 30.0


class Child:
    """A process that does something, and tells what it comes to see."""

    def __init__(self, work: Callable[[Callable[[Any], None]], Any]) -> None:
        self._said, mouth = CONTEXT.Pipe(duplex=False)  # what was sent is out, whatever happens next
        self.process = CONTEXT.Process(target=self._run, args=(work, mouth.send))
        self.process.start()
        mouth.close()

    @staticmethod
    def _run(work: Callable[[Callable[[Any], None]], Any], put: Callable[[Any], None]) -> None:
        try:
            put(("end", work(put)))
        except StaleToken as error:
            put(("stale", error.newest))
        except BaseException as error:
            put(("error", repr(error)))

    def hear(self) -> Any:
        return self._said.recv() if self._said.poll(PATIENCE) else ("error", "it says nothing")

    def send(self, signum: int) -> None:
        os.kill(self.process.pid or 0, signum)

    def stopped(self) -> Any:
        """Return what it says before it stops itself, once it stands still."""
        said = self.hear()
        os.waitpid(self.process.pid or 0, os.WUNTRACED)
        return said

    def left(self) -> list[Any]:
        """Return all that it says up to its end."""
        found = []
        with suppress(EOFError):
            while self._said.poll(PATIENCE):
                found.append(self._said.recv())
        self.process.join(PATIENCE)
        return found


def killed(url: str, form: str, flavour: str, key: str, point: str) -> dict[str, Any]:
    def die(put: Callable[[Any], None]) -> Any:
        def at(now: str, attempt: Attempt | None) -> float:
            if attempt is not None:
                put(attempt.token)
            if now == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return 0.0

        return performed(url, form, flavour, key, at, ttl=TTL)

    def live(put: Callable[[Any], None]) -> Any:
        def at(now: str, attempt: Attempt | None) -> float:
            if now == "begun":
                put((attempt.tries, attempt.token) if attempt is not None else (1, 0))
            return 0.0

        return performed(url, form, flavour, key, at)

    first = Child(die)
    tokens = first.left()
    seen = {"status": first.process.exitcode, "token": max(tokens, default=0), "left": traces(url, key)}
    if form != "once":
        seen["crashed"] = _crashed(url, wanted=point != "kept")
    second = Child(live).left()
    return {**seen, "second": second, "traces": traces(url, key)}


def _crashed(url: str, *, wanted: bool) -> list[int]:
    """Return the tries of attempts that did not end, when their time is over; wait if one must come."""
    time.sleep(TTL)
    until = time.monotonic() + PATIENCE
    with store_at(url, TTL) as store:
        while wanted and not store.crashed() and time.monotonic() < until:
            time.sleep(0.02)
        return [one.tries for one in store.crashed()]


def chaos(url: str, form: str, flavour: str, prefix: str, jobs: int, kills: int) -> dict[str, Any]:
    chance = random.Random(f"{form} {flavour}")
    names = [f"{prefix}-{number}" for number in range(jobs)]
    struck = 0
    until = time.monotonic() + 90 + 3 * kills
    while struck < kills and time.monotonic() < until:
        middle = [CONTEXT.Value("i", 0, lock=False) for _ in range(2)]
        crew = [Child(_worker(url, form, flavour, _mixed(names, chance), value)) for value in middle]
        if chance.random() < 0.5:  # else at any moment, its start included
            _until_begun(middle)
        time.sleep(chance.random() * 0.12)
        for child, value in zip(crew, middle, strict=True):
            child.send(signal.SIGKILL)
            child.process.join()
            struck += value.value
        if all(traces(url, name) for name in names):  # all are done: new ones
            names += [f"{prefix}-{len(names) + number}" for number in range(jobs)]
    told = []
    for _ in range(2):
        (last,) = Child(_worker(url, form, flavour, names, CONTEXT.Value("i", 0, lock=False))).left()
        told.append(last)
    counts = [traces(url, name) for name in names]
    return {"struck": struck, "jobs": len(names), "told": told, "counts": counts}


def _until_begun(middle: list[Any]) -> None:
    """Wait until one is at it: on a busy machine a process may take a second to get there."""
    until = time.monotonic() + 5
    while not any(value.value for value in middle) and time.monotonic() < until:
        time.sleep(0.001)


def _mixed(names: list[str], chance: random.Random) -> list[str]:
    return chance.sample(names, len(names))


def _worker(url: str, form: str, flavour: str, names: list[str], middle: Any) -> Callable[..., Any]:
    def work(put: Callable[[Any], None]) -> dict[str, Any]:
        def at(now: str, attempt: Attempt | None) -> float:
            is_over = now == ("committed" if form == "once" else "kept")
            middle.value = 0 if is_over else 1
            return MOMENT

        results: dict[str, Any] = {}
        until = time.monotonic() + PATIENCE
        while len(results) < len(names) and time.monotonic() < until:
            for name in names:
                if name not in results:
                    with suppress(InProgress):
                        found = performed(url, form, flavour, name, at, ttl=TTL, timeout=0)
                        middle.value = 0
                        if found != 409:
                            results[name] = found
            time.sleep(0.01)
        return results

    return work


def paused(url: str, form: str, flavour: str, key: str) -> dict[str, Any]:
    def stop(ttl: float) -> Callable[..., Any]:
        def work(put: Callable[[Any], None]) -> Any:
            def at(now: str, attempt: Attempt | None) -> float:
                if now == "done" and attempt is not None:
                    put((attempt.tries, attempt.token))
                    os.kill(os.getpid(), signal.SIGSTOP)
                return 0.0

            return performed(url, form, flavour, key, at, ttl=ttl)

        return work

    first = Child(stop(TTL))
    begun = first.stopped()
    second = Child(stop(60.0))
    taken = second.stopped()
    first.send(signal.SIGCONT)
    late = first.hear()
    second.send(signal.SIGCONT)
    kept = second.hear()
    for child in (first, second):
        child.process.join(PATIENCE)
    after = performed(url, form, flavour, key, lambda *_: 0.0)
    return {"begun": begun, "taken": taken, "late": late, "kept": kept, "after": after}


FAULTS: dict[str, Callable[..., dict[str, Any]]] = {"killed": killed, "chaos": chaos, "paused": paused}


def main(url: str) -> None:
    if not url.startswith("redis"):
        connected(url).close()  # here, so that not every process has to import it
    say(ready=True)
    for line in sys.stdin:
        fault, *given = json.loads(line)
        say(**FAULTS[fault](url, *given))


if __name__ == "__main__":
    main(sys.argv[1])
