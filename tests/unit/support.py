"""What the unit tests share: waiting for something, children that report, cancelling at a chosen await."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
import time
import traceback
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any


def until(happened: Callable[[], object], seconds: float = 10.0) -> bool:
    """Wait for something; say whether it came true."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


async def until_async(happened: Callable[[], object], seconds: float = 10.0) -> bool:
    """Wait for something under asyncio; say whether it came true."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.002)
    return True


def fork() -> int:
    """`os.fork`, in a process that may have threads: that is what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_fork(body: Callable[[], Any]) -> Any:
    """Fork; run `body` in the child; return what it returned there, by way of JSON."""
    read, write = os.pipe()
    pid = fork()
    if pid == 0:
        try:
            answer: Any = {"ok": body()}
        except BaseException:
            answer = {"error": traceback.format_exc()}
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    answer = json.loads(told)
    assert "error" not in answer, answer["error"]
    return answer["ok"]


def in_process(code: str, *arguments: str, env: dict[str, str] | None = None) -> str:
    """Run a script in a fresh interpreter and return what it printed; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=None if env is None else {**os.environ, **env},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class CancelAt:
    """Awaits a coroutine and cancels the task at its `k`-th suspension.

    `late` cancels at the moment when what it waits for is already done: the result is there,
    and the task never sees it. `reached` says whether there was such a suspension.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], k: int, *, late: bool) -> None:
        self.coroutine = coroutine
        self.k = k
        self.late = late
        self.reached = False

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        step = self.coroutine.send
        argument: Any = None
        for count in range(1_000_000):
            try:
                future = step(argument)
            except StopIteration as done:
                return done.value
            if count == self.k:
                self.reached = True
                if self.late and future is not None:
                    future.add_done_callback(lambda _: task.cancel())
                else:
                    task.cancel()
            try:
                argument = yield future
                step = self.coroutine.send
            except BaseException as error:
                argument = error
                step = self.coroutine.throw
        return None


async def cancelled_everywhere(
    attempt: Callable[[], Coroutine[Any, Any, Any]], check: Callable[[], Awaitable[None]]
) -> int:
    """Cancel `attempt` at each of its suspensions in turn, early and late; `check` after each.

    Returns how many places there were.
    """
    places = 0
    for late in (False, True):
        for k in range(1_000):
            work = CancelAt(attempt(), k, late=late)

            async def main(work: CancelAt = work) -> None:
                await work

            task = asyncio.create_task(main())
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            if not work.reached:
                assert outcome is None, outcome
                break
            places += 1
            assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome
            del task, outcome, work, main  # their traceback would keep leases alive
            await check()
    return places


def in_forks(count: int, body: Callable[[int], Any]) -> list[Any]:
    """Fork `count` children that run `body(number)` all at once; return their answers."""
    start_read, start_write = os.pipe()
    children = []
    for number in range(count):
        read, write = os.pipe()
        pid = fork()
        if pid == 0:
            try:
                os.close(start_write)
                os.read(start_read, 1)  # returns when the parent closes its end
                answer: Any = {"ok": body(number)}
            except BaseException:
                answer = {"error": traceback.format_exc()}
            os.write(write, json.dumps(answer).encode())
            os._exit(0)
        os.close(write)
        children.append((pid, read))
    os.close(start_read)
    os.close(start_write)
    answers = []
    for pid, read in children:
        with os.fdopen(read, "rb") as pipe:
            told = pipe.read()
        os.waitpid(pid, 0)
        answers.append(json.loads(told))
    errors = [answer["error"] for answer in answers if "error" in answer]
    assert not errors, errors[0]
    return [answer["ok"] for answer in answers]
