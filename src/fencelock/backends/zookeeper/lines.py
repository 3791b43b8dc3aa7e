"""A line to a member: one socket, on which the connection's thread and those who ask take turns.

Handing a question to another thread and getting its answer from there costs more than the question: two
switches of threads each time. So whoever asks writes by itself, and reads by itself until it has its answer.
Whoever rests until something happens reads meanwhile. When nobody does, the connection's thread reads.

    writing   a lock, held by whoever writes: the order of the questions is the order of their answers
    reading   a place, had by one reader, who looks at what was read

An interrupt (Ctrl-C) may come when a function begins, or one in C comes back. Whoever takes a lock by
`acquire`, or gives it back by a method, may have one in between, and nobody ever would. So a lock is taken by
`with` here, and the place of whoever reads is taken and left by an assignment.

A signal handler may use the line in the middle of a frame of its own thread, which does not go on before the
handler returns. If that frame waits for something to read, the handler takes the reading from it. If it is in
the middle of a question or an answer, the line is of no use to the handler, which is told so at once.

The connection's thread alone connects and hangs up. Before it does, it stops the line: nobody writes any
more, and whoever reads is woken and waited for. Whoever fails, or is interrupted in the middle of an answer,
leaves the line to the connection's thread, which hangs up.

Not with TLS: one `SSL` object must not be read and written at the same time. Not without `epoll`, which lets
one thread change what another one is waiting for.
"""

from __future__ import annotations

import math
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from fencelock.runtime import clock, locks

__all__ = ["Line", "Reader"]

READABLE = 1
"""EPOLLIN, and POLLIN."""
GRACE = 1.5
"""Seconds that whoever reads has to stop."""
LOOK = 0.001


class Reader:
    """One who reads."""

    __slots__ = ("thread", "waits")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.waits = False
        """Whether it waits for something to read, and has taken nothing yet."""


class Line:
    """A socket to a member, and the socket by which the connection's thread is woken."""

    def __init__(self, source: socket.socket, waker: socket.socket) -> None:
        self.writing = locks.rlock()
        self.writer = 0
        """The thread that is in the middle of a question."""
        self.is_up = True
        self.is_broken = False
        """Somebody failed in the middle of a question or an answer: what comes next means nothing."""
        self._taking = locks.rlock()
        self._reader: Reader | None = None
        self._source = source
        self._waker = waker
        self._epoll = select.epoll()
        self._epoll.register(source, READABLE)
        self._epoll.register(waker, READABLE)
        self._nudges = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = self._new_poll()

    def _new_poll(self) -> select.poll:
        poll = select.poll()
        poll.register(self._source, READABLE)
        poll.register(self._nudges, READABLE)
        return poll

    @staticmethod
    def fits(source: socket.socket) -> bool:
        """Whether several threads may use this socket."""
        return hasattr(select, "epoll") and hasattr(os, "eventfd") and not isinstance(source, ssl.SSLSocket)

    def is_usable(self) -> bool:
        """Whether it may be read and written. To be asked by whoever has the lock for it."""
        return self.is_up and not self.is_broken

    # For those who ask ------------------------------------------------------------------------

    def borrow(self, read: Callable[[Reader], None]) -> None:
        """Take the reading over from the connection's thread while `read` runs; not if somebody else has."""
        self.make_way()
        me = Reader()
        try:
            if self._take(me):
                self._epoll.modify(self._source, 0)
                read(me)
        finally:
            if self._reader is me:
                self._give_back()

    def _give_back(self) -> None:
        try:
            self._epoll.modify(self._source, READABLE)  # the connection's thread reads again
        except (OSError, ValueError):
            pass  # it was stopped meanwhile
        finally:
            self._reader = None

    def _take(self, me: Reader) -> bool:
        with self._taking:
            if self._reader is None and self.is_usable():
                self._reader = me
        return self._reader is me

    def is_read_by(self, me: Reader) -> bool:
        """Whether it still reads: a signal handler on its thread may have taken that from it."""
        return self._reader is me and self.is_usable()

    def arrives(self, me: Reader, seconds: float) -> bool:
        """Wait until there is something to read, or a nudge; for whoever has borrowed it."""
        me.waits = True
        found = self._poll.poll(math.ceil(seconds * 1000))
        me.waits = False
        if self._reader is not me:
            return False
        if len(found) == 1 and found[0][0] != self._nudges:
            return True
        with suppress(BlockingIOError):
            os.eventfd_read(self._nudges)
        return len(found) > 1

    def nudge(self) -> None:
        """Let whoever has borrowed it look up from its reading."""
        with self.writing:
            if self.is_up:
                os.eventfd_write(self._nudges, 1)

    # For a signal handler ---------------------------------------------------------------------

    def make_way(self) -> None:
        """Take the reading from the interrupted frame of this thread, if it waits."""
        reader = self._reader
        if reader is not None and reader.waits and reader.thread == threading.get_ident():
            self._give_back()
            with self.writing:
                if self.is_up:
                    self._poll = self._new_poll()  # that frame is inside the other
            self.nudge()

    def is_entangled(self) -> bool:
        """Whether the interrupted frame of this thread is in the middle of a question or an answer."""
        me, reader = threading.get_ident(), self._reader
        return self.writer == me or (reader is not None and reader.thread == me and not reader.waits)

    # For the connection's thread --------------------------------------------------------------

    def wait(self, seconds: float) -> list[socket.socket]:
        """Wait until there is something to read, or to write; return by which socket."""
        found = {fd for fd, _ in self._epoll.poll(seconds)}
        return [sock for sock in (self._source, self._waker) if sock.fileno() in found]

    def take(self) -> bool:
        """Begin to read; `False` if somebody else does, who will read this as well, or if nobody can."""
        return self._take(Reader())

    def done(self) -> None:
        """End what `take` began."""
        self._reader = None

    def stop(self) -> None:
        """Let nobody use it any more, and wait for whoever does."""
        with self.writing, self._taking:
            was_up, self.is_up = self.is_up, False
        if was_up:
            with suppress(OSError):
                self._source.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for something to read
            give_up = clock.now() + GRACE
            while self._reader is not None and clock.now() < give_up:
                time.sleep(LOOK)
            self.drop()

    def drop(self) -> None:
        """In a forked child, where whoever has a lock is not."""
        self._epoll.close()
        nudges, self._nudges = self._nudges, -1
        if nudges >= 0:
            os.close(nudges)
