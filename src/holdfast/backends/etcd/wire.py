"""The wire: calls to whichever member answers.

Every call may be repeated: what it does, it does once, by the owner's id, the lease's id or the revision it
compares with. So one that got no answer is made again, to the next member, until its deadline. A member
that has no leader says so at once (the `hasleader` header): a client on the wrong side of a partition
moves on instead of waiting.

gRPC's ordinary channels serve both flavours. Under asyncio a call's end is passed to the event loop;
`grpc.aio` has a poller of its own that does not survive a fork.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from typing import Any

import grpc

from holdfast.backends.etcd import rpc_pb2 as pb
from holdfast.backends.etcd.address import Address
from holdfast.backends.etcd.failures import Kind, closed, kind_of, no_answer, said
from holdfast.backends.etcd.methods import AUTHENTICATE, Method
from holdfast.errors import BackendUnavailable
from holdfast.runtime import clock

__all__ = ["AsyncWire", "BlockingWire", "LeaseGone", "Wire"]

ATTEMPT = 2.0
"""Seconds that one member has to answer."""
PAUSE = 0.05
OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", -1),
]
_graveyard: list[Any] = []


class LeaseGone(Exception):
    """The server does not have the lease that was named."""


class Wire(ABC):
    """Calls over one channel at a time."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._turn = 0
        self._channels: dict[int, grpc.Channel] = {}
        self._calls: dict[tuple[int, str], Any] = {}
        self._metadata: tuple[tuple[str, str], ...] = (("hasleader", "true"),)
        self._token = ""
        self._closed = False

    @property
    def label(self) -> str:
        """The member that is asked now."""
        return self.address.endpoints[self._turn]

    async def call(self, method: Method, request: Any, deadline: float) -> Any:
        """Return the answer of whichever member gives one."""
        return (await self.call_counted(method, request, deadline))[0]

    async def call_counted(self, method: Method, request: Any, deadline: float) -> tuple[Any, bool]:
        """The same, and whether the call was made more than once."""
        again = False
        failures: list[BackendUnavailable] = []
        while True:
            if self._closed:
                raise closed()
            turn = self._turn
            left = deadline - clock.now()
            if left <= 0:
                raise failures[0] if failures else no_answer(self.address.label)
            try:
                if self.address.user is not None and not self._token:
                    await self._log_in(turn, deadline)
                return await self._call(self._stub(turn, method), request, min(left, ATTEMPT)), again
            except grpc.RpcError as error:
                kind = kind_of(error)
                if kind is Kind.LEASE:
                    raise LeaseGone from error
                failure = said(self.address.endpoints[turn], error)
                failure.__cause__ = error
            except ValueError:  # the channel was closed under its hands
                if self._closed:
                    raise closed() from None
                raise
            if kind is Kind.LOGIN:
                self._forget_token()
            elif kind is Kind.ELSEWHERE:
                self._move_on(turn)
            else:
                raise failure
            failures.append(failure)
            again = True
            if len(failures) % len(self.address.endpoints) == 0:
                await self._pause(min(PAUSE, max(0.0, deadline - clock.now())))

    async def _log_in(self, turn: int, deadline: float) -> None:
        request = pb.AuthenticateRequest(name=self.address.user, password=self.address.password)
        limit = min(ATTEMPT, deadline - clock.now())
        self._token = (await self._call(self._stub(turn, AUTHENTICATE), request, limit)).token
        self._metadata = (("hasleader", "true"), ("token", self._token))

    def _forget_token(self) -> None:
        self._token = ""
        self._metadata = (("hasleader", "true"),)

    def _move_on(self, turn: int) -> None:
        with self._lock:
            if self._turn == turn:
                self._turn = (turn + 1) % len(self.address.endpoints)

    def channel(self, turn: int) -> grpc.Channel:
        """Return the channel to a member."""
        with self._lock:
            if self._closed:
                raise closed()
            channel = self._channels.get(turn)
            if channel is None:
                target = self.address.endpoints[turn]
                credentials = self.address.credentials()
                options = OPTIONS
                if self.address.server_name is not None:
                    options = [*OPTIONS, ("grpc.ssl_target_name_override", self.address.server_name)]
                if credentials is None:
                    channel = grpc.insecure_channel(target, options)
                else:
                    channel = grpc.secure_channel(target, credentials, options)
                self._channels[turn] = channel
            return channel

    def _stub(self, turn: int, method: Method) -> Any:
        stub = self._calls.get((turn, method.path))
        if stub is None:
            stub = self.channel(turn).unary_unary(method.path, method.write, method.read)
            self._calls[turn, method.path] = stub
        return stub

    def stream(self, method: Method, requests: Any) -> Any:
        """Begin a stream to the member that is asked now; return its answers, to be read by a thread."""
        turn = self._turn
        stub = self.channel(turn).stream_stream(method.path, method.write, method.read)
        return stub(requests, metadata=self._metadata)

    @abstractmethod
    async def _call(self, stub: Any, request: Any, limit: float) -> Any:
        """Make one call."""

    @abstractmethod
    async def _pause(self, seconds: float) -> None:
        """Do nothing for so long."""

    def close(self) -> None:
        """Close every channel."""
        with self._lock:
            self._closed = True
            channels = list(self._channels.values())
            self._channels.clear()
            self._calls.clear()
        for channel in channels:
            channel.close()

    def drop(self) -> None:
        """In a forked child: the channels are the parent's, and are not even closed here."""
        _graveyard.append((self._channels, self._calls))


class BlockingWire(Wire):
    """Calls on the caller's thread."""

    async def _call(self, stub: Any, request: Any, limit: float) -> Any:
        return stub(request, timeout=limit, metadata=self._metadata)

    async def _pause(self, seconds: float) -> None:
        threading.Event().wait(seconds)


class AsyncWire(Wire):
    """Calls that a task awaits."""

    async def _call(self, stub: Any, request: Any, limit: float) -> Any:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        call = stub.future(request, timeout=limit, metadata=self._metadata)

        def end() -> None:
            if not ended.done():
                ended.set_result(None)

        def done(_: Any) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(end)

        call.add_done_callback(done)
        try:
            await ended
        except BaseException:
            call.cancel()
            raise
        return call.result()

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
