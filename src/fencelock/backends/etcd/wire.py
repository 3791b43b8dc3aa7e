"""The wire: calls to whichever member answers.

Every call may be repeated: what it does, it does once, by the owner's id, the lease's id or the revision it
compares with. So one that got no answer is made again, to the next member, until its deadline. A member
that has no leader says so at once (the `hasleader` header): a client on the wrong side of a partition
moves on instead of waiting.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from fencelock.backends.etcd import rpc_pb2 as pb
from fencelock.backends.etcd.address import Address
from fencelock.backends.etcd.failures import Kind, closed, kind_of, no_answer, said, unreachable
from fencelock.backends.etcd.methods import AUTHENTICATE, Method
from fencelock.backends.etcd.protocol import Disconnected, Status
from fencelock.errors import BackendUnavailable
from fencelock.runtime import clock

__all__ = ["ATTEMPT", "CONNECT", "LeaseGone", "Stream", "Wire"]

ATTEMPT = 2.0
"""Seconds that one member has to answer."""
CONNECT = 1.5
"""Seconds that one member has to take a connection."""
PAUSE = 0.05
ASK_FOR_A_LEADER = ("hasleader", "true")

Metadata = tuple[tuple[str, str], ...]


class LeaseGone(Exception):
    """The server does not have the lease that was named."""


class Stream(Protocol):
    """A call of many messages, both ways. `heard` gets each answer as bytes, and `None` at the end."""

    def send(self, message: bytes) -> None: ...
    def end(self) -> None: ...


class Wire(ABC):
    """Calls to the members of a cluster, one at a time. A subclass has the connections."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._turn = 0
        self._metadata: Metadata = (ASK_FOR_A_LEADER,)
        self._token = ""
        self._closed = False
        self.was_reached = False
        """Whether anything was listening, so that it may have done what was asked."""

    async def call(self, method: Method, request: Any, deadline: float) -> Any:
        """Return the answer of whichever member gives one."""
        return (await self.call_counted(method, request, deadline))[0]

    async def call_counted(self, method: Method, request: Any, deadline: float) -> tuple[Any, bool]:
        """The same, and whether the call may have been done before by its own sending."""
        again = False
        failures: list[BackendUnavailable] = []
        body = method.write(request)
        while True:
            turn, now = self._turn, clock.now()
            if self._closed:
                raise closed()
            if now >= deadline:
                raise failures[0] if failures else no_answer(self.address.label)
            try:
                if self.address.user is not None and not self._token:
                    await self._log_in(turn, deadline)
                answer = await self._call(turn, method.path, body, deadline)
                self.was_reached = True
                return method.read(answer), again
            except Status as error:
                kind = kind_of(error)
                if kind is Kind.LEASE:
                    raise LeaseGone from error
                self.was_reached = True
                failure = said(self.address.endpoints[turn], error)
                failure.__cause__ = error
                again = again or kind is Kind.ELSEWHERE
            except (Disconnected, OSError) as error:
                kind = Kind.ELSEWHERE
                self.was_reached = self.was_reached or not isinstance(error, ConnectionRefusedError)
                failure = unreachable(self.address.endpoints[turn], error, tls=self.address.tls)
                failure.__cause__ = error
                again = True
                if not failure.transient:
                    raise failure from error
            except BaseException:  # it was interrupted, and may be under way
                self.was_reached = True
                raise
            if kind is Kind.LOGIN:
                self._token, self._metadata = "", (ASK_FOR_A_LEADER,)
            elif kind is Kind.ELSEWHERE:
                self.move_on(turn)
            else:
                raise failure
            failures.append(failure)
            if len(failures) % len(self.address.endpoints) == 0:
                await self._pause(min(PAUSE, max(0.0, deadline - clock.now())))

    async def _log_in(self, turn: int, deadline: float) -> None:
        request = pb.AuthenticateRequest(name=self.address.user, password=self.address.password)
        answer = await self._call(turn, AUTHENTICATE.path, AUTHENTICATE.write(request), deadline)
        self._token = AUTHENTICATE.read(answer).token
        self._metadata = (ASK_FOR_A_LEADER, ("token", self._token))

    @property
    def turn(self) -> int:
        """Which member is asked now."""
        return self._turn

    def move_on(self, turn: int) -> None:
        """Ask the next member from now on, if this one is still asked."""
        if self._turn == turn:
            self._turn = (turn + 1) % len(self.address.endpoints)

    @abstractmethod
    async def _call(self, turn: int, path: str, body: bytes, deadline: float) -> bytes:
        """Make one call to one member, for `ATTEMPT` seconds. Raises `Status`, `Disconnected`, `OSError`."""

    @abstractmethod
    async def settle(self, deadline: float) -> None:
        """Wait until calls that were interrupted have their answers: what comes next comes after them."""

    @abstractmethod
    async def stream(self, path: str, heard: Callable[[bytes | None], None], deadline: float) -> Stream:
        """Begin a stream to the member that is asked now. Raises `BackendUnavailable`."""

    @abstractmethod
    async def _pause(self, seconds: float) -> None:
        """Do nothing for so long."""

    @abstractmethod
    async def close(self) -> None:
        """Close every connection."""

    @abstractmethod
    def drop(self) -> None:
        """In a forked child: let go of every connection, without a word to the server."""
