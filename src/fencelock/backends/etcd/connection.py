"""How fencelock talks to etcd: calls to whichever member answers, and a channel for watches.

Every call may be repeated: what it does, it does once, by the owner's id, the lease's id or the revision it
compares with. So one that got no answer is made again, to the next member, until its deadline. A member
that has no leader says so at once (the `hasleader` header): a client on the wrong side of a partition
moves on instead of waiting.

All tasks share one connection: calls of HTTP/2 do not wait for each other. Of threads each call has one for
itself: a signal's handler may call as well, in the middle of a call of its own thread that reads for others.
"""

from __future__ import annotations

import ssl
import weakref
from functools import partial
from typing import Any

from fencelock.backends.etcd import rpc_pb2 as pb
from fencelock.backends.etcd.address import Address
from fencelock.backends.etcd.calls import Calls, Metadata, Question, Reply, Watching
from fencelock.backends.etcd.failures import FAILURES, Kind, kind_of, said
from fencelock.backends.etcd.methods import AUTHENTICATE, WATCH, Method
from fencelock.net.channel import Channel
from fencelock.net.connecting import Connector, Target
from fencelock.net.exchange import Connection
from fencelock.net.failures import Disconnected
from fencelock.net.pool import Pool
from fencelock.net.retry import Servers
from fencelock.net.turns import Turns
from fencelock.runtime.base import Runtime

__all__ = ["Etcd", "LeaseGone"]

MOST_TASKS = 256
"""Tasks that call at a time. More would only wait at the server, and look as if it hung."""
MOST_THREADS = 1024
IDLE = 32
"""Connections of threads that are kept for later."""
LOGINS = 3
"""So often a call is made anew since its token has expired."""
ASK_FOR_A_LEADER = ("hasleader", "true")


class LeaseGone(Exception):
    """The server does not have the lease that was named."""


class Etcd:
    """The members of a cluster, as one client sees them."""

    def __init__(self, runtime: Runtime, address: Address) -> None:
        self.address = address
        self.was_reached = False
        """Whether anything was listening, so that it may have done what was asked."""
        self._runtime = runtime
        self._metadata: Metadata = (ASK_FOR_A_LEADER,)
        self._has_token = False
        self._tls: ssl.SSLContext | None = None
        self._scheme = "https" if address.tls else "http"
        self._connector = Connector(runtime)
        self._servers = Servers(runtime, FAILURES, address.endpoints, tls=address.tls)
        self._is_shared = runtime.flavour == "asyncio"
        most, share = (1, MOST_TASKS) if self._is_shared else (MOST_THREADS, 1)
        self._pool = Pool(runtime, FAILURES, self._connection, most=most, idle=IDLE, share=share)
        self._under_way = 0
        self._turns = Turns(runtime)
        """Tasks that wait until there is room. A member's time to answer begins after that."""
        self._channels: weakref.WeakSet[Channel[bytes, bytes]] = weakref.WeakSet()
        self._is_closed = False

    @property
    def current(self) -> str:
        """The member that is asked now."""
        return self._servers.current

    def _connection(self, endpoint: str) -> Connection[Question, Reply]:
        protocol = Calls(endpoint, self._scheme)
        return Connection(self._runtime, self._connector, self._target(endpoint), protocol)

    def _target(self, endpoint: str) -> Target:
        if self._tls is None:
            self._tls = self.address.context()  # reads the files, once
        return Target(endpoint, self._tls, self.address.server_name)

    # Calls ------------------------------------------------------------------------------------

    async def call(self, method: Method, request: Any, deadline: float, tag: str = "") -> Any:
        """Return the answer of whichever member gives one. Raises `LeaseGone`. See `settle` for `tag`."""
        return (await self.call_counted(method, request, deadline, tag))[0]

    async def call_counted(
        self, method: Method, request: Any, deadline: float, tag: str = ""
    ) -> tuple[Any, bool]:
        """The same, and whether the call may have been done before by its own sending."""
        attempt = partial(self._ask, method.path, method.write(request), tag)
        if self._is_shared and (self._turns.line or self._has_room() is None):
            await self._wait_for_room(deadline)
        self._under_way += 1
        try:
            answer, again = await self._servers.ask(attempt, deadline)
        finally:
            self._under_way -= 1
            if self._turns.line:
                self._turns.call()
        return method.read(answer), again

    def _has_room(self) -> bool | None:
        return self._under_way < MOST_TASKS or None

    async def _wait_for_room(self, deadline: float) -> None:
        try:
            await self._turns.wait(self._has_room, deadline)
        except TimeoutError as error:
            raise FAILURES.no_answer(self.address.label) from error

    async def settle(self, tag: str, deadline: float) -> None:
        """Wait for the answer to the call of this tag that was given up, if it comes."""
        await self._pool.settle(tag, deadline, self.address.label)

    async def _ask(self, path: str, body: bytes, tag: str, endpoint: str, until: float) -> bytes:
        """Make a call to one member, logged in if there are users."""
        for _ in range(LOGINS):
            if self.address.user is not None and not self._has_token:
                await self._log_in(endpoint, until)
            metadata = self._metadata
            try:
                status, message = await self._pool.ask(endpoint, Question(path, metadata, body), until, tag)
            except ConnectionRefusedError:
                raise
            except BaseException:
                self.was_reached = True
                raise
            self.was_reached = True
            kind = kind_of(status) if status.code else None
            if kind is None:
                return _one(message)
            if kind is Kind.LEASE:
                raise LeaseGone from status
            if kind is not Kind.LOGIN:
                raise said(endpoint, status) from status
            if self._metadata is metadata:  # else another call has renewed it meanwhile
                self._has_token, self._metadata = False, (ASK_FOR_A_LEADER,)
        raise FAILURES.unavailable(f"{endpoint}: it does not take the token that it gave")

    async def _log_in(self, endpoint: str, until: float) -> None:
        request = pb.AuthenticateRequest(name=self.address.user, password=self.address.password)
        question = Question(AUTHENTICATE.path, (ASK_FOR_A_LEADER,), AUTHENTICATE.write(request))
        status, message = await self._pool.ask(endpoint, question, until)
        if status.code:
            raise said(endpoint, status) from status
        self._metadata = (ASK_FOR_A_LEADER, ("token", AUTHENTICATE.read(_one(message)).token))
        self._has_token = True

    # Watches ----------------------------------------------------------------------------------

    async def channel(self, deadline: float) -> Channel[bytes, bytes]:
        """Open a channel for watches to the member that is asked now."""
        endpoint = self.current
        protocol = Watching(endpoint, self._scheme, WATCH.path, self._metadata)
        channel = Channel(self._runtime, self._connector, self._target(endpoint), protocol)
        self._channels.add(channel)
        try:
            await channel.open(deadline)
        except (Disconnected, OSError) as error:
            raise FAILURES.unreachable(endpoint, error, tls=self.address.tls) from error
        if self._is_closed:
            channel.close()
            raise FAILURES.closed()
        return channel

    # The end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close every connection; channels end."""
        self._is_closed = True
        self._servers.close()
        for channel in list(self._channels):
            channel.hang_up()
        await self._pool.close()

    def drop(self) -> None:
        """In a forked child: let go of every connection, without a word to the server."""
        self._pool.drop()
        for channel in list(self._channels):
            channel.drop()


def _one(message: bytes | None) -> bytes:
    if message is None:
        raise Disconnected("it answered with nothing")
    return message
