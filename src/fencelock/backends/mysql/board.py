"""A thread that keeps the sessions of a client: connections that hold locks, or wait for one.

A lock of GET_LOCK belongs to its connection, so nothing may happen to that but what has to: no caller
reads from it, and no Ctrl-C or cancellation ends a statement in the middle. Callers post jobs; the
thread takes them one after the other, sends statements, and reads the answers when they come. It never
waits for a single one of them: many sessions, one poll. What a caller does not wait for any more is
done all the same, and what it posts afterwards is done afterwards.

A connection that is closed by the other side is noticed by the same poll, at once.

The thread begins with the first session and ends with `close`.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from pymysql.constants import COMMAND  # type: ignore[import-untyped]
from pymysql.err import Error  # type: ignore[import-untyped]

from fencelock.backends.mysql.blocking import BlockingLink
from fencelock.backends.mysql.failures import Kind, Unusable, closed, kind_of
from fencelock.runtime import clock
from fencelock.runtime.threads import join, launch

__all__ = ["Answer", "Board", "Job", "Reply", "Session"]

SILENCE = 10.0
"""Seconds after which a session that does not answer is taken for broken."""
READ_LIMIT = 3.0
"""An answer that has begun to come must be there whole by then."""
LONGEST_LOOK = 5.0
UNHEARD = inf

log = logging.getLogger("fencelock")


class Answer(NamedTuple):
    """What a statement answered."""

    rows: Any
    number: int
    """What LAST_INSERT_ID(…) was set to."""


Reply = Answer | Unusable
Then = Callable[[Reply], None]


class Job:
    """What a caller wants, and its answer. The caller may have gone when it is there."""

    __slots__ = ("dead", "done", "error", "kind", "result", "signal", "subject")

    def __init__(self, kind: str, subject: Any, signal: Any) -> None:
        self.kind = kind
        self.subject = subject
        self.signal = signal
        self.done = self.dead = False
        self.result: Any = None
        self.error: Exception | None = None

    def finish(self, result: Any = None, error: Exception | None = None) -> None:
        """Answer it, once."""
        if not self.done:
            self.result, self.error = result, error
            self.done = True
            self.signal.notify()


class Session:
    """One connection; its statements are sent in order, each after the answer to the one before."""

    def __init__(self, link: BlockingLink, board: Board) -> None:
        self.link = link
        self.board = board
        self.connection: Any = link._connection
        self.connection._read_timeout = self.connection._write_timeout = READ_LIMIT
        self.number = link.number
        self.claims: set[Any] = set()
        self.kept = 0  # the server closes it after so many silent seconds, once that was set
        self.heard = clock.now()
        self.due = inf
        self.is_broken = False
        self._queue: deque[tuple[str, Then, float]] = deque()
        self._then: Then | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return self._then is None and not self.is_broken

    def fileno(self) -> int:
        """The socket's number, for poll."""
        return int(self.connection._sock.fileno())

    def say(self, statement: str, then: Then, limit: float = SILENCE) -> None:
        """Send a statement when its turn comes; `then` is called with the answer, always."""
        if self.is_broken:
            then(Unusable(2013, "the connection is closed"))
        elif self._then is not None:
            self._queue.append((statement, then, limit))
        else:
            self._send(statement, then, limit)

    def _send(self, statement: str, then: Then, limit: float) -> None:
        self._then = then
        self.due = clock.now() + limit
        try:
            self.connection._execute_command(COMMAND.COM_QUERY, statement.encode("ascii"))
        except (Error, OSError) as error:
            self.board.broken(self, f"its connection broke: {_words(error)}")

    def hear(self) -> None:
        """There is something to read: the answer, or the end."""
        if self._then is None:
            self.board.broken(self, "its connection was closed by the server")
            return
        try:
            self.connection._read_query_result()
            found = self.connection._result
            reply: Reply = Answer(found.rows or (), found.insert_id or 0)
        except (Error, OSError) as error:
            reply = Unusable(*error.args)
            if kind_of(reply) is Kind.BROKEN or not self.connection.open:
                self.board.broken(self, f"its connection broke: {_words(error)}")
                return
        self.heard, self.due = clock.now(), inf
        then, self._then = self._then, None
        if self._queue:
            self._send(*self._queue.popleft())
        then(reply)

    def fail(self, reason: str) -> None:
        """Everything that was asked of it has failed."""
        self.is_broken = True
        self.link.kill()
        waiting = [self._then, *(then for _, then, _ in self._queue)]
        self._then = None
        self._queue.clear()
        for then in waiting:
            if then is not None:
                then(Unusable(2013, reason))


