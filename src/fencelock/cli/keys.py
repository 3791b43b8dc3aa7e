"""The keyboard: single keys from the terminal, as they are pressed.

The terminal is put into cbreak mode, in which Ctrl-C and Ctrl-Z still work, and back in the end, whatever
happens. Where stdin is no terminal there are no keys, and waiting is only waiting.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator

__all__ = ["Keys", "keyboard"]


class Keys:
    """Keys that were pressed."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")

    @property
    def exist(self) -> bool:
        """Whether there is a keyboard."""
        return self._fd is not None

    def wait(self, seconds: float) -> list[str]:
        """Wait for keys; return what was pressed, nothing if the time is over."""
        if self._fd is None:
            time.sleep(seconds)
            return []
        if not select.select([self._fd], [], [], seconds)[0]:
            return []
        data = os.read(self._fd, 1024)
        if not data:  # hung up
            self._fd = None
            return ["q"]
        # Arrows and the like come as one read that begins with an escape: they mean nothing here.
        if data[:1] == b"\x1b" and len(data) > 1:
            return []
        return list(self._decoder.decode(data))


@contextlib.contextmanager
def keyboard() -> Iterator[Keys]:
    """Read single keys while the block runs."""
    import termios
    import tty

    try:
        fd = sys.stdin.fileno()
        before = termios.tcgetattr(fd)
    except (OSError, ValueError, AttributeError, termios.error):
        yield Keys(None)
        return
    try:
        tty.setcbreak(fd)
        yield Keys(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
