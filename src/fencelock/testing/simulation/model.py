"""A backend in the simulated world: the memory backend's `Store` as a server behind a network.

The store is the reference implementation itself, with the clock injected. `Server` adds what
makes it a server: a wall clock that jumps, an operator who breaks locks and deletes
everything. `SimulatedBackend` is the client's side of it, and does each step as one request
on its link.

The server's expiry runs on a clock that does not jump (memory, SQLite), or, with
`wall_expiry`, on its wall clock, as servers do that know no other: then a jump forward ends
leases early, and what remains promised is tokens and the guard.

Pushes wake a waiter, which then asks (memory, SQLite), or, with `carries_grants`, they are the grant
themselves, as on Redis: good for as long as a waiter's place, until the first renewal.

Not modelled: a server that forgets its counter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fencelock.backends.memory import Store
from fencelock.core.ports import (
    CAPABILITIES,
    LONGEST_TTL,
    Backend,
    Busy,
    Grant,
    Outcome,
    Renewal,
    Request,
    patience,
)
from fencelock.guarantees import Guarantees
from fencelock.runtime.base import Signal
from fencelock.runtime.simulated import World
from fencelock.state import Entry, LockState
from fencelock.testing.simulation.network import Link

__all__ = ["Answered", "Server", "SimulatedBackend"]

Answered = Callable[[Request, "Grant | Busy", int], None]
"""Told of every answer to an acquire step, with the ticket the request has in the queue."""


class Server:
    """The store, and what can happen to it."""

    def __init__(self, world: World, *, wall_expiry: bool = False, carries_grants: bool = False) -> None:
        self.world = world
        self.wall_expiry = wall_expiry
        self.carries_grants = carries_grants
        self.broken = False  # an operator was here
        self.offset = 0.0  # how far its wall clock is off
        self.store = Store(now=self.now, wall=self.wall)

    def now(self) -> float:
        """The clock that deadlines are kept on."""
        return self.wall() if self.wall_expiry else self.world.now

    def wall(self) -> float:
        """The wall clock."""
        return self.world.now + self.offset

    def acquire(
        self, request: Request, wait: bool, push: Signal, lost: Callable[[str, str], None]
    ) -> tuple[Grant | Busy, int]:
        """Do an acquire step; return the request's ticket as well."""
        key = ("", request.name)
        answer = self.store.acquire(key, request, wait, push, lost)
        if isinstance(answer, Grant):
            return answer, answer.token
        return answer, self.ticket(request)

    def ticket(self, request: Request) -> int:
        """Return the token that the request stands in the queue with; 0 if it does not."""
        queue = self.store.queues.get(("", request.name), [])
        return next((record.token for record in queue if record.request is request), 0)

    def kept_until(self, request: Request, token: int) -> float | None:
        """Return the deadline of the request's record, if it has one with that token."""
        for record in self.store.queues.get(("", request.name), ()):
            if record.request.owner == request.owner and record.token == token:
                return record.deadline
        return None

    def break_lock(self, name: str) -> None:
        """An operator takes the lock away from whoever holds it."""
        self.broken = True
        self.store.force_release(("", name), None)

    def delete_everything(self) -> None:
        """An operator wipes all records. The counter is no record of a lock, and stays."""
        self.broken = True
        self.store.queues.clear()

    def left(self) -> list[LockState]:
        """Return what is still stored."""
        self.store.sweep()
        return [self.store.inspect(key) for key in self.store.queues]


class _Push:
    """Where the store signals a waiter: a message to its process."""

    __slots__ = ("_backend", "_request")

    def __init__(self, backend: SimulatedBackend, request: Request) -> None:
        self._backend = backend
        self._request = request

    def notify(self) -> None:
        backend, request = self._backend, self._request
        backend.link.push(backend.pushed, request.owner, backend.server.ticket(request))

    async def wait(self, seconds: float) -> None:
        raise NotImplementedError("the server does not wait")


