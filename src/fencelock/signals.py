"""`release_on_exit`: a signal that ends the program lets the program release its locks first.

By default SIGTERM ends a process at once: no block is left, and its locks stay held until their ttl ends.
The handler that is installed here turns the signal into an exception. The process dies of it afterwards:

1. The handler calls the handler that was there before, if that is a function. Then it raises `SystemExit` in
   the main thread: `with` and `finally` blocks unwind. While an event loop runs there, a callback of the loop
   raises it: `asyncio.run` cancels its tasks, and their blocks unwind.
2. When nothing catches the exception, the interpreter reads its `code`, with no Python frame left. Only then
   is the program known to end, and the last step is registered. A program that catches the exception goes on.
3. Python waits for its other threads, then runs the exit hooks, newest first. The last step is the newest. It
   runs all others (fencelock's own releases what open clients hold, `logging` flushes), flushes the standard
   streams and sends the signal again, with its default action. The parent process sees death by that signal.

Not promised: anything after SIGKILL; a prompt end while C code does not return, a coroutine does not await or
another thread goes on; blocks of daemon threads, which end in the middle of what they do.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from types import FrameType
from typing import Any

from fencelock.errors import ConfigurationError
from fencelock.names import shown

__all__ = ["release_on_exit"]

UNCATCHABLE = {signal.SIGKILL, signal.SIGSTOP}

_ending: tuple[int, signal.Signals] | None = None
"""The process that is certain to end, and the signal that it dies of. A forked child has its own end."""


def release_on_exit(signals: Iterable[str | signal.Signals] = ("SIGTERM",)) -> None:
    """Let these signals end the program by `SystemExit`, so that its blocks release their locks.

    The process then dies of the signal, as it would have without this call. A handler that is a function is
    called first. A signal that is ignored stays ignored, and SIGINT is left to Python's own handler, which
    raises `KeyboardInterrupt`. Call it on the main thread, before a lock is taken; a second call is harmless.

    Example: `fencelock.release_on_exit(("SIGTERM", "SIGHUP"))`
    """
    wanted = _checked(signals)
    thread = threading.current_thread()
    if thread is not threading.main_thread():
        raise ConfigurationError(
            f"release_on_exit() was called on thread {thread.name!r}: call it on the main thread"
        )
    for each in wanted:
        previous = signal.getsignal(each)
        if previous is None or previous in (signal.SIG_IGN, signal.default_int_handler):
            continue  # None: a handler that was not installed from Python, so nothing here could call it
        if not isinstance(previous, ChainedHandler):
            signal.signal(each, ChainedHandler(previous))


def _checked(signals: Iterable[str | signal.Signals]) -> list[signal.Signals]:
    if isinstance(signals, str | bytes) or not isinstance(signals, Iterable):
        raise ConfigurationError(
            f"signals={shown(signals)} is not a tuple of signals: give one, such as ('SIGTERM',)"
        )
    wanted = [_signal(each) for each in signals]
    if not wanted:
        raise ConfigurationError("signals is empty: name at least one signal, such as 'SIGTERM'")
    return wanted


def _signal(given: object) -> signal.Signals:
    found = given if isinstance(given, signal.Signals) else None
    if isinstance(given, str):
        members = signal.Signals.__members__
        found = members.get(given) or members.get(f"SIG{given}")
    if found is None:
        raise ConfigurationError(f"signal {shown(given)} is unknown here: give a name such as 'SIGTERM'")
    if found in UNCATCHABLE:
        raise ConfigurationError(
            f"signal {found.name} cannot be caught: leave it out, the ttl frees the locks of a killed process"
        )
    return found


class SignalExit(SystemExit):
    """The exception that ends this process, unless something catches it."""

    def __init__(self, cause: signal.Signals) -> None:
        super().__init__(128 + cause)
        self.cause = cause
        self.pid = os.getpid()

    @property
    def code(self) -> int:  # type: ignore[override]
        """The exit status by which shells tell of this signal."""
        try:
            sys._getframe(1)
        except ValueError:  # no caller in Python: the interpreter asks, because nothing has caught this
            _end_by(self.cause)
        return 128 + self.cause


class ChainedHandler:
    """Calls the handler before it, then ends the program by an exception."""

    def __init__(self, previous: Any) -> None:
        self.previous = previous

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if callable(self.previous):
            self.previous(signum, frame)
        cause = signal.Signals(signum)
        if _is_over(frame):
            _end_by(cause)
        elif (loop := _running_loop()) is not None:
            # Raised in the middle of the loop's own code, it may lose the next step of a task, and that task
            # cannot even be cancelled then. A callback may raise it: the loop keeps what is scheduled.
            loop.call_soon_threadsafe(_unwind, cause)
        else:
            _unwind(cause)


def _is_over(frame: FrameType | None) -> bool:
    """Whether the main thread has left the program.

    Then Python waits for other threads, first for those of executors, or runs exit hooks. An exception would
    cut that short, and what the threads hold would be released while they are at work.
    """
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    waits = frame is not None and frame.f_code.co_name == "_shutdown" and frame.f_globals is vars(threading)
    return waits or not threading.main_thread().is_alive()


def _running_loop() -> Any:
    asyncio = sys.modules.get("asyncio")
    return None if asyncio is None else asyncio._get_running_loop()


def _unwind(cause: signal.Signals) -> None:
    if not _is_ending():
        raise SignalExit(cause)


def _is_ending() -> bool:
    """Whether this process is answering a signal already: another exception would cut a release short.

    Signals come twice when a supervisor sends them to a whole group and a parent in it passes them on.
    """
    pid = os.getpid()
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, SignalExit) and error.pid == pid:
            return True
        error = error.__context__
    return _ending is not None and _ending[0] == pid


def _end_by(cause: signal.Signals) -> None:
    global _ending
    if _ending is None or _ending[0] != os.getpid():
        _ending = os.getpid(), cause
        atexit.register(_last_step)


def _last_step() -> None:
    atexit.unregister(_last_step)
    if _ending is None or _ending[0] != os.getpid():
        return
    _wait_for_threads()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or its reader is gone
            stream.flush()
    cause = _ending[1]
    signal.signal(cause, signal.SIG_DFL)
    signal.raise_signal(cause)
    os._exit(128 + cause)  # process 1 of a container does not die of its own signals


def _wait_for_threads() -> None:
    """Wait for threads that Python has forgotten.

    A `Thread.join` that an exception interrupts takes its thread for ended on Python 3.11 and 3.12, so the
    interpreter does not wait for it. The thread may hold a lock, which the exit hooks would release under it.
    """
    main = threading.main_thread()
    while any(not thread.daemon and thread is not main for thread in threading.enumerate()):
        time.sleep(0.01)
