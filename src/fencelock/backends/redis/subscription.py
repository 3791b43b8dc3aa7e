"""Listening for pushes under asyncio: one subscription for all tasks. See `fencelock.backends.pushes`."""

from __future__ import annotations

import asyncio
from typing import Any

import hiredis

from fencelock.backends.pushes import Lost, TaskListener
from fencelock.backends.redis.commands import pack
from fencelock.backends.redis.failures import closed, no_pushes
from fencelock.backends.redis.listening import read
from fencelock.backends.redis.multiplexed import MultiplexedWire, inherited
from fencelock.backends.redis.server import Server, Stream
from fencelock.backends.redis.wire import ATTEMPT, CONNECT
from fencelock.runtime import clock

__all__ = ["Subscription", "TaskSubscription"]


class Subscription(asyncio.Protocol):
    """The listening connection under asyncio."""

    def __init__(self, stream: Stream, listener: TaskSubscription, subscribed: asyncio.Future[Any]) -> None:
        self.stream = stream
        self._listener = listener
        self._reader = hiredis.Reader()
        self._subscribed = subscribed
        stream.transport.set_protocol(self)
        stream.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            message = self._reader.gets()
            while message is not False:
                if not self._subscribed.done():
                    self._subscribed.set_result(message)
                push = read(message)
                if push is not None:
                    self._listener.deliver(push)
                message = self._reader.gets()
        except hiredis.ProtocolError:
            self.stream.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._subscribed.done():
            self._subscribed.set_exception(ConnectionResetError("the connection broke"))
        self._listener.broken(self)


class TaskSubscription(TaskListener):
    """Pushes for the tasks of a client, by PUBLISH on its channel."""

    def __init__(self, wire: MultiplexedWire, channel: bytes, lost: Lost) -> None:
        super().__init__(lost)
        self._wire = wire
        self._channel = channel
        self._closed = False
        self._subscription: Subscription | None = None
        self._server: Server | None = None
        """Whom it listens to, or last did."""

    def _is_listening(self) -> bool:
        if self._subscription is not None and self._server is not self._wire.topology.home():
            self._subscription.stream.close()
            self._subscription = None
        return self._subscription is not None

    async def _listen(self, deadline: float) -> None:
        server = await self._wire.topology.learn(0, self._wire, deadline)
        try:
            stream = await server.dial_async(min(CONNECT, max(0.001, deadline - clock.now())))
        except BaseException:
            self._wire.topology.suspect(server)
            raise
        subscribed = asyncio.get_running_loop().create_future()
        subscription = Subscription(stream, self, subscribed)
        try:
            stream.transport.write(pack("SUBSCRIBE", self._channel))
            async with asyncio.timeout(ATTEMPT):
                answer = await subscribed
        except BaseException as error:
            stream.close()
            if isinstance(error, OSError):  # TimeoutError is one
                self._wire.topology.suspect(server)
                raise no_pushes(server.label) from error
            raise
        if isinstance(answer, hiredis.ReplyError):
            stream.close()
            raise no_pushes(server.label, answer, transient=False)
        if self._closed:  # meanwhile
            stream.close()
            raise closed()
        self._subscription, self._server = subscription, server

    def broken(self, subscription: Subscription) -> None:
        """The connection is gone: everybody must look for itself."""
        if self._subscription is subscription:
            self._subscription = None
        self._all_look()

    async def close(self) -> None:
        self._closed = True
        if self._subscription is not None:
            self._subscription.stream.close()
            await asyncio.sleep(0)

    def drop(self) -> None:
        if self._subscription is not None:
            inherited(self._subscription.stream)
