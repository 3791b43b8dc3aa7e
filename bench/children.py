"""Contestants in processes of their own, so that each has its own imports, garbage and interpreter lock.

fencelock and the limit run in the same kind of child as the peers. A child answers a number with what its
drill found; between two answers it waits in a read and costs nothing, so rounds can be interleaved.

A child that fails, or does not answer in time, is ended and left out: a failure of a peer, or of one who is
only beside, is a line below the table, anybody else's ends the suite.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench import effort
from bench.environment import NotInstalled, interpreter
from bench.measure import Contestant, Figure, Run, interleave
from bench.peers import Entry
from bench.placing import seat

__all__ = ["Child", "ChildFailed", "Field", "finished"]

ROOT = Path(__file__).parent.parent
SECONDS = 90.0
"""An answer takes no longer, or there is none."""


class ChildFailed(Exception):
    """What the child said, or that it said nothing, in one line."""


class Child:
    """A process that drills one adapter."""

    def __init__(self, python: Path, adapter: str, drill: str, url: str, options: Mapping[str, Any]) -> None:
        command = [str(python), "-m", "bench.peers.child", adapter, drill, url, json.dumps(dict(options))]
        # A session of its own: with it go the processes that it forks.
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._buffer = b""

    def tell(self, count: int) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(b"%d\n" % count)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise ChildFailed("it has ended") from None

    def has_answered(self) -> bool:
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def answer(self, seconds: float = SECONDS) -> Any:
        """Wait for the next answer."""
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = max(0.0, until - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                raise ChildFailed(f"no answer within {seconds:.0f} s")
            received = os.read(self.process.stdout.fileno(), 65536)
            if not received:
                raise ChildFailed(f"it ended with status {self.process.wait(5)}")
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\n")
        said = json.loads(line)
        if "error" in said:
            raise ChildFailed(said["error"].partition("\n")[0][:160])
        return said["answer"]

    def ask(self, count: int) -> Any:
        self.tell(count)
        return self.answer()

    def end(self) -> None:
        """Let it end by itself, or else end it, and whatever it started."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
        self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class Field:
    """The contestants of one suite, and why some of them could not take part."""

    def __init__(self, url: str, progress: Callable[[str], None], *, seated: bool = False) -> None:
        """Contend for what is at `url`; `seated`, all on one processor (see `bench.placing`)."""
        self.url = url
        self.progress = progress
        self.absent: dict[str, str] = {}
        self._seated = seated

    def start(
        self, entry: Entry, drill: str, options: Mapping[str, Any], seconds: float = SECONDS
    ) -> Child | None:
        """Return the child when it is ready, which takes no longer; None if the peer cannot take part."""
        child = None
        try:
            python = Path(sys.executable)
            if entry.environment is not None:
                python = interpreter(entry.environment, self.progress)
            if entry.drill is None:
                given = {**options, **entry.options}
                child = Child(python, entry.adapter, drill, self.url, given)
            else:
                child = Child(python, entry.adapter, entry.drill, self.url, entry.options)
            if self._seated:
                seat(child.process.pid)
            child.answer(seconds)
        except (NotInstalled, ChildFailed) as error:
            if child is not None:
                child.end()
            self.fail(entry, error)
            return None
        return child

    def fail(self, entry: Entry, error: Exception) -> None:
        if entry.role not in {"peer", "beside"}:
            raise ChildFailed(f"{entry.label}: {error}") from error
        self.absent[entry.label] = str(error)

    def take_turns(
        self,
        entries: Sequence[Entry],
        drill: str,
        *,
        rounds: int,
        count: int,
        options: Mapping[str, Any] | None = None,
    ) -> list[Figure]:
        """Interleave those who can take part; leave out those who failed on the way."""
        with self.contestants(entries, drill, options) as contestants:
            figures = interleave(contestants, rounds=rounds, count=count, progress=self.progress)
        return finished(figures)

    def collect(
        self, entries: Sequence[Entry], drill: str, *, rounds: int, count: int, options: Mapping[str, Any]
    ) -> list[Figure]:
        """Take turns with a drill that tells each of its times: a figure has them all, of all rounds."""
        order, rounds = random.Random(1), effort.rounds(rounds)
        with contextlib.ExitStack() as stack:
            children: dict[Entry, Child] = {}
            for entry in entries:
                self.progress(f"starting {entry.label}")
                child = self.start(entry, drill, options)
                if child is not None:
                    children[entry] = stack.enter_context(child)
            taken = {entry: list[float]() for entry in children}
            for number in range(rounds):
                for entry, child in order.sample(list(children.items()), len(children)):
                    self.progress(f"round {number + 1} of {rounds}: {entry.label}")
                    if entry.label in self.absent:
                        continue
                    try:
                        taken[entry] += child.ask(effort.count(count))
                    except ChildFailed as error:
                        self.fail(entry, error)
        return [
            Figure(entry.label, entry.role, times)
            for entry, times in taken.items()
            if entry.label not in self.absent
        ]

    @contextlib.contextmanager
    def contestants(
        self, entries: Sequence[Entry], drill: str, options: Mapping[str, Any] | None = None
    ) -> Iterator[list[Contestant]]:
        """Start those who can take part, and end them with the block."""
        with contextlib.ExitStack() as stack:
            contestants = []
            for entry in entries:
                self.progress(f"starting {entry.label}")
                child = self.start(entry, drill, options or {})
                if child is not None:
                    stack.enter_context(child)
                    contestants.append(self._contestant(entry, child))
            yield contestants

    def _contestant(self, entry: Entry, child: Child) -> Contestant:
        def run(count: int) -> float:
            if entry.label in self.absent:
                return math.inf
            try:
                return float(child.ask(count))
            except ChildFailed as error:
                self.fail(entry, error)
                return math.inf

        @contextlib.contextmanager
        def prepare() -> Iterator[Run]:
            yield run

        return Contestant(entry.label, prepare, entry.role)

    def notes(self) -> list[str]:
        """Say who is missing, and why; then forget it."""
        missing = self.missing()
        self.absent.clear()
        return missing

    def missing(self) -> list[str]:
        return [f"left out: {label} ({reason})" for label, reason in self.absent.items()]


def finished(figures: Sequence[Figure]) -> list[Figure]:
    """Leave out those who failed on the way."""
    return [figure for figure in figures if math.isfinite(max(figure.rounds))]
