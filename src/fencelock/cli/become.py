"""Becoming CMD: what happens between fork and exec.

The child starts with every signal blocked. It joins a group of its own, asks the kernel to be
killed should its parent die, takes the terminal if it is to have it, gets the default
actions of signals back, unblocks them, and executes CMD. What fails is reported by a pipe that
exec closes: end of file means success.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

from fencelock.cli import descendants

__all__ = ["Inherited", "become"]


class Inherited(NamedTuple):
    """What CMD is to have of the process that started fencelock."""

    mask: Iterable[int]
    """The signals that were blocked."""
    handled: Iterable[int]
    """The signals that fencelock handles, or Python ignores: CMD gets their defaults."""


def become(
    command: Sequence[str],
    environment: dict[str, str],
    terminal: int | None,
    inherited: Inherited,
    report: int,
    keeper: int,
) -> NoReturn:
    """In the forked child: become CMD, or report why that is impossible."""
    try:
        os.setpgid(0, 0)
        if descendants.die_with_parent(signal.SIGKILL) and os.getppid() != keeper:
            os._exit(1)  # the keeper died before we asked
        if terminal is not None:
            _take_terminal(terminal)
        signal.set_wakeup_fd(-1)
        for signum in {*inherited.handled, signal.SIGCHLD}:
            signal.signal(signum, signal.SIG_DFL)
        # What arrived since the fork is delivered now, to the default that CMD starts with.
        signal.pthread_sigmask(signal.SIG_SETMASK, inherited.mask)
        _execute(command, {**os.environ, **environment})
    except OSError as error:
        os.write(report, str(error.errno or errno.EIO).encode())
    finally:
        os._exit(127)


def _take_terminal(terminal: int) -> None:
    try:
        os.tcsetpgrp(terminal, os.getpid())  # SIGTTOU is blocked here
    except OSError:
        pass  # no terminal any more: CMD will notice by itself


def _execute(command: Sequence[str], environment: dict[str, str]) -> None:
    try:
        os.execvpe(command[0], list(command), environment)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without a #! line: run it as execvp(3) does.
    import shutil

    path = shutil.which(command[0]) or command[0]
    os.execve("/bin/sh", ["/bin/sh", path, *command[1:]], environment)
