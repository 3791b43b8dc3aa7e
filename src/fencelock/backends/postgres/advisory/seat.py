"""A seat: one connection, which is one session of the server, and the locks that this session has.

A connection with locks on it must not be thrown away because a reply was late or its reader was
interrupted: the locks would be gone. So a statement is sent, and its reply read, in two steps; a reply that
nobody took is read off by whoever uses the seat next. A wait in the server's queue is such a statement too,
whose reply comes when the lock does.

A seat has one user at a time, known by name: `user.setdefault(0, who)` takes it in one step that no signal
can cut in two, so that what an interrupted request left occupied can be taken over by its clean-up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from psycopg import OperationalError

from fencelock.backends.postgres.advisory.keys import Key
from fencelock.backends.postgres.failures import GONE, Refused
from fencelock.backends.postgres.link import BAD, GOOD, Broken, Statement, drop, hang_up
from fencelock.core.ports import Request
from fencelock.runtime import clock
from fencelock.runtime.base import Signal

__all__ = ["ASKED", "GRACE", "HELD", "POLLING", "WAITING", "Hold", "Seat"]

ASKED = "asked"  # a request may be under way, or its reply is lost
HELD = "held"
WAITING = "waiting"  # in the server's queue, on a seat of its own
POLLING = "polling"  # all seats are taken: it comes back and tries

PREPARED_ALREADY = "42P05"
RELAX = b"SET idle_session_timeout = 0"
IDLE_SINCE = 140000
"""The version of the server that knows idle_session_timeout."""
GRACE = 1.0
"""Seconds after the longest ttl of its leases at which the server ends a session that is silent."""


class Hold:
    """What one request has on the server, or may have."""

    __slots__ = (
        "bell",
        "deadline",
        "details",
        "key",
        "noted",
        "request",
        "seat",
        "shared",
        "slot",
        "state",
        "token",
        "ttl",
    )

    def __init__(self, request: Request, key: Key, details: bytes) -> None:
        self.request = request
        self.key = key
        self.details = details
        self.shared = request.mode == "shared"
        self.state = ASKED
        self.seat: Seat | None = None
        self.slot = 0
        self.noted: tuple[Seat, int] | None = None  # the slot that says that it polls
        self.bell: Signal | None = None  # rung when it should look again
        self.token = 0
        self.ttl = request.ttl
        self.deadline = 0.0


class Seat:
    """One connection. Its methods that talk to the server are for its user only."""

    def __init__(self, pg: Any, pid: int, ended: Callable[[Seat, str], None]) -> None:
        self.pg = pg
        self.pid = pid
        self.pid_text = b"%d" % pid
        self.user: dict[int, object] = {}
        self.queue: deque[Signal] = deque()  # those who want to use it next
        self.keys: dict[bytes, list[Hold]] = {}
        self.waiting: Hold | None = None
        self.reserved = 0
        """Up to here tokens may be given: the server has reserved them since it was started."""
        self.idle: int | None = 0 if pg.server_version >= IDLE_SINCE else None
        """Milliseconds of silence after which the server ends it, 0 for never; `None` where it cannot."""
        self.is_proven = False
        """A reply was read from it since it was opened."""
        self.heard = -inf
        """When a reply was last read from it."""
        self.is_behind = False
        """A statement was sent whose reply was not read yet."""
        self.ended = ""
        """Why it is of no use any more."""
        self._tell = ended
        self._known: set[bytes] = set()
        self._reply: Any = None
        self.rows: set[int] = set()
        """The slots that have a row on the server."""
        self._slots = 0
        self._free: list[int] = []

    def idle_for(self, ttl: float, *, exact: bool = False) -> bytes | None:
        """A lease with this ttl comes here: return the silence to allow, if it is another than up to now.

        `exact`: it is the longest ttl of all that are here.
        """
        needed = int((ttl + GRACE) * 1000)
        if (
            self.idle is None
            or needed == self.idle
            or (needed < self.idle and len(self.keys) > 1 and not exact)
        ):
            return None
        return b"%d" % needed

    def note_idle(self, idle: bytes | None) -> None:
        """The server has been told so."""
        if idle is not None:
            self.idle = int(idle)

    def rest(self) -> None:
        """It has nothing any more. If that lasts, the server is told that it may be silent."""

    def relax(self) -> None:
        """Tell the server so, if nobody uses the seat. The next user reads the reply."""
        if self.user.setdefault(0, self.relax) == self.relax:
            if not self.keys and self.idle and not self.is_behind and not self.ended:
                self.idle = 0
                with suppress(Broken):
                    self._send(self.pg.send_query, RELAX)
            del self.user[0]

    # Slots ----------------------------------------------------------------------------------

    def new_slot(self) -> int:
        """Return a slot that nobody uses: the one that was free last, or a new one."""
        try:
            return self._free.pop()
        except IndexError:
            self._slots += 1
            return self._slots

    def give_slot(self, slot: int) -> None:
        """The slot may be used again."""
        self._free.append(slot)

    # Statements -----------------------------------------------------------------------------

    async def call(self, statement: Statement, values: Sequence[bytes | None], deadline: float) -> Any:
        """Run a statement and return its result. Raises `Broken`, `TimeoutError`, `Refused`."""
        await self.begin(statement, values, deadline)
        return await self.answer(deadline)

    async def begin(self, statement: Statement, values: Sequence[bytes | None], deadline: float) -> None:
        """Send a statement; `answer` reads its reply."""
        await self.prepare(statement, deadline)
        self._send(self.pg.send_query_prepared, statement.name, [*values], statement.formats)

    async def prepare(self, statement: Statement, deadline: float) -> None:
        """Read off what is under way, and let the server know the statement: `begin` then only sends."""
        if self.is_behind:
            await self.settle(deadline)
        if statement.name not in self._known:
            self._send(self.pg.send_prepare, statement.name, statement.text)
            try:
                await self.answer(deadline)
            except Refused as error:
                if error.state != PREPARED_ALREADY:  # by a call that was interrupted
                    raise
            self._known.add(statement.name)

    async def run(self, text: str, deadline: float) -> Any:
        """Run a script without parameters; return the last result."""
        if self.is_behind:
            await self.settle(deadline)
        self._send(self.pg.send_query, text.encode())
        return await self.answer(deadline)

    async def settle(self, deadline: float) -> None:
        """Read off a reply that nobody wants."""
        with suppress(Refused):
            await self.answer(deadline)

    async def answer(self, deadline: float) -> Any:
        """Wait for the reply to what was sent."""
        raise NotImplementedError

    def _send(self, send: Callable[..., None], *words: Any) -> None:
        if self.ended:
            raise Broken(self.ended)
        self._reply = None
        self.is_behind = True
        try:
            send(*words)
        except OperationalError as error:
            raise self._broken(str(error)) from None

    def _take(self) -> bool:
        """Take in what has come; say whether the reply is whole."""
        pg = self.pg
        while not pg.is_busy():
            result = pg.get_result()
            if result is None:
                self.is_behind = False
                return True
            if self._reply is None or self._reply.status in GOOD:
                self._reply = result
        return False

    def _checked(self) -> Any:
        self.heard = clock.now()
        result, self._reply = self._reply, None
        if result is None:
            raise self._broken("it answered with nothing")
        if result.status in GOOD:
            self.is_proven = True
            return result
        error = Refused(result)
        if self.pg.status == BAD or error.state in GONE:
            raise self._broken(error.words)
        raise error

    def _broken(self, words: str) -> Broken:
        lines = [line.strip() for line in words.splitlines() if line.strip()]
        text = lines[-1] if lines else "it closed the connection"
        self._tell(self, text)
        return Broken(text)

    # The end --------------------------------------------------------------------------------

    def hang_up(self) -> None:
        """Let whoever waits on it find out that it is over."""
        hang_up(self.pg)

    def close(self) -> None:
        """Close the connection: the server frees what the session has."""
        self.pg.finish()

    def drop(self) -> None:
        """In a forked child: close the copy of the socket, and say nothing on it."""
        drop(self.pg)