class Board:
    """The sessions of one client, and the thread that keeps them. `Desk` knows what they are for."""

    def __init__(self) -> None:
        self.sessions: set[Session] = set()
        self._mail: deque[Job] = deque()
        self._poll = select.poll()  # not epoll: a forked child would share it
        self._by_number: dict[int, Session] = {}
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)
        self._poll.register(self._ear, select.POLLIN)
        self._thread: threading.Thread | None = None
        self._closing = False

    # For callers, on any thread -----------------------------------------------------------------

    def post(self, job: Job) -> None:
        """Let the thread do something."""
        if self._closing:
            if job.kind == "add":
                job.subject.kill()
            raise closed()
        self._mail.append(job)
        if self._thread is None:
            self._start()
        self._ring()
        if self._closing:  # meanwhile: the mail may have been emptied before
            raise closed()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="fencelock-getlock", daemon=True)
        try:
            if self.__dict__.setdefault("_starter", thread) is thread:  # atomic: one of several callers
                launch(thread)
                self._thread = thread
        except BaseException:
            if self.__dict__.get("_starter") is thread:
                del self.__dict__["_starter"]  # another one may
            raise

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # full: it will look anyway; closed: nobody will
            self._bell.send(b".")

    def close(self) -> None:
        """Close every session, and with them whatever they hold. Idempotent."""
        self._closing = True
        self._ring()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            join(thread, READ_LIMIT + 1)
        if thread is None:
            self._shut()

    def drop(self) -> None:
        """In a forked child, where the thread is not: close the copies of the sockets."""
        self._closing = True
        for session in list(self.sessions):
            session.link.drop()
        self._ear.close()
        self._bell.close()

    # The thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing:
                self._turn()
        except Exception:
            log.exception("the keeper of GET_LOCK sessions failed: what they hold is lost")
            for session in list(self.sessions):
                self.broken(session, "the keeper of its connection failed")
        finally:
            self._closing = True
            self._shut()

    def _turn(self) -> None:
        now = clock.now()
        wait = min(LONGEST_LOOK, max(0.0, self.next_look() - now))
        for number, _ in self._poll.poll(wait * 1000 + 1):
            session = self._by_number.get(number)
            if session is not None:
                session.hear()
            elif number == self._ear.fileno():
                with contextlib.suppress(BlockingIOError):
                    self._ear.recv(4096)
        while self._mail:
            job = self._mail.popleft()
            if not job.dead or job.kind in {"release", "abandon", "add"}:
                getattr(self, f"do_{job.kind}")(job)
        self.look(clock.now())

    def next_look(self) -> float:
        """Return when `look` has something to do."""
        return min((session.due for session in self.sessions), default=inf)

    def look(self, now: float) -> None:
        """Do what is due by the clock."""
        for session in [session for session in self.sessions if session.due <= now]:
            self.broken(session, "its connection does not answer")

    def do_add(self, job: Job) -> None:
        """Take a new connection."""
        session = Session(job.subject, self)
        self.sessions.add(session)
        self._by_number[session.fileno()] = session
        self._poll.register(session.fileno(), select.POLLIN)
        job.finish(session)

    def broken(self, session: Session, reason: str) -> None:
        """A session is of no use any more."""
        self._forget(session)
        session.fail(reason)

    def part(self, session: Session) -> None:
        """Close a session that nobody needs."""
        self._forget(session)
        session.link.quit()
        session.is_broken = True

    def _forget(self, session: Session) -> None:
        self.sessions.discard(session)
        for number, known in list(self._by_number.items()):
            if known is session:
                del self._by_number[number]
                with contextlib.suppress(KeyError):
                    self._poll.unregister(number)

    def _shut(self) -> None:
        for session in list(self.sessions):
            self._forget(session)
            if session.is_idle:
                session.link.quit()
            session.fail("this client is closed")
        while self._mail:
            job = self._mail.popleft()
            if job.kind == "add":
                job.subject.kill()
            job.finish(error=closed())
        self._ear.close()
        self._bell.close()


def _words(error: BaseException) -> str:
    return " ".join(str(error.args[-1] if error.args else error).split())[:120]
