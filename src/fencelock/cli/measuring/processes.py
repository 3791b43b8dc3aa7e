"""The race with processes: each is a `contender.py`, started here, and gone before this returns.

They have a process group each, so that Ctrl-C reaches only the command, which then closes their stdin. They
end by themselves, and give back what they have. One that does not is killed, and what it held is broken where
the backend can do that; elsewhere it expires.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from fencelock.cli.measuring.course import PATIENCE, Course
from fencelock.cli.measuring.race import GRACE, LOOK, Heat, Taken, heat, judged
from fencelock.cli.measuring.row import NotMeasured, Row
from fencelock.client import Client
from fencelock.errors import BackendUnavailable, FencelockError

__all__ = ["processes"]

COMMAND = (sys.executable, "-P", "-m", "fencelock.cli.measuring.contender")
START = 30.0
ENDING = 15.0


def processes(course: Course, key: str, title: str) -> Row:
    """Let processes race."""
    with course.blocking() as locks:
        if locks.guarantees.scope == "process":
            raise NotMeasured("a lock of this backend ends at the process")
        name, ttl = course.name(key), course.ttl(locks.guarantees)
        locks.lock(name, ttl=ttl)  # raises where there are none
        own = [f"{name}:{number}" for number in range(course.contenders)]
        crew = _Crew(course)
        try:
            with crew:
                for each in own:
                    crew.start(url=course.url, namespace=course.namespace, name=name, own=each, ttl=ttl)
                taken, times = _race(crew, course.seconds)
        finally:
            if crew.killed:
                _break(locks, [name, *own])
    return judged(key, title, taken, times)


def _race(crew: _Crew, seconds: float) -> tuple[list[list[Taken]], Heat]:
    crew.answers(START, "contenders were not ready")
    times = heat(seconds)
    crew.tell(until=times.until)
    limit = times.until - time.monotonic() + GRACE + 2 * PATIENCE
    answers = crew.answers(limit, "contenders did not end")
    return [answer["taken"] for answer in answers], times


def _break(locks: Client, names: Sequence[str]) -> None:
    for name in names:
        with contextlib.suppress(FencelockError):
            locks.force_release(name)


class _Crew:
    """The processes, from their start to their end."""

    def __init__(self, course: Course) -> None:
        self._stop = course.stop
        self._selector = selectors.DefaultSelector()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._said: list[bytes] = []
        self.killed = False

    def start(self, **told: Any) -> None:
        """Start one."""
        try:
            process = subprocess.Popen(
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:
            raise NotMeasured(f"processes cannot be started: {error.strerror}") from error
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._selector.register(process.stdout, selectors.EVENT_READ, len(self._processes))
        self._processes.append(process)
        self._said.append(b"")
        self._write(process, told)

    def tell(self, **told: Any) -> None:
        """Say something to all of them."""
        for process in self._processes:
            self._write(process, told)

    def _write(self, process: subprocess.Popen[bytes], told: dict[str, Any]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(
            BrokenPipeError
        ):  # it has ended: its answer, or that there is none, tells why
            process.stdin.write(json.dumps(told).encode() + b"\n")
            process.stdin.flush()

    def answers(self, seconds: float, otherwise: str) -> list[dict[str, Any]]:
        """Return the next answer of each."""
        until = time.monotonic() + seconds
        while not all(b"\n" in said for said in self._said):
            if self._stop:
                raise NotMeasured("interrupted")
            if time.monotonic() >= until:
                raise NotMeasured(f"{otherwise} within {seconds:.0f} s")
            for key, _ in self._selector.select(LOOK):
                self._hear(key.data)
        lines = [said.partition(b"\n") for said in self._said]
        self._said = [rest for _, _, rest in lines]
        return [_checked(json.loads(line)) for line, _, _ in lines]

    def _hear(self, number: int) -> None:
        process = self._processes[number]
        assert process.stdout is not None
        data = os.read(process.stdout.fileno(), 1 << 20)
        self._said[number] += data
        if not data:
            self._selector.unregister(process.stdout)
            if b"\n" not in self._said[number]:
                raise NotMeasured(f"a contender ended with status {process.wait(PATIENCE)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._selector.close()
        for process in self._processes:
            assert process.stdin is not None and process.stdout is not None
            process.stdout.close()  # one that still has much to say must not wait for somebody to read it
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        until = time.monotonic() + ENDING
        for process in self._processes:
            self._end(process, until)

    def _end(self, process: subprocess.Popen[bytes], until: float) -> None:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.killed = True
            process.kill()
            process.wait()


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" not in answer:
        return answer
    if answer["backend"] is not None:
        raise BackendUnavailable(backend=answer["backend"], detail=answer["error"])
    raise NotMeasured(f"a contender failed: {answer['error']}")
