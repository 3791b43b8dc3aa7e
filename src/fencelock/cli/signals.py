"""Signals: none is lost, and none interrupts what must not be interrupted.

While fencelock waits for the lock, a signal that would end a process ends the wait: the handler
raises `Interrupted` in the middle of it, once, and the library takes the request back. At any
other time a signal is only written down, in a pipe that the interpreter's C handler fills, and
`take` returns it. Two signals of a kind that come before it is asked may count as one, as
everywhere in Unix.

A signal that is ignored when fencelock starts (nohup, a background job of a script) stays
ignored, for CMD as well.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupted", "Signals"]

NOT_OURS = {
    # What the kernel sends for a fault of ours, and what Python ignores.
    *(signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS),
    *(signal.SIGTRAP, signal.SIGPIPE, signal.SIGXFSZ),
    # What cannot be caught, and what is about children.
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD),
}
QUIET = {signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
JOB_CONTROL = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}


Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers


class Interrupted(BaseException):
    """A signal ended the wait."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class Signals:
    """The signals of this process, from `with` to its end. Only for the main thread."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self.ending: set[int] = {*(signal.valid_signals() - NOT_OURS - QUIET - JOB_CONTROL)}
        """The signals that end a process unless it says otherwise."""
        self._before: dict[int, Handler] = {}
        self._raising = False

    def __enter__(self) -> Self:
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._handle(self.ending)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(-1)
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        # A thread may still want to nudge: it must not write to whatever gets this number next.
        read, write, self._write = self._read, self._write, -1
        os.close(read)
        os.close(write)

    @property
    def handled(self) -> set[int]:
        """The signals whose default this process has replaced."""
        return {*self._before, *IGNORED_BY_PYTHON}

    @contextmanager
    def passing_on(self) -> Iterator[None]:
        """Within it, take those signals too that do not end a process: CMD is there to get them."""
        self._handle(QUIET | JOB_CONTROL)
        try:
            yield
        finally:
            for signum in (QUIET | JOB_CONTROL) & self._before.keys():
                signal.signal(signum, self._before.pop(signum))

    def fileno(self) -> int:
        return self._read

    def take(self) -> list[int]:
        """Return the signals that have arrived, in order, without those of `nudge`."""
        try:
            return [signum for signum in os.read(self._read, 4096) if signum]
        except BlockingIOError:
            return []

    def nudge(self) -> None:
        """Wake up whoever waits for signals. For any thread."""
        try:
            os.write(self._write, b"\0")
        except OSError:
            pass  # full, so it is awake; or closed, so nobody waits

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Within it, the first signal that would end the process raises `Interrupted`."""
        self._raising = True
        try:
            yield
        finally:
            self._raising = False

    @contextmanager
    def suspended(self, signum: int) -> Iterator[None]:
        """Within it, a signal of job control does to this process what it does by default."""
        before = signal.signal(signum, signal.SIG_DFL)
        try:
            yield
        finally:
            signal.signal(signum, before)

    def _handle(self, signums: Iterable[int]) -> None:
        for signum in signums:
            before = signal.getsignal(signum)
            if before is not signal.SIG_IGN and before is not None and signum not in self._before:
                self._before[signum] = before
                signal.signal(signum, self._arrived)

    def _arrived(self, signum: int, frame: FrameType | None) -> None:
        # One exception only: another would interrupt the clean-up that the first one has begun.
        if self._raising and signum in self.ending:
            self._raising = False
            raise Interrupted(signum)
