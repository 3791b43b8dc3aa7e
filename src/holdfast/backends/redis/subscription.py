"""Listening for pushes under asyncio: one subscription for all tasks. `pushes.py` tells what a push means."""

from __future__ import annotations

import asyncio
from typing import Any

import hiredis

from holdfast.backends.redis.commands import pack
from holdfast.backends.redis.failures import closed
from holdfast.backends.redis.multiplexed import MultiplexedWire, inherited
from holdfast.backends.redis.pushes import Listener, Lost, no_pushes
from holdfast.backends.redis.server import Stream
from holdfast.backends.redis.wire import ATTEMPT, CONNECT
from holdfast.runtime import clock

__all__ = ["AsyncioListener", "Subscription"]


class Subscription(asyncio.Protocol):
    """The listening connection under asyncio."""

    def __init__(self, stream: Stream, listener: AsyncioListener, subscribed: asyncio.Future[Any]) -> None:
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
                self._listener.deliver(message)
                message = self._reader.gets()
        except hiredis.ProtocolError:
            self.stream.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._subscribed.done():
            self._subscribed.set_exception(ConnectionResetError("the connection broke"))
        self._listener.broken(self)


class AsyncioListener(Listener):
    """Pushes for the tasks of a client."""

    def __init__(self, wire: MultiplexedWire, channel: bytes, lost: Lost) -> None:
        super().__init__(lost)
        self._wire = wire
        self._channel = channel
        self._closed = False
        self._subscription: Subscription | None = None
        self._listening: asyncio.Lock | None = None
        self._slots: dict[str, tuple[int, asyncio.Future[bool]]] = {}

    async def wait(self, owner: str, token: int, deadline: float) -> bool:
        if self._subscription is not None and self._server is not self._wire.topology.home():
            self._subscription.stream.close()
            self._subscription = None
        if self._subscription is None:
            try:
                async with asyncio.timeout(max(0.0, deadline - clock.now())):
                    await self._listen(deadline)
            except TimeoutError:  # it may have waited for another that tries to listen
                pass
            return False
        if self._early.take(owner) == token:
            return True
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._slots[owner] = token, future
        timer = loop.call_later(max(0.0, deadline - clock.now()), _set, future, False)
        try:
            return await future
        finally:
            timer.cancel()
            del self._slots[owner]

    async def _listen(self, deadline: float) -> None:
        if self._listening is None:
            self._listening = asyncio.Lock()
        async with self._listening:
            if self._subscription is not None:
                return
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
                    raise no_pushes(server) from error
                raise
            if isinstance(answer, hiredis.ReplyError):
                stream.close()
                raise no_pushes(server, answer, transient=False)
            if self._closed:  # meanwhile
                stream.close()
                raise closed()
            self._subscription, self._server = subscription, server

    def granted(self, owner: str, token: int) -> None:
        slot = self._slots.get(owner)
        if slot is None:
            self._early.put(owner, token)
        elif slot[0] == token:
            _set(slot[1], True)

    def broken(self, subscription: Subscription) -> None:
        """The connection is gone: everybody must look for itself."""
        if self._subscription is subscription:
            self._subscription = None
        for _, future in self._slots.values():
            _set(future, False)

    async def close(self) -> None:
        self._closed = True
        if self._subscription is not None:
            self._subscription.stream.close()
            await asyncio.sleep(0)

    def drop(self) -> None:
        if self._subscription is not None:
            inherited(self._subscription.stream)


def _set(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)