class SimulatedBackend(Backend):
    """The client's side."""

    name = "simulated"
    capabilities = CAPABILITIES
    renew_batch = 3  # small, so that several batches occur

    def __init__(self, server: Server, link: Link, answered: Answered | None = None) -> None:
        self.server = server
        self.link = link
        self.answered = answered
        self.signals: dict[str, Signal] = {}
        self.tickets: dict[str, int] = {}  # the token under which each was last told to wait
        self.tokens: dict[str, int] = {}  # the token that was last pushed to each

    @classmethod
    def from_url(cls, url: str) -> SimulatedBackend:
        raise NotImplementedError("a simulated backend belongs to a world and has no URL")

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            scope="host",
            use_for="correctness",
            fencing="durable",
            crash_release="ttl",
            clock="exclusion" if self.server.wall_expiry else "nothing",
            failover="nothing",
            restart="nothing",
            fairness="fifo",
            wakeup="push",
            min_ttl=0.001,
            max_ttl=LONGEST_TTL,
        )

    def pushed(self, owner: str, token: int) -> None:
        """A push has come for a waiter."""
        signal = self.signals.get(owner)
        if signal is not None:
            self.tokens[owner] = token
            signal.notify()

    def _forget(self, owner: str) -> None:
        for table in (self.signals, self.tickets, self.tokens):
            table.pop(owner, None)

    def _tell_lost(self, owner: str, reason: str) -> None:
        self.link.push(self.lost, owner, reason)

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        owner = request.owner
        if wait and owner not in self.signals:
            self.signals[owner] = self.runtime.signal()
        push = _Push(self, request)
        answer, ticket = await self.link.request(
            "acquire", lambda: self.server.acquire(request, wait, push, self._tell_lost), deadline
        )
        if self.answered is not None:
            self.answered(request, answer, ticket)
        if isinstance(answer, Grant):
            self._forget(owner)
        else:
            self.tickets[owner] = ticket
        return answer

    async def wait(self, request: Request, deadline: float) -> Grant | None:
        owner = request.owner
        signal = self.signals.get(owner)
        if signal is None:
            return None  # closed meanwhile, as the caller will see
        await signal.wait(deadline - self.runtime.now())
        token = self.tokens.pop(owner, 0)
        if not self.server.carries_grants or not token or token != self.tickets.get(owner):
            return None
        self._forget(owner)
        return Grant(token, min(request.ttl, patience(request.ttl)))

    async def renew(self, renewals: Sequence[Renewal], *, deadline: float) -> Sequence[Outcome]:
        once = any(renewal.exact for renewal in renewals)
        return await self.link.request(
            "renew", lambda: [self._renew(renewal) for renewal in renewals], deadline, once=once
        )

    def _renew(self, renewal: Renewal) -> Outcome:
        if self.link.weather.unknown and self.link.random.random() < self.link.weather.unknown:
            return Outcome.UNKNOWN
        return self.server.store.renew(("", renewal.request.name), renewal)

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        return await self.link.request("release", lambda: self._remove(request), deadline)

    async def abandon(self, request: Request, *, deadline: float) -> None:
        self._forget(request.owner)
        await self.link.request("abandon", lambda: self._remove(request), deadline)

    def _remove(self, request: Request) -> bool:
        return self.server.store.remove(("", request.name), request.owner)

    async def inspect(self, name: str, *, deadline: float) -> LockState:
        return await self.link.request("inspect", lambda: self.server.store.inspect(("", name)), deadline)

    async def list(self, prefix: str, *, deadline: float) -> Sequence[LockState]:
        return await self.link.request("list", lambda: self.server.store.list_all("", prefix), deadline)

    async def force_release(self, name: str, owner: str | None, *, deadline: float) -> Sequence[Entry]:
        return await self.link.request(
            "force_release", lambda: self.server.store.force_release(("", name), owner), deadline
        )

    async def close(self) -> None:
        self.signals.clear()
        self.tickets.clear()
        self.tokens.clear()
