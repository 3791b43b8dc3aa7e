"""Pushes: one listening connection for each client, however many of its requests wait.

A script that admits a waiter publishes "g", its owner and its token on its client's channel; force release
publishes "x". A push counts only for the token that the waiter stood in the queue with when it was
last told to wait: a push from before an expiry, still on its way, means nothing.

A push may come before the reply that tells to wait, over the other connection; so pushes for
owners that are not known yet are kept for a while. Pushes are lost while the connection is down:
`wait` then listens anew and answers "nothing", and the waiter looks for itself. It does the same
when another server has taken over: a stopped primary does not hang up.

Blocking: nobody reads but those who wait. One of them reads for all; when it leaves, it makes
another the reader. So the one waiter of a process reads its own push, and no thread stands between.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import hiredis

from holdfast.backends.redis.blocking import BlockingWire, Link
from holdfast.backends.redis.commands import pack
from holdfast.backends.redis.multiplexed import MultiplexedWire, inherited
from holdfast.backends.redis.server import Server, Stream
from holdfast.backends.redis.wire import ATTEMPT, CONNECT
from holdfast.errors import BackendUnavailable
from holdfast.runtime import clock

__all__ = ["AsyncioListener", "BlockingListener"]

EARLY = 1024
Lost = Callable[[str, str], None]


class Early:
    """Pushes for owners that nobody waits for yet, the latest so many."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}

    def put(self, owner: str, token: int) -> None:
        if len(self._tokens) >= EARLY:
            self._tokens.clear()  # they cost latency, not liveness
        self._tokens[owner] = token

    def take(self, owner: str) -> int | None:
        return self._tokens.pop(owner, None) if self._tokens else None


def read(message: Any) -> tuple[str, str, int] | None:
    """Return kind, owner and token of a push; `None` for what else a subscription says."""
    if not isinstance(message, list) or message[0] != b"message":
        return None
    text = message[2].decode("ascii", "replace")
    return text[0], text[1:33], int(text[33:])


class Slot:
    """Where a waiting thread is told something: its token, or that it must look for itself."""

    __slots__ = ("signal", "stale", "token")

    def __init__(self) -> None:
        self.token: int | None = None
        self.stale = False
        self.signal = threading.Lock()
        self.signal.acquire()

    def tap(self) -> None:
        try:
            self.signal.release()
        except RuntimeError:
            return  # it was tapped already


class BlockingListener:
    """Pushes for the threads of a client."""

    def __init__(self, wire: BlockingWire, channel: bytes, lost: Lost) -> None:
        self._wire = wire
        self._channel = channel
        self._lost = lost
        self._link: Link | None = None
        self._server: Server | None = None
        self._reading = threading.Lock()
        self._slots: dict[str, Slot] = {}
        self._early = Early()

    async def wait(self, owner: str, token: int, deadline: float) -> bool:
        """Return whether the request was pushed a grant under this token, by the deadline."""
        slot = self._slots[owner] = Slot()
        slot.token = self._early.take(owner)
        try:
            while slot.token != token and not slot.stale:
                left = deadline - clock.now()
                if left <= 0:
                    return False
                if not self._reading.acquire(blocking=False):
                    slot.signal.acquire(timeout=left)
                    continue
                try:
                    await self._read(deadline)
                finally:
                    self._reading.release()
            return slot.token == token
        finally:
            del self._slots[owner]
            if self._slots and not self._reading.locked():
                self._appoint()

    def _appoint(self) -> None:
        for slot in list(self._slots.values()):
            slot.tap()
            return

    async def _read(self, deadline: float) -> None:
        if self._server is not self._wire.topology.home():
            self._hang_up()
        link = self._link
        if link is None:
            await self._listen(deadline)
            self._all_look()  # for what was pushed while nobody listened
            return
        try:
            message = link.receive(deadline)
            while message is not False:
                self._deliver(message)
                message = link.next()
        except (BlockingIOError, TimeoutError):
            return
        except (OSError, hiredis.ProtocolError):
            self._hang_up()
        except BaseException:
            self._hang_up()
            raise

    async def _listen(self, deadline: float) -> None:
        server = await self._wire.topology.learn(0, self._wire, deadline)
        link: Link | None = None
        try:
            link = self._wire.dial(server, min(CONNECT, max(0.001, deadline - clock.now())))
            link.send(pack("SUBSCRIBE", self._channel))
            answer = link.receive(min(deadline, clock.now() + ATTEMPT))
        except BaseException as error:
            self._wire.topology.suspect(server)
            if link is not None:
                link.close()  # the error's traceback keeps it, and the socket with it
            if isinstance(error, OSError | hiredis.ProtocolError):
                raise BackendUnavailable(backend="redis", detail=f"{server.label}: no pushes") from error
            raise
        if isinstance(answer, hiredis.ReplyError):
            link.close()
            raise BackendUnavailable(backend="redis", detail=f"{server.label}: {answer}", transient=False)
        self._link, self._server = link, server

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        self._all_look()

    def _all_look(self) -> None:
        for slot in list(self._slots.values()):
            slot.stale = True
            slot.tap()

    def _deliver(self, message: Any) -> None:
        push = read(message)
        if push is None:
            return
        kind, owner, token = push
        if kind == "x":
            self._lost(owner, "it was force-released")
            return
        slot = self._slots.get(owner)
        if slot is None:
            self._early.put(owner, token)
            slot = self._slots.get(owner)  # it may have come meanwhile, and found nothing
        if slot is not None:
            slot.token = token
            slot.tap()

    async def close(self) -> None:
        """Stop listening."""
        self._hang_up()

    def drop(self) -> None:
        """In a forked child: the parent goes on listening."""
        if self._link is not None:
            self._link.close()


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


class AsyncioListener:
    """Pushes for the tasks of a client."""

    def __init__(self, wire: MultiplexedWire, channel: bytes, lost: Lost) -> None:
        self._wire = wire
        self._channel = channel
        self._lost = lost
        self._subscription: Subscription | None = None
        self._server: Server | None = None
        self._listening: asyncio.Lock | None = None
        self._slots: dict[str, tuple[int, asyncio.Future[bool]]] = {}
        self._early = Early()

    async def wait(self, owner: str, token: int, deadline: float) -> bool:
        """Return whether the request was pushed a grant under this token, by the deadline."""
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
                    raise BackendUnavailable(backend="redis", detail=f"{server.label}: no pushes") from error
                raise
            if isinstance(answer, hiredis.ReplyError):
                stream.close()
                raise BackendUnavailable(backend="redis", detail=f"{server.label}: {answer}", transient=False)
            self._subscription, self._server = subscription, server

    def deliver(self, message: Any) -> None:
        """Pass a push on."""
        push = read(message)
        if push is None:
            return
        kind, owner, token = push
        if kind == "x":
            self._lost(owner, "it was force-released")
            return
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
        """Stop listening."""
        if self._subscription is not None:
            self._subscription.stream.close()
            await asyncio.sleep(0)

    def drop(self) -> None:
        """In a forked child: the parent goes on listening."""
        if self._subscription is not None:
            inherited(self._subscription.stream)


def _set(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)
