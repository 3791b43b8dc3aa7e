"""Starting a thread, so that an interrupt finds it started or not, and nothing in between.

`Thread.start` waits until the new thread has said that it is there. An interrupt (Ctrl-C) in the middle of
that may leave a lock taken that the new thread waits for, for ever, and its starter has no way to tell. Here
another thread, which is never interrupted, does it; and only once this one has nothing left to do.
"""

from __future__ import annotations

import _thread
import logging
import threading
import time

from fencelock.runtime import clock

__all__ = ["join", "launch"]

MOMENT = 0.0005
log = logging.getLogger("fencelock")


class Fate:
    """Whether a thread is to start; unknown at first."""

    __slots__ = ("starts",)

    def __init__(self) -> None:
        self.starts: bool | None = None


def launch(thread: threading.Thread) -> None:
    """Start a thread, in a moment. If this raises, whatever it is, the thread does not start."""
    fate = Fate()
    try:
        _thread.start_new_thread(_start, (thread, fate))
    except BaseException:
        fate.starts = False
        raise
    fate.starts = True  # no interrupt comes between this and the caller


def join(thread: threading.Thread, seconds: float) -> None:
    """Wait until a thread that was launched has ended, but no longer than so many seconds."""
    give_up = clock.now() + seconds
    while True:
        left = max(give_up - clock.now(), 0.0)
        try:
            thread.join(left)
            return
        except RuntimeError:  # it has yet to start
            if left == 0.0:
                return
            time.sleep(MOMENT)


def _start(thread: threading.Thread, fate: Fate) -> None:
    while fate.starts is None:
        time.sleep(MOMENT)
    if fate.starts:
        try:
            thread.start()
        except Exception:
            log.exception("the thread %s could not start", thread.name)
