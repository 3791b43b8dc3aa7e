"""The terminal: CMD has a process group of its own, so it must be given the foreground to read.

fencelock gives it before CMD starts when CMD would read from the terminal and fencelock itself
stands in the foreground, and takes it back in the end. Not when stdout is a pipe: in
`fencelock run … | less` it is the pager that needs the terminal. If CMD then wants it all the same
(a password prompt), the kernel stops it with SIGTTIN, and it is given the terminal at that
moment.
"""

from __future__ import annotations

import os
import signal
import stat

__all__ = ["Terminal"]


class Terminal:
    """The controlling terminal of this process, if there is one."""

    def __init__(self) -> None:
        self._given = False
        try:
            self._fd: int | None = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        except OSError:
            self._fd = None

    @property
    def exists(self) -> bool:
        """Whether there is a terminal at all."""
        return self._fd is not None

    @property
    def given(self) -> bool:
        """Whether CMD has it."""
        return self._given

    def for_start(self) -> int | None:
        """Return the terminal that CMD is to take when it starts, if it should have it."""
        if self.is_ours() and os.isatty(0) and not _is_pipe(1):
            self._given = True
            return self._fd
        return None

    def is_ours(self) -> bool:
        """Whether this process stands in the foreground."""
        return self._foreground() == os.getpgrp()

    def give(self, group: int) -> bool:
        """Give the terminal to CMD if it is ours to give; say whether it was."""
        if not self.is_ours():
            return False
        self._set(group)
        self._given = True
        return True

    def take_back(self) -> bool:
        """Take back what was given; say whether it was."""
        given, self._given = self._given, False
        if given and not self.is_ours():
            self._set(os.getpgrp())
        return given

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _foreground(self) -> int | None:
        if self._fd is None:
            return None
        try:
            return os.tcgetpgrp(self._fd)
        except OSError:
            return None

    def _set(self, group: int) -> None:
        assert self._fd is not None
        # Whoever is not in the foreground is stopped by SIGTTOU for this, unless it is blocked.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            os.tcsetpgrp(self._fd, group)
        except OSError:
            pass  # hung up, or the group is gone
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_pipe(fd: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False
