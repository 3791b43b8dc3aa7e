"""Supervision: CMD runs while the lease is held, and is gone before the lock is free.

`Command` is the handle on the keeper (see `keeper.py`). `supervise` runs one CMD under one lease:

1. start it, with the lease in its environment;
2. pass signals on, tell the keeper of every renewal, follow the terminal's job control;
3. when the lease is lost, have everything stopped;
4. return when the keeper has reaped the last process that came from CMD.

Whoever calls it releases the lease after that, never before.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencelock.cli import descendants, status
from fencelock.cli.become import Inherited
from fencelock.cli.channel import Channel
from fencelock.cli.keeper import keep
from fencelock.cli.signals import Signals
from fencelock.cli.terminal import Terminal
from fencelock.cli.text import complain
from fencelock.lease import Lease
from fencelock.runtime import clock

__all__ = ["CannotRun", "Command", "Ending", "check_command", "supervise"]

STOPPED_BY_TERMINAL = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}


class CannotRun(Exception):
    """CMD cannot be executed; `status` is 127 if it does not exist, 126 otherwise."""

    def __init__(self, command: str, number: int) -> None:
        super().__init__(f"cannot run {command!r}: {os.strerror(number).lower()}")
        self.status = status.NOT_FOUND if number == errno.ENOENT else status.NOT_EXECUTABLE


@dataclass(frozen=True, slots=True)
class Ending:
    """How a CMD ended."""

    status: int
    """Its exit status, 128+n if a signal ended it."""
    stopped: bool
    """Whether it was stopped because the lease was lost."""
    asked: int
    """The last signal passed on to it that asks a program to end, or 0."""
    interrupted: int
    """The signal of the terminal (Ctrl-C, Ctrl-\\) that ended it, or 0."""


def check_command(command: str) -> None:
    """Raise `CannotRun` for what can be seen without running it, before anyone waits for anything."""
    if "/" in command:
        there = [path for path in (Path(command),) if path.exists()]
    else:
        folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
        there = [path for folder in folders if (path := Path(folder, command)).is_file()]
    if not there:
        raise CannotRun(command, errno.ENOENT)
    if not any(path.is_file() and os.access(path, os.X_OK) for path in there):
        raise CannotRun(command, errno.EACCES)


class Command:
    """CMD and its keeper, seen from the process that holds the lock."""

    def __init__(self, command: Sequence[str], grace: float, signals: Signals) -> None:
        """Fork the keeper. Call it while this process has one thread."""
        self.command = command
        ours, theirs = socket.socketpair()
        every = signal.valid_signals()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, every)
        try:
            self._keeper = os.fork()
            if self._keeper == 0:
                ours.close()  # or the end of this process would be no end of file
                keep(Channel(theirs), command, grace, Inherited(mask, signals.handled))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()
        self.channel = Channel(ours)
        self.early: list[tuple[str, Any]] = []
        """What the keeper said in one breath with its answer to `start`."""

    def start(self, environment: Mapping[str, str], terminal: int | None, until: float) -> int | None:
        """Start CMD and return its pid and group; `None` if the lease was over by then."""
        self.channel.send("start", {"environment": dict(environment), "terminal": terminal, "until": until})
        while not self.early and not self.channel.closed:
            self.early = self.channel.receive()
        if not self.early:
            raise RuntimeError("the process that keeps the command has died")
        word, value = self.early.pop(0)
        if word == "failed":
            raise CannotRun(self.command[0], value)
        return int(value) if word == "started" else None

    def close(self) -> None:
        """Let the keeper go; whatever it kept is gone when this returns."""
        self.channel.close()
        try:
            os.waitpid(self._keeper, 0)
        except ChildProcessError:
            pass  # reaped with the rest, after it had been killed


def supervise(lease: Lease, command: Command, signals: Signals, terminal: Terminal) -> Ending:
    """Run CMD under a lease and return when it and all that came from it are gone."""
    return Supervisor(lease, command, signals, terminal).run()


class Supervisor:
    """One CMD under one lease."""

    def __init__(self, lease: Lease, command: Command, signals: Signals, terminal: Terminal) -> None:
        self.lease = lease
        self.channel = command.channel
        self.command = command
        self.signals = signals
        self.terminal = terminal
        self.pid = 0
        self.wait_status: int | None = None
        self.stopped = False
        self.asked = 0
        self.gone = False
        self.interrupted = 0

    def run(self) -> Ending:
        try:
            with self.signals.passing_on():
                self._start()
                for word, value in self.command.early:
                    self._hear(word, value)
                while not self.gone:
                    self._step()
        finally:
            self.terminal.take_back()
        return Ending(self._status(), self.stopped, self.asked, self.interrupted)

    def _start(self) -> None:
        lease = self.lease
        environment = {
            "FENCELOCK_NAME": lease.name,
            "FENCELOCK_TOKEN": str(lease.token),
            "FENCELOCK_OWNER": lease.owner,
        }
        pid = self.command.start(environment, self.terminal.for_start(), self._deadline())
        if pid is None:
            self.gone = self.stopped = True
            return
        self.pid = pid
        # Should the keeper be killed, what it kept becomes ours.
        descendants.adopt_orphans()

    def _step(self) -> None:
        # Often enough that the keeper's idea of the deadline is never older than half a ttl.
        pause = max(0.02, min(self.lease.ttl / 6, self.lease.remaining() or 1.0, 5.0))
        channel = self.channel.fileno()
        ready, _, _ = select.select([self.signals.fileno(), channel], [], [], pause)
        if channel in ready:
            for word, value in self.channel.receive():
                self._hear(word, value)
            if self.channel.closed and not self.gone:
                self._keeper_died()
        if not self.gone:
            self._look_at_lease()  # first: SIGCONT must not revive what is to be stopped
        for signum in self.signals.take():
            self._signal(signum)

    def _look_at_lease(self) -> None:
        if self.lease.is_held():
            self.channel.send("until", self._deadline())
        elif not self.stopped:
            self.stopped = True
            complain(f"{self._why_lost()}: stopping the command")
            self.channel.send("stop")

    def _why_lost(self) -> str:
        lost = self.lease._lost()
        return str(lost) if lost is not None else f"lease on {self.lease.name!r} was lost"

    def _deadline(self) -> float:
        return clock.now() + self.lease.remaining()

    def _hear(self, word: str, value: Any) -> None:
        if word == "ended":
            self.wait_status = int(value)
            if self.terminal.given and os.WIFSIGNALED(self.wait_status):
                self._note_interrupt(os.WTERMSIG(self.wait_status))
        elif word == "stopped":
            self._suspend(int(value))
        elif word == "stuck":
            pids = ", ".join(str(pid) for pid in value)
            complain(f"SIGKILL does not end process {pids}: waiting for it, the lock stays taken")
        elif word == "gone":
            self.gone = True

    def _signal(self, signum: int) -> None:
        if signum == signal.SIGCONT and self.pid:
            self.terminal.give(self.pid)
        if signum in {signal.SIGINT, signal.SIGTERM, signal.SIGQUIT}:
            self.asked = signum
        self.channel.send("signal", signum)

    def _keeper_died(self) -> None:
        complain("the process that keeps the command was killed: ending the command")
        descendants.end_children()
        self.gone = True

    def _status(self) -> int:
        if self.wait_status is None:  # never started, or the kernel ended it along with its keeper
            return status.by_signal(signal.SIGKILL)
        code = os.waitstatus_to_exitcode(self.wait_status)
        return code if code >= 0 else status.by_signal(-code)

    # Job control ------------------------------------------------------------------------

    def _suspend(self, signum: int) -> None:
        """CMD was stopped. If the terminal did it, the whole job is to stop, until it is continued."""
        if signum not in STOPPED_BY_TERMINAL or not self.terminal.exists:
            return
        if signum != signal.SIGTSTP and self.terminal.give(self.pid):
            self.channel.send("signal", int(signal.SIGCONT))
            return
        self.terminal.take_back()
        with self.signals.suspended(signum):
            os.killpg(0, signum)
            # The stop may come a moment late, on another thread. If it does not come at all there
            # is no shell that could continue us (an orphaned group), and CMD had better go on.
            time.sleep(0.1)
        if self.lease.is_held():
            self.terminal.give(self.pid)
            self.channel.send("signal", int(signal.SIGCONT))

    def _note_interrupt(self, signum: int) -> None:
        if signum in {signal.SIGINT, signal.SIGQUIT} and signum != self.asked:
            self.interrupted = signum
