"""The connection for tasks: one for all of them, since calls of HTTP/2 do not wait for each other.

What tasks have to say in one turn of the loop is written at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from fencelock.backends.bugs import BUGS, bug
from fencelock.backends.etcd.address import Address
from fencelock.backends.etcd.failures import BACKEND, closed, unreachable
from fencelock.backends.etcd.protocol import Answer, Conversation, Disconnected
from fencelock.backends.etcd.wire import ATTEMPT, CONNECT, Wire
from fencelock.runtime import clock
from fencelock.runtime.forks import let_go

__all__ = ["AsyncWire"]

CLOSED = "it closed the connection"
MOST = 256
"""Calls that are under way at a time. More would only wait at the server, and look as if it hung."""
Metadata = tuple[tuple[str, str], ...]


class Line(asyncio.Protocol):
    """One connection, and who waits for what on it."""

    def __init__(self, authority: str, scheme: str) -> None:
        self.talk = Conversation(authority, scheme)
        self.transport: asyncio.Transport | None = None
        self.is_open = True
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, Callable[[Answer | None], None]] = {}
        self.why = CLOSED
        self.bug: Exception | None = None
        """What ended it, if that is a mistake in the code."""
        self._scheduled = False
        self._heard_at = 0.0
        self._asked = 0
        """Calls of one answer that are under way."""
        self._room = asyncio.Semaphore(MOST)
        self.interrupted: set[asyncio.Future[None]] = set()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass
        self.flush()

    def data_received(self, data: bytes) -> None:
        self._heard_at = clock.now()
        try:
            answers = self.talk.feed(data)
        except Disconnected as error:
            self.break_off(error)
            return
        # What the connection itself has to say (that it is there) goes with the next call if there are any: a
        # write by itself only wakes the server once more.
        if self.talk.is_urgent or not self._asked:
            self.flush()
        for answer in answers:
            heard = self._calls.get(answer.call)
            if answer.ended is not None:
                self._calls.pop(answer.call, None)
            if heard is not None:
                heard(answer)

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, BUGS):
            self.bug = error
        self.break_off(error or Disconnected(CLOSED))

    # What tasks call.

    def flush(self) -> None:
        """Write what is to be written."""
        self._scheduled = False
        if self.transport is not None and not self.transport.is_closing():
            data = self.talk.outgoing()
            if data:
                self.transport.write(data)

    def flush_soon(self) -> None:
        """Write it in this turn of the loop, with what others have to say."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    def begin(self, path: str, metadata: Metadata, heard: Callable[[Answer | None], None]) -> int:
        """Begin a call; `heard` gets what comes, and `None` when the connection ends."""
        number = self.talk.begin(path, metadata)
        self._calls[number] = heard
        return number

    def forget(self, number: int) -> None:
        """Want no more of a call."""
        if self._calls.pop(number, None) is not None and self.is_open:
            self.talk.cancel(number)
            self.flush_soon()

    def break_off(self, error: BaseException | None) -> None:
        """The connection has ended: tell everybody."""
        self.is_open = False
        self.why = str(error or "") or self.why
        if self.transport is not None:
            self.transport.abort()
        calls, self._calls = self._calls, {}
        for heard in calls.values():
            heard(None)

    def _ended(self) -> Exception:
        return Disconnected(self.why) if self.bug is None else bug(BACKEND, "fencelock", self.bug)

    async def call(self, path: str, metadata: Metadata, body: bytes, deadline: float) -> bytes:
        """Make a call when there is room, and return the one message of its answer.

        If nothing at all was heard while it waited for that, the connection is given up.
        """
        if self._room.locked():
            async with asyncio.timeout(max(0.0, deadline - clock.now())):
                await self._room.acquire()
        else:
            await self._room.acquire()  # at once
        began = clock.now()
        self._asked += 1
        try:
            if not self.is_open:
                raise self._ended()
            return await self._call(path, metadata, body, min(deadline, began + ATTEMPT))
        except TimeoutError:
            if self._heard_at < began:
                self.break_off(None)
            raise
        finally:
            self._asked -= 1
            self._room.release()

    async def _call(self, path: str, metadata: Metadata, body: bytes, until: float) -> bytes:
        reply: asyncio.Future[bytes] = self._loop.create_future()
        message: bytes | None = None

        def heard(answer: Answer | None) -> None:
            nonlocal message
            if reply.done():
                return
            if answer is None:
                reply.set_exception(self._ended())
                return
            if answer.messages:
                message = answer.messages[0]
            if answer.ended is not None:
                if answer.ended.code != 0:
                    reply.set_exception(answer.ended)
                elif message is None:
                    reply.set_exception(Disconnected("it answered with nothing"))
                else:
                    reply.set_result(message)

        def late() -> None:
            if not reply.done():
                reply.set_exception(TimeoutError("no answer in time"))

        number = self.begin(path, metadata, heard)
        timer = self._loop.call_later(max(0.0, until - clock.now()), late)
        try:
            self.talk.send(number, body, last=True)
            self.flush_soon()
            return await reply
        except asyncio.CancelledError:
            if reply.done() and not reply.cancelled():
                reply.exception()  # it came in the same moment, and nobody wants it
            self._let_go_on(number)
            raise
        except Exception:
            self.forget(number)
            raise
        finally:
            timer.cancel()

    def _let_go_on(self, number: int) -> None:
        """A call was cancelled that the server may be about to do: note when it answers."""
        if self._calls.pop(number, None) is None:
            return
        answered: asyncio.Future[None] = self._loop.create_future()

        def heard(answer: Answer | None) -> None:
            if answer is None or answer.ended is not None:
                timer.cancel()
                self.interrupted.discard(answered)
                if not answered.done():
                    answered.set_result(None)

        def late() -> None:
            self.forget(number)
            heard(None)

        self.interrupted.add(answered)
        self._calls[number] = heard
        timer = self._loop.call_later(ATTEMPT, late)


