"""Running a command for the ticks of a schedule: what `cron` and `once` have in common.

Each tick is one `hold_and_run`, with a client of its own: the keeper is forked while there are no threads.
The record says that the tick has begun before CMD is started, and how it went when nothing is left of CMD and
before the lock is given back. When `at_most_for` is over the lease counts as lost, and CMD is stopped as on
any loss.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from fencelock.cli.holding import Hold, hold_and_run
from fencelock.cli.signals import Interrupted, Signals
from fencelock.cli.supervise import CannotRun, Command, Ending
from fencelock.client import Client
from fencelock.lease import Lease
from fencelock.runtime import clock
from fencelock.runtime.blocking import run
from fencelock.schedule import Schedule
from fencelock.schedule.plan import Plan
from fencelock.schedule.records import CRASHED, DONE, FAILED
from fencelock.schedule.turns import Turn, Turns

__all__ = ["LONGEST_REST", "NotNow", "Set", "Ticker", "Waiting"]

LONGEST_REST = 5.0


class NotNow(Exception):
    """Nothing is due any more, or somebody else has the lock."""


class Waiting:
    """Pauses that a signal ends."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._asked = 0

    async def pause(self, seconds: float) -> None:
        """Wait, or less if a signal asks this process to end."""
        until = clock.now() + seconds
        while not self._asked and (left := until - clock.now()) > 0:
            select.select([self._signals.fileno()], [], [], left)
            for signum in self._signals.take():
                self._asked = signum if signum in self._signals.ending else self._asked

    def check(self) -> None:
        """Raise `Interrupted` if a signal came."""
        if self._asked:
            raise Interrupted(self._asked)

    def rest(self, seconds: float) -> None:
        """Wait by the time of day, which may be set; raise `Interrupted` if a signal comes."""
        until = time.time() + seconds
        while (left := min(until - time.time(), seconds)) > 0:
            run(self.pause(min(left, LONGEST_REST)))
            self.check()
        self.check()


class Set(NamedTuple):
    """A client that was not used yet, and the turns of one schedule on it."""

    locks: Client
    schedule: Schedule
    turns: Turns


class TickCommand(Command):
    """A command that is told its tick."""

    extra: Mapping[str, str]

    def start(self, environment: Mapping[str, str], terminal: int | None, until: float) -> int | None:
        return super().start({**environment, **self.extra}, terminal, until)


class Ticker:
    """Runs a command for the ticks of one schedule."""

    def __init__(
        self, command: Sequence[str], grace: float, signals: Signals, make: Callable[[], Set]
    ) -> None:
        self._command = command
        self._grace = grace
        self._signals = signals
        self._make = make
        self._seen: dict[tuple[int, int], float] = {}
        self._retry: int | None = None
        self._turn: Turn | None = None
        self._timer: threading.Timer | None = None

    def check(self) -> None:
        """Raise what is wrong with the options, before anybody waits. Nothing is opened."""
        made = self._make()
        made.locks.close()

    def look(self, *, retry_failed: bool = False) -> Plan:
        """Say what is due. What it opens is closed again: no thread is left."""
        made = self._made()
        with made.locks, closing(made.schedule), self._signals.interrupting():
            todo = run(made.turns.look(retry_failed=retry_failed))
        self._retry = made.turns.retry
        return todo

    def run(self) -> Hold:
        """Run CMD for the tick that is due. Raises `NotNow`, `CannotRun` and `Interrupted`."""
        made = self._made()
        commands: list[TickCommand] = []

        def command(words: Sequence[str], grace: float, signals: Signals) -> Command:
            commands.append(TickCommand(words, grace, signals))
            return commands[0]

        def acquire() -> Lease:
            turn = self._turn = run(made.turns.take())
            if turn is None:
                raise NotNow
            commands[0].extra = {"FENCELOCK_TICK": str(turn.run.tick)}
            self._start_timer(made.turns, turn)
            lease: Lease = turn.lease
            return lease

        with closing(made.schedule):
            return hold_and_run(
                self._command,
                self._grace,
                self._signals,
                made.locks,
                acquire,
                make=command,
                ended=lambda ending: self._ended(made.turns, ending),
            )

    def _made(self) -> Set:
        made = self._make()
        made.turns.seen = self._seen
        made.turns.retry = self._retry
        return made

    def _start_timer(self, turns: Turns, turn: Turn) -> None:
        if turns.policy.at_most_for is None:
            return

        def expire() -> None:
            run(turns.expire(turn))
            self._signals.nudge()

        self._timer = threading.Timer(turns.policy.at_most_for, expire)
        self._timer.daemon = True
        self._timer.start()

    def _ended(self, turns: Turns, ending: Ending | BaseException) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._timer = None
        assert self._turn is not None
        exit_status = None
        if isinstance(ending, CannotRun):
            state, detail, exit_status = FAILED, str(ending), ending.status
        elif isinstance(ending, BaseException):
            run(turns.withdraw(self._turn))  # a signal came before CMD was started: another host may run it
            return
        elif ending.stopped:
            state, detail = CRASHED, "the lease was lost"
        elif ending.status == 0:
            state, detail = DONE, ""
        else:
            state, detail, exit_status = FAILED, f"exit status {ending.status}", ending.status
        run(turns.conclude(self._turn, state, detail, exit_status))
