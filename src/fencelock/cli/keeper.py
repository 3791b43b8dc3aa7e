"""The keeper: a small process between fencelock and CMD that sees to it that CMD ends.

    fencelock   holds the lock, renews it, gets the signals
       └─ keeper     parent of CMD; adopts and reaps whatever CMD leaves behind
             └─ CMD       leader of a process group of its own

It is forked before fencelock waits for the lock, while that process has one thread, and does
nothing until it is told to start CMD. From then on

- it ends everything that came from CMD, CMD's group and those who left it (SIGTERM, after the
  grace SIGKILL), when CMD has exited, when it is told to stop, when fencelock is gone
  (end of file on the channel: kill -9 included), and when the lease's deadline passes without
  word of a renewal, which is how a *stopped* fencelock cannot keep CMD running;
- it says "gone" when the last of them was reaped. Only then may fencelock release.

If the keeper itself is killed, the kernel kills CMD (PR_SET_PDEATHSIG), and fencelock, a
subreaper as well, ends the rest.

All signals but SIGCHLD are blocked here: those are fencelock's business.

Not promised: a process that we may not signal (sudo) is waited for, not killed. If fencelock and
the keeper are killed at the same instant, only CMD itself is certain to die. Away from Linux
there is only the process group, and nothing notices the death of the keeper.
"""

from __future__ import annotations

import math
import os
import select
import signal
from collections.abc import Callable, Sequence
from typing import NoReturn

from fencelock.cli import descendants
from fencelock.cli.become import Inherited, become
from fencelock.cli.channel import Channel
from fencelock.runtime import clock

__all__ = ["keep"]

TICK = 0.02
PATIENCE_WITH_SIGKILL = 5.0
TO_THE_GROUP = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGTSTP,
    signal.SIGCONT,
    signal.SIGWINCH,
}
"""What a terminal or a supervisor sends is for all of CMD's group; the rest is for CMD alone."""


def keep(channel: Channel, command: Sequence[str], grace: float, inherited: Inherited) -> NoReturn:
    """Be the keeper. Called in a forked child that has one thread and all signals blocked."""
    status = 1
    try:
        Keeper(channel, command, grace, inherited).run()
        status = 0
    finally:
        os._exit(status)  # nothing of the parent's clean-up is ours


class Keeper:
    """Starts CMD, ends it, reaps it."""

    def __init__(self, channel: Channel, command: Sequence[str], grace: float, inherited: Inherited) -> None:
        self.channel = channel
        self.command = command
        self.grace = grace
        self.inherited = inherited
        self.until = math.inf  # the lease's deadline, as far as we were told
        self.group = 0  # CMD's process group, once it was started
        self.leading = False  # CMD has not been reaped: nobody else can have its pid
        self.kill_at = math.inf  # finite while everything is being ended
        self.complain_at = math.inf
        self._ready: set[int] = set()
        self.adopts = descendants.adopt_orphans()
        self._wakeup = _wake_on_sigchld()

    def run(self) -> None:
        """Do as told until there is nothing left to keep."""
        while not self.channel.closed:
            self._rest(math.inf)
            if self._obey() and self.group:
                break
        if self.group:
            self._see_it_through()

    def _see_it_through(self) -> None:
        while not self._reaped():
            now = clock.now()
            if self.kill_at == math.inf and (self.channel.closed or now >= self.until):
                self._end_all(now)
            if self.channel.closed:
                # Nobody renews any more: the grace ends when the lease does.
                self.kill_at = min(self.kill_at, max(now, self.until))
            if now >= self.kill_at:
                self._kill_all(now)
            self._rest(self._next_look(clock.now()))
            self._obey()
        self.channel.send("gone")

    def _next_look(self, now: float) -> float:
        if now >= self.kill_at:
            return TICK
        return min(self.kill_at, self.until if self.kill_at == math.inf else math.inf) - now

    def _rest(self, seconds: float) -> None:
        """Sleep until something happens; wake up to look at the clock, which runs during suspend."""
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        if not self.channel.closed:
            poll.register(self.channel.fileno(), select.POLLIN)
        self._ready = {fd for fd, _ in poll.poll(1000 * min(max(seconds, 0.0), 5.0))}
        if self._wakeup in self._ready:
            os.read(self._wakeup, 4096)

    def _obey(self) -> bool:
        """Do what fencelock says, if it says anything."""
        if self.channel.closed or self.channel.fileno() not in self._ready:
            return False
        for word, value in self.channel.receive():
            if word == "start":
                self._start(value["environment"], value["terminal"], value["until"])
            elif word == "until":
                self.until = value
            elif word == "signal":
                self._pass_on(value)
            elif word == "stop" and self.kill_at == math.inf:
                self._end_all(clock.now())
        return True

    # Starting ---------------------------------------------------------------------------

    def _start(self, environment: dict[str, str], terminal: int | None, until: float) -> None:
        self.until = until
        if clock.now() >= until:
            self.channel.send("late")
            return
        failure, report = os.pipe()
        keeper = os.getpid()
        pid = os.fork()
        if pid == 0:
            become(self.command, environment, terminal, self.inherited, report, keeper)
        os.close(report)
        # End of file means that exec has happened. No signal can come between fork and exec:
        # they are passed on from here, and here we wait.
        error = os.read(failure, 16)
        os.close(failure)
        if error:
            os.waitpid(pid, 0)
            self.channel.send("failed", int(error))
            return
        self.group = pid
        self.leading = True
        self.channel.send("started", pid)

    # Signals ----------------------------------------------------------------------------

    def _pass_on(self, signum: int) -> None:
        if not self.leading:
            self._signal_all(signum)
        elif signum in TO_THE_GROUP:
            _signal(os.killpg, self.group, signum)
        else:
            _signal(os.kill, self.group, signum)

    def _signal_all(self, signum: int) -> None:
        if not self.group:
            return
        if self.leading or not self.adopts:
            _signal(os.killpg, self.group, signum)
        for process in descendants.of(os.getpid()):
            if not self.leading or process.group != self.group:
                descendants.send(process, signum)

    def _end_all(self, now: float) -> None:
        self.kill_at = now + self.grace
        self._signal_all(signal.SIGTERM)
        self._signal_all(signal.SIGCONT)  # one that is stopped cannot act on it

    def _kill_all(self, now: float) -> None:
        self._signal_all(signal.SIGKILL)
        if self.complain_at == math.inf:
            self.complain_at = now + PATIENCE_WITH_SIGKILL
        elif now >= self.complain_at > 0:
            self.complain_at = -math.inf
            self.channel.send("stuck", [process.pid for process in descendants.of(os.getpid())])

    # The end ----------------------------------------------------------------------------

    def _reaped(self) -> bool:
        """Reap what has ended; say whether nothing is left. CMD's own end begins that of the rest."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
                if pid == 0:
                    break
                self._note(pid, status)
        except ChildProcessError:
            if self.adopts or not _group_lives(self.group):
                return True
        if not self.leading and self.kill_at == math.inf:
            self._end_all(clock.now())
        return False

    def _note(self, pid: int, status: int) -> None:
        if pid != self.group or not self.leading:
            return
        if os.WIFSTOPPED(status):
            self.channel.send("stopped", os.WSTOPSIG(status))
            return
        self.leading = False
        self.channel.send("ended", status)


def _wake_on_sigchld() -> int:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    return read


def _signal(kill: Callable[[int, int], None], target: int, signum: int) -> None:
    try:
        kill(target, signum)
    except (ProcessLookupError, PermissionError):
        pass


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