class TaskStream:
    """A stream on the connection that all calls are made on."""

    def __init__(
        self, line: Line, path: str, metadata: Metadata, heard: Callable[[bytes | None], None]
    ) -> None:
        self._line = line
        self._heard = heard
        self._number = line.begin(path, metadata, self._answered)

    def _answered(self, answer: Answer | None) -> None:
        for message in answer.messages if answer is not None else ():
            self._heard(message)
        if answer is None or answer.ended is not None:
            self._heard(None)

    def send(self, message: bytes) -> None:
        with suppress(Disconnected):
            self._line.talk.send(self._number, message, last=False)
            self._line.flush_soon()

    def end(self) -> None:
        self._line.forget(self._number)


class AsyncWire(Wire):
    """Calls that tasks await."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._line: Line | None = None
        self._endpoint = ""
        self._connecting = asyncio.Lock()

    async def _call(self, turn: int, path: str, body: bytes, deadline: float) -> bytes:
        line = await self._connected(turn, deadline)
        return await line.call(path, self._metadata, body, deadline)

    async def _connected(self, turn: int, until: float) -> Line:
        endpoint = self.address.endpoints[turn]
        line = self._line
        if line is not None and line.is_open and self._endpoint == endpoint and not line.talk.is_leaving:
            return line
        async with asyncio.timeout(max(0.0, min(CONNECT, until - clock.now()))), self._connecting:
            line = self._line
            if line is None or not line.is_open or self._endpoint != endpoint or line.talk.is_leaving:
                if line is not None:
                    line.break_off(None)
                line = await self._dial(endpoint)
                if self._closed:
                    line.break_off(None)
                    raise closed()
                self._line, self._endpoint = line, endpoint
            return line

    async def _dial(self, endpoint: str) -> Line:
        host, _, port = endpoint.rpartition(":")
        host = host.strip("[]")
        context = self.address.context()
        options: dict[str, Any] = {}
        if context is not None:
            options = {"ssl": context, "server_hostname": self.address.server_name or host}
        scheme = "https" if self.address.tls else "http"
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(lambda: Line(endpoint, scheme), host, int(port), **options)
        return line

    async def settle(self, deadline: float) -> None:
        if self._line is not None and self._line.interrupted:
            until = min(ATTEMPT, deadline - clock.now())
            await asyncio.wait(self._line.interrupted, timeout=max(0.0, until))

    async def stream(self, path: str, heard: Callable[[bytes | None], None], deadline: float) -> TaskStream:
        turn = self._turn
        try:
            line = await self._connected(turn, deadline)
            return TaskStream(line, path, self._metadata, heard)
        except (OSError, Disconnected) as error:
            self.move_on(turn)
            raise unreachable(self.address.endpoints[turn], error, tls=self.address.tls) from error

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        self._closed = True
        if self._line is not None:
            self._line.break_off(None)
            self._line = None
            await asyncio.sleep(0)  # the loop closes the socket in its next turn

    def drop(self) -> None:
        line = self._line
        if line is not None and line.transport is not None:
            let_go(line.transport)
            _graveyard.append(line)


_graveyard: list[Line] = []
