"""The asyncio wire: one connection to a server, shared by all tasks of a client.

Requests that tasks make in the same turn of the loop leave together, and replies come in their order,
so a future in a queue is all that a request needs. No request has a timer of its own: a watchdog
looks whether the connection still moves, and breaks it if not; whoever waited then asks again.
Only a request with little time left is watched by itself.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import hiredis

from fencelock.backends.bugs import BUGS, bug
from fencelock.backends.redis.commands import Script
from fencelock.backends.redis.failures import BACKEND, closed, no_answer, unreachable
from fencelock.backends.redis.server import Server, Stream
from fencelock.backends.redis.topology import Topology
from fencelock.backends.redis.wire import ATTEMPT, CONNECT, Call, Replies, Wire
from fencelock.runtime import clock
from fencelock.runtime.forks import let_go

__all__ = ["Connection", "MultiplexedWire", "inherited"]

BATCH = 16
_graveyard: list[Any] = []


def inherited(stream: Stream) -> None:
    """In a forked child: close the copy of a socket, and keep the rest from being cleaned up."""
    let_go(stream.transport)
    _graveyard.append(stream)


class Connection(asyncio.Protocol):
    """One connection and the requests that are under way on it."""

    def __init__(self, stream: Stream, gone: Callable[[Connection], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._pending: deque[asyncio.Future[Any]] = deque()
        self._unsent: list[bytes] = []
        self._gone = gone
        self._moved = True
        self._watchdog: asyncio.TimerHandle | None = None
        self.stream = stream
        self._write = stream.transport.write
        stream.transport.set_protocol(self)
        stream.transport.resume_reading()

    def submit(self, request: bytes) -> asyncio.Future[Any]:
        """Send a request, now or with others; the future has its reply."""
        future = self._loop.create_future()
        if self._pending:
            if not self._unsent:
                self._loop.call_soon(self._send)
            self._unsent.append(request)
            self._pending.append(future)
            if len(self._unsent) == BATCH:
                self._send()  # the server may begin while more gather
        else:
            self._pending.append(future)
            self._write(request)
            if self._watchdog is None:
                self._moved = True
                self._watchdog = self._loop.call_later(ATTEMPT / 2, self._watch)
        return future

    def _send(self) -> None:
        if self._unsent:
            self._write(b"".join(self._unsent))
            self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        self._moved = True
        reader, pending = self._reader, self._pending
        reader.feed(data)
        try:
            reply = reader.gets()
            while reply is not False:
                future = pending.popleft()
                if not future.done():
                    future.set_result(reply)
                reply = reader.gets()
        except (hiredis.ProtocolError, IndexError):  # no reply, or one that nobody asked for
            self.abort()

    def _watch(self) -> None:
        if not self._pending:
            self._watchdog = None
        elif self._moved:
            self._moved = False
            self._watchdog = self._loop.call_later(ATTEMPT / 2, self._watch)
        else:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._gone(self)
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._unsent.clear()
        why: Exception = ConnectionResetError("the connection broke")
        if isinstance(error, BUGS):
            why = bug(BACKEND, "hiredis", error)
        while self._pending:
            future = self._pending.popleft()
            if not future.done():
                future.set_exception(why)

    def abort(self) -> None:
        """Break the connection: what is under way fails."""
        self.stream.close()


class MultiplexedWire(Wire):
    """Requests over one connection to each server, for all tasks of one event loop."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        self._connections: dict[Server | None, Connection] = {}
        self._dialling: dict[Server, asyncio.Lock] = {}
        self._asides: dict[Server, Server] = {}
        self._latch = asyncio.Lock()
        self._closed = False

    async def call(self, script: Script | None, bucket: int, packed: bytes, deadline: float) -> Any:
        server = self.topology.known(bucket)
        connection = self._connections.get(server)
        if connection is not None and deadline - clock.now() >= ATTEMPT:
            try:
                reply = await connection.submit(packed)
            except ConnectionResetError:
                self.topology.suspect(server)
                return await self.persist(script, bucket, packed, deadline, again=server)
            else:
                if reply.__class__ is not hiredis.ReplyError:
                    return reply
        return await self.persist(script, bucket, packed, deadline)

    async def stream(self, calls: Iterator[Call], replies: list[Any], deadline: float) -> Iterable[Call]:
        sent: deque[Call] = deque()
        futures: deque[asyncio.Future[Any]] = deque()
        server = self.topology.known(0)
        connection = self._connections.get(server)
        try:
            while connection is not None:
                call = self.following(calls, len(sent), deadline)
                if call is not None:
                    sent.append(call)
                    futures.append(connection.submit(call.packed))
                if not sent:
                    break
                if call is None or len(sent) == 2:
                    reply = await futures[0]
                    if reply.__class__ is hiredis.ReplyError:
                        break
                    replies.append(reply)
                    sent.popleft()
                    futures.popleft()
        except ConnectionResetError:
            self.topology.suspect(server)
        finally:
            for future in futures:
                future.cancel()
        return sent

    async def ask(self, server: Server, requests: Sequence[bytes], deadline: float) -> list[Any]:
        again = False
        while True:
            old = server in self._connections
            try:
                # Also while another task connects, which may have more time than this one.
                async with asyncio.timeout(max(0.0, deadline - clock.now())):
                    connection = await self._connect(server, deadline)
            except TimeoutError as error:
                raise unreachable(server.label, error, tls=server.tls) from error
            limit = min(ATTEMPT, deadline - clock.now())
            futures = [connection.submit(request) for request in requests]
            try:
                async with asyncio.timeout(limit):
                    replies = [await future for future in futures]
                return Replies(replies) if again else replies
            except TimeoutError as error:
                if limit < ATTEMPT:
                    raise no_answer(server.label) from error
                connection.abort()
            except ConnectionResetError as error:
                if not old:
                    raise unreachable(server.label, error, tls=server.tls) from error
            finally:
                for future in futures:
                    future.cancel()
            again = True

    async def _connect(self, server: Server, deadline: float) -> Connection:
        async with self._dialling.setdefault(server, asyncio.Lock()):
            connection = self._connections.get(server)
            if connection is None:
                left = deadline - clock.now()
                if self._closed:
                    raise closed()
                if left <= 0:
                    raise no_answer(server.label)
                stream = await server.dial_async(min(left, CONNECT))
                if self._closed:  # meanwhile
                    stream.close()
                    raise closed()
                connection = Connection(stream, lambda gone: self._forget(server, gone))
                self._connections[server] = connection
            return connection

    def _forget(self, server: Server, gone: Connection) -> None:
        if self._connections.get(server) is gone:
            del self._connections[server]

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @asynccontextmanager
    async def latch(self, deadline: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(max(0.0, deadline - clock.now())):
                await self._latch.acquire()
        except TimeoutError as error:
            raise no_answer(self.topology.label) from error
        try:
            yield
        finally:
            self._latch.release()

    async def part(self, server: Server) -> None:
        connection = self._connections.get(server)
        if connection is not None:
            connection.abort()

    def aside(self, server: Server) -> Server:
        if server not in self._asides:
            self._asides[server] = copy.copy(server)  # connections are kept by identity
        return self._asides[server]

    async def close(self) -> None:
        self._closed = True
        for connection in list(self._connections.values()):
            connection.abort()
        await asyncio.sleep(0)  # the loop closes the sockets in its next turn

    def drop(self) -> None:
        for connection in self._connections.values():
            inherited(connection.stream)
        self._connections = {}
        self._dialling = {}
