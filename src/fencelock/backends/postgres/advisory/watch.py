"""A watch over idle connections: who is hung up on learns of it at once.

Under asyncio the event loop sees it. For blocking code one thread of the process waits for the end of any
connection that is watched, and for nothing else: replies do not wake it (EPOLLRDHUP without EPOLLIN). The
thread is there while there are connections, and ends with the last. Where there is no epoll, renewals find
out.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress

from fencelock.runtime import locks
from fencelock.runtime.threads import launch

__all__ = ["forget", "watch"]

ENDED = getattr(select, "EPOLLRDHUP", 0x2000)


class Watch:
    def __init__(self) -> None:
        self._lock = locks.rlock()  # a signal handler may take a lock, and connect for that
        self._ended: dict[int, Callable[[], None]] = {}
        self._epoll: select.epoll | None = None
        self._bell = -1

    def watch(self, fd: int, ended: Callable[[], None]) -> None:
        with self._lock:
            self._ended[fd] = ended
            if self._epoll is None:
                self._start()
            assert self._epoll is not None
            with suppress(FileExistsError):  # a descriptor of that number, which was closed behind our back
                self._epoll.register(fd, ENDED)

    def forget(self, fd: int) -> None:
        with self._lock:
            if self._ended.pop(fd, None) is None:
                return
            if self._epoll is not None:
                with suppress(OSError, ValueError):
                    self._epoll.unregister(fd)
                if not self._ended:
                    os.eventfd_write(self._bell, 1)

    def _start(self) -> None:
        epoll = select.epoll()
        bell = os.eventfd(0, os.EFD_CLOEXEC)
        epoll.register(bell, select.EPOLLIN)
        launch(threading.Thread(target=self._run, args=(epoll, bell), name="fencelock-watch", daemon=True))
        self._epoll, self._bell = epoll, bell

    def _run(self, epoll: select.epoll, bell: int) -> None:
        while True:
            found = [fd for fd, _ in epoll.poll()]
            with self._lock:
                if bell in found:
                    os.eventfd_read(bell)
                ended = [self._ended.pop(fd) for fd in found if fd in self._ended]
                for fd in found:
                    if fd != bell:
                        with suppress(OSError, ValueError):
                            epoll.unregister(fd)
                if not self._ended:
                    epoll.close()
                    os.close(bell)
                    self._epoll, self._bell = None, -1
            over = self._epoll is not epoll
            while ended:
                ended.pop()()
            if over:
                return


_watch = Watch()


def watch(fd: int, ended: Callable[[], None]) -> None:
    """Call `ended`, once and on another thread, when the other side hangs up."""
    if hasattr(select, "epoll"):
        _watch.watch(fd, ended)


def forget(fd: int) -> None:
    """Before the descriptor is closed: it is not watched any more."""
    _watch.forget(fd)


def _anew() -> None:
    global _watch
    if _watch._bell >= 0:
        with suppress(OSError):
            os.close(_watch._bell)
    _watch = Watch()  # the epoll is shared with the parent: it is left alone


os.register_at_fork(after_in_child=_anew)
