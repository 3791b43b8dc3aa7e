"""Connections for tasks: a few, which they share; and one more for each question that takes long."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, NamedTuple, cast

from fencelock.backends.bugs import BUGS, bug
from fencelock.backends.consul.address import Address
from fencelock.backends.consul.failures import BACKEND, closed, no_answer
from fencelock.backends.consul.link import cut_off
from fencelock.backends.consul.protocol import Answer, Disconnected, Reader
from fencelock.backends.consul.wire import CONNECT, LIMBO, Heard, Wire
from fencelock.runtime import clock
from fencelock.runtime.forks import let_go

__all__ = ["AsyncWire"]

MOST = 8
"""Connections for requests. Consul takes 200 from one host, all its programs together."""
IDLE = 4
"""So many of them are kept for later."""


class TaskLine(asyncio.Protocol):
    """One connection."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.is_open = True
        self.transport: asyncio.Transport | None = None
        self.heard: Heard | None = None
        self.unread: Answer | None = None
        """The answer that came in the very moment in which its reader was cancelled."""
        self.error: BaseException | None = None
        self._waits = False
        self._reader = Reader()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass

    def data_received(self, data: bytes) -> None:
        try:
            answer = self._reader.feed(data)
        except Disconnected as error:
            self._break_off(error)
            return
        if answer is not None:
            self._waits = False
            if self.heard is None:
                self.end()  # nobody has asked
            else:
                self.heard(answer)

    def eof_received(self) -> None:
        if self.is_open:
            self.data_received(b"")

    def connection_lost(self, error: Exception | None) -> None:
        self._break_off(error)

    # What tasks call.

    def send(self, data: bytes) -> None:
        if self.transport is not None and self.is_open:
            self._waits = True
            self.transport.write(data)

    def end(self) -> None:
        """Close it; what it was opened with hears no more."""
        self.heard = None
        self._break_off(None)

    def _break_off(self, error: BaseException | None) -> None:
        self.is_open = False
        self.error = error
        if self.transport is not None:
            sock = self.transport.get_extra_info("socket")
            if self._waits and sock is not None and sock.fileno() >= 0:  # it is not closed
                cut_off(sock)
            self.transport.abort()
        heard, self.heard = self.heard, None
        if heard is not None:
            heard(None)

    def _ended(self) -> BaseException:
        if isinstance(self.error, BUGS):
            return bug(BACKEND, "fencelock", self.error)
        return self.error or Disconnected("it closed the connection")

    async def ask(self, data: bytes, until: float) -> Answer:
        """Send a request and return its answer."""
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Answer] = loop.create_future()

        def heard(answer: Answer | None) -> None:
            self.unread = answer
            if reply.done():
                return
            if answer is None:
                reply.set_exception(self._ended())
            else:
                reply.set_result(answer)

        def late() -> None:
            if not reply.done():
                reply.set_exception(TimeoutError("no answer in time"))

        self.heard = heard
        self.send(data)
        if not self.is_open:
            heard(None)
        timer = loop.call_later(max(0.0, until - clock.now()), late)
        try:
            answer = await reply
            self.unread = None
            return answer
        finally:
            timer.cancel()
            self.heard = None
            if reply.done() and not reply.cancelled():
                reply.exception()  # so that nobody complains when it came too late


class Limbo(NamedTuple):
    """A request that was interrupted, and its answer."""

    line: TaskLine
    reply: asyncio.Future[Answer | None]
    late: float


class AsyncWire(Wire):
    """Requests that tasks await."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._idle: list[TaskLine] = []
        self._lines: set[TaskLine] = set()
        self._busy = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._limbo: dict[str, Limbo] = {}

    async def _ask(self, turn: int, data: bytes, until: float, tag: str) -> Answer:
        async with asyncio.timeout(max(0.0, until - clock.now())):
            await self._slot()
        line: TaskLine | None = None
        try:
            line = await self._take(turn, until)
            answer = await line.ask(data, until)
            if answer.keep and line.is_open and not self._closed and len(self._idle) < IDLE:
                self._idle.append(line)
                line = None
            return answer
        except (asyncio.CancelledError, TimeoutError):
            if line is not None and line.is_open and tag and not self._closed:
                self._interrupted(line, tag)
                line = None
            raise
        finally:
            if line is not None:
                self._end(line)
            self._free()

    def _interrupted(self, line: TaskLine, tag: str) -> None:
        reply: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

        def heard(answer: Answer | None) -> None:
            if not reply.done():
                reply.set_result(answer)
            self._end(line)

        before = self._limbo.pop(tag, None)
        if before is not None:
            self._end(before.line)
        line.heard = heard
        if line.unread is not None:
            heard(line.unread)
        self._limbo[tag] = Limbo(line, reply, clock.now() + LIMBO)

    async def settled(self, tag: str, deadline: float) -> Answer | None:
        limbo = self._limbo.get(tag) if self._limbo else None
        if limbo is None:
            return None
        await asyncio.wait([limbo.reply], timeout=max(0.0, min(limbo.late, deadline) - clock.now()))
        if not limbo.reply.done() and clock.now() < limbo.late:
            raise no_answer(self.address.label)
        if self._limbo.get(tag) is limbo:
            del self._limbo[tag]
        self._end(limbo.line)
        return limbo.reply.result() if limbo.reply.done() else None

    async def _slot(self) -> None:
        """Wait for the right to use a connection, first come, first served."""
        if self._busy < MOST:
            self._busy += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._free()  # it came, but too late
            raise

    def _free(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._busy -= 1

    async def _take(self, turn: int, until: float) -> TaskLine:
        endpoint = self.address.endpoints[turn]
        while self._idle:
            line = self._idle.pop()
            if line.is_open and line.endpoint == endpoint:
                return line
            self._end(line)
        return await self._dial(endpoint, until)

    async def _dial(self, endpoint: str, until: float) -> TaskLine:
        host, _, port = endpoint.rpartition(":")
        host = host.strip("[]")
        context = self.context()
        options: dict[str, Any] = {}
        if context is not None:
            options = {"ssl": context, "server_hostname": self.address.server_name or host}
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(max(0.0, min(CONNECT, until - clock.now()))):
            _, line = await loop.create_connection(lambda: TaskLine(endpoint), host, int(port), **options)
        self._lines.add(line)
        if self._closed:
            self._end(line)
            raise closed()
        return line

    def _end(self, line: TaskLine) -> None:
        self._lines.discard(line)
        line.end()

    async def _listen(self, endpoint: str, heard: Heard, deadline: float) -> TaskLine:
        self._lines = {line for line in self._lines if line.is_open}
        line = await self._dial(endpoint, deadline)
        line.heard = heard
        return line

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        self._closed = True
        lines, self._lines = self._lines, set()
        self._limbo = {}
        for line in lines:
            line.end()
        if lines:
            await asyncio.sleep(0)  # the loop closes the sockets in its next turn

    def drop(self) -> None:
        for line in self._lines:
            if line.transport is not None:
                let_go(line.transport)
        _graveyard.append(self._lines)


_graveyard: list[set[TaskLine]] = []
