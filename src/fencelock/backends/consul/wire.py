"""The wire: requests to whichever agent answers.

Every request may be repeated: what it does, it does once, by the owner's id, the session's id or the session
that it compares with. (Beginning a session is the exception: the store looks after that.) So one that got no
answer is made again, to the next agent, until its deadline.

A request that nobody waits for any more may still be on its way, and what is sent after it on another
connection may overtake it. So its connection is kept for a while, and `settled` waits for its answer:
whoever cleans up after an interrupted request asks for that first. When even that was in vain, what the
kernel has not sent is not sent any more; what was on its way may be done yet, and is remembered as a *doubt*.
"""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol
from urllib.parse import quote

from fencelock.backends.consul.address import Address
from fencelock.backends.consul.failures import closed, no_answer, said, unreachable
from fencelock.backends.consul.protocol import Answer, Disconnected, request
from fencelock.errors import BackendUnavailable
from fencelock.runtime import clock

__all__ = ["ATTEMPT", "CONNECT", "LIMBO", "NO_NODE", "Heard", "Line", "Wire"]

ATTEMPT = 2.0
"""Seconds that one agent has to answer."""
CONNECT = 1.5
"""Seconds that one agent has to take a connection."""
LIMBO = 2.0
"""Seconds for which the answer to an interrupted request may be waited for."""
PAUSE = 0.05
UNDERSTOOD = {200, 404, 409}
NO_NODE = b"Missing node registration"

Heard = Callable[[Answer | None], None]


class Line(Protocol):
    """A connection for questions that take long: `heard` gets each answer, and `None` at the end."""

    def send(self, data: bytes) -> None: ...
    def end(self) -> None: ...


class Wire(ABC):
    """Requests to the agents, one at a time. A subclass has the connections."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.doubts: dict[str, float] = {}
        """Of which tags a request was given up, and when: it may be done yet."""
        self._turn = 0
        self._closed = False
        self._dc = f"dc={quote(address.dc, safe='')}" if address.dc else ""
        token = f"X-Consul-Token: {address.token}\r\n" if address.token else ""
        self._context: ssl.SSLContext | None = None
        self._heads = [f"Host: {endpoint}\r\n{token}" for endpoint in address.endpoints]

    def context(self) -> ssl.SSLContext | None:
        """Return what TLS needs, `None` without it. Reads the files, once."""
        if self._context is None:
            self._context = self.address.context()
        return self._context

    def written(self, turn: int, method: str, path: str, body: bytes = b"") -> bytes:
        """Return the bytes of a request to one agent."""
        if self._dc:
            path = f"{path}{'&' if '?' in path else '?'}{self._dc}"
        return request(method, path, self._heads[turn], body)

    async def ask(self, method: str, path: str, deadline: float, body: bytes = b"") -> Answer:
        """Return the answer of whichever agent gives one that is understood: done, not there, or refused."""
        return (await self.ask_counted(method, path, deadline, body))[0]

    async def ask_counted(
        self, method: str, path: str, deadline: float, body: bytes = b"", tag: str = ""
    ) -> tuple[Answer, bool]:
        """The same, and whether it may have been done before by its own sending. See `settled` for `tag`."""
        again = False
        failures: list[BackendUnavailable] = []
        while True:
            turn, now = self._turn, clock.now()
            if self._closed:
                raise closed()
            if now >= deadline:
                raise failures[0] if failures else no_answer(self.address.label)
            endpoint = self.address.endpoints[turn]
            try:
                data = self.written(turn, method, path, body)
                answer = await self._ask(turn, data, min(deadline, now + ATTEMPT), tag)
                if answer.status in UNDERSTOOD or (answer.status == 500 and NO_NODE in answer.body):
                    return answer, again
                failure = said(endpoint, answer)
            except (Disconnected, OSError) as error:
                failure = unreachable(endpoint, error, tls=self.address.tls)
                failure.__cause__ = error
            except BaseException:
                self._doubt(tag)
                raise
            self._doubt(tag)
            if not failure.transient:
                raise failure
            again = True
            self.move_on(turn)
            failures.append(failure)
            if len(failures) % len(self.address.endpoints) == 0:
                await self._pause(min(PAUSE, max(0.0, deadline - clock.now())))

    def _doubt(self, tag: str) -> None:
        if tag:
            self.doubts[tag] = clock.now()

    def move_on(self, turn: int) -> None:
        """Ask the next agent from now on, if this one is still asked."""
        if self._turn == turn:
            self._turn = (turn + 1) % len(self.address.endpoints)

    async def listen(self, heard: Heard, deadline: float) -> tuple[Line, int]:
        """Open a connection for questions that take long; return it and to which agent it leads."""
        turn = self._turn
        try:
            return await self._listen(self.address.endpoints[turn], heard, deadline), turn
        except (OSError, Disconnected) as error:
            raise unreachable(self.address.endpoints[turn], error, tls=self.address.tls) from error

    @abstractmethod
    async def settled(self, tag: str, deadline: float) -> Answer | None:
        """Wait for the answer to the request of this tag that was interrupted.

        `None` if there was none, or its answer does not come any more.
        """

    @abstractmethod
    async def _ask(self, turn: int, data: bytes, until: float, tag: str) -> Answer:
        """Make one request to one agent. Raises `Disconnected` and `OSError`."""

    @abstractmethod
    async def _listen(self, endpoint: str, heard: Heard, deadline: float) -> Line:
        """Open a connection."""

    @abstractmethod
    async def _pause(self, seconds: float) -> None:
        """Do nothing for so long."""

    @abstractmethod
    async def close(self) -> None:
        """Close every connection."""

    @abstractmethod
    def drop(self) -> None:
        """In a forked child: let go of every connection, without a word to the server."""
