"""What core and backends share: the contract of a backend, a dozen steps written as postconditions.

A backend keeps, for each lock name, a queue of requests ordered by token (see `fencelock.core.queue`). Every
request has one *deadline*, whether it holds or waits: when it has passed, the request counts as gone, though
its record may still lie there. A step that finds the request admitted sets the deadline to `ttl` from now; a
step that finds it waiting sets it to `patience` from now. So a crashed holder leaves by its ttl, and a
crashed waiter costs those behind it a bounded few seconds, also if its turn came while it was dead.

Rules for all steps:

- Each is idempotent under the request's owner id: done twice, it is as if done once.
- Each ends by its `deadline` (on the runtime's clock), with a result or an error.
- Each either happens as a whole or not at all.
- "The driver failed and I do not know" is `BackendUnavailable`. Never a grant.
- "This client's other requests had every connection" is `PoolExhausted`: the server has not failed.
- Cancelled or interrupted at any point, a step leaves at most what `abandon` removes.

`backends/memory.py` is the reference. Read it first. Third-party backends import `fencelock.backends.base`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from fencelock.core.queue import Mode
from fencelock.errors import BackendUnavailable, Unsupported
from fencelock.findings import Finding, Pulse

if TYPE_CHECKING:
    from fencelock.guarantees import Guarantees
    from fencelock.runtime.base import Runtime
    from fencelock.state import Entry, LockState

__all__ = [
    "CAPABILITIES",
    "LONGEST_TTL",
    "STEP_LIMIT",
    "Backend",
    "Busy",
    "Grant",
    "Origin",
    "Outcome",
    "PoolExhausted",
    "Renewal",
    "Request",
    "patience",
]

CAPABILITIES = frozenset({"exclusive", "shared", "permit", "fifo", "inspect", "list", "force_release"})
"""What a backend may declare. What it does not declare raises `Unsupported`."""

LONGEST_TTL = 1e9
"""Seconds, some thirty years: what a store keeps whose own limit is further away."""
STEP_LIMIT = 5.0
"""No single step of a backend takes longer, in seconds."""
LONGEST_PATIENCE = 3.0
OBSERVE_INTERVAL = 0.25


def patience(ttl: float) -> float:
    """Return how long a waiter may be silent before it loses its place.

    Long enough to survive a busy machine, short enough that a dead waiter delays the others by a few seconds
    only, and never by more than the ttl and two seconds.
    """
    return min(LONGEST_PATIENCE, ttl + 2.0)


class Origin(NamedTuple):
    """Where a request comes from, for people to read. Never an identity."""

    client: str
    host: str
    pid: int


class Request:
    """One acquisition's place in a queue. `owner` is its identity: random, used once."""

    __slots__ = ("limit", "metadata", "mode", "name", "origin", "owner", "ttl")

    def __init__(
        self, owner: str, name: str, mode: Mode, limit: int, ttl: float, origin: Origin, metadata: str | None
    ) -> None:
        self.owner = owner
        self.name = name
        self.mode = mode
        self.limit = limit
        self.ttl = ttl
        self.origin = origin
        self.metadata = metadata

    def __repr__(self) -> str:
        return f"<Request {self.owner[:8]} {self.mode} {self.name!r}>"


class Grant:
    """The request is admitted. `validity` counts from before the request was sent."""

    __slots__ = ("token", "validity")

    def __init__(self, token: int, validity: float) -> None:
        self.token = token
        self.validity = validity


class Busy:
    """The request is not admitted.

    `recheck`: in how many seconds something before it may have expired. `holder`, where the backend knows it.
    """

    __slots__ = ("holder", "recheck")

    def __init__(self, recheck: float, holder: Entry | None) -> None:
        self.recheck = recheck
        self.holder = holder


class PoolExhausted(BackendUnavailable):
    """The client's other requests had every connection until the deadline, and the server answered them.

    From `acquire`: nothing was sent in this step. The caller gets `AcquireTimeout`: the server is well.
    """

    def __init__(self, *, backend: str, label: str) -> None:
        detail = f"{label}: this client's other requests had every connection (see pool_size)"
        super().__init__(backend=backend, detail=detail)


class Renewal(NamedTuple):
    """One lease to renew. Without `extend` it is only looked at.

    `exact`: its holder asked for a shorter ttl, so the deadline moves back.
    """

    request: Request
    token: int
    ttl: float
    extend: bool
    exact: bool = False


class Outcome(Enum):
    """What became of a renewal."""

    RENEWED = "renewed"  # it is held, and its deadline is now a ttl from before the call
    HELD = "held"  # it is held; nothing was changed
    LOST = "lost"  # it is gone, and nothing brings it back
    UNKNOWN = "unknown"  # no answer: ask again


class Backend(ABC):
    """A place that keeps queues. One backend object belongs to one client."""

    name: ClassVar[str]
    """One word for messages: `sqlite`."""
    capabilities: ClassVar[frozenset[str]]
    """A subset of `CAPABILITIES`."""
    renew_batch: ClassVar[int] = 500
    """How many leases one call of `renew` is given at most."""
    default_port: ClassVar[int | None] = None
    """The port of a host that the URL gives without one, if clients connect to those hosts and no others. The
    conformance suite then puts relays in front of them, which lose and delay what passes."""

    runtime: Runtime
    namespace: str = ""
    closing: bool = False
    """The client is being closed: a step that waits for something may end."""

    @classmethod
    @abstractmethod
    def from_url(cls, url: str) -> Backend:
        """Make a backend from its URL. No I/O. Raises `ConfigurationError` for a bad URL."""

    def open(self, runtime: Runtime, namespace: str, lost: Callable[[str, str], None]) -> None:
        """Bind to a runtime, before any other step. No I/O.

        `lost(owner, reason)` may be called from any thread as soon as the backend knows that a lease has
        ended, for instance because its session did. It need not be: renewals find out.
        """
        self.runtime = runtime
        self.namespace = namespace
        self.lost = lost

    @property
    @abstractmethod
    def guarantees(self) -> Guarantees:
        """What this backend promises. No I/O."""

    @abstractmethod
    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        """Stand in the queue, and perhaps be admitted.

        After `Grant` the request holds the lock for `validity` seconds, and its token is larger than that of
        every grant for this name that was complete before this request first stood in the queue. After
        `Busy` with `wait` the request stands in the queue, where it was if it stood there already, for
        another `patience(ttl)` seconds; without `wait` nothing is left behind. A permit whose limit differs
        from the one in use is `ConfigurationError`.
        """

    @abstractmethod
    async def wait(self, request: Request, deadline: float) -> Grant | None:
        """Wait for a sign that the request's turn has come, until `deadline`.

        A `Grant` means that it has, counted from before the latest `acquire` step was sent.
        `None` says nothing: take another `acquire` step.
        """

    def wake(self) -> None:
        """The client is closing: every `wait` that is under way returns now. From any thread.

        This one does nothing: each `wait` then ends by its own deadline, a second later at most.
        """

    @abstractmethod
    async def renew(self, renewals: Sequence[Renewal], *, deadline: float) -> Sequence[Outcome]:
        """Move the deadlines of leases that are still held; one outcome each, in order.

        A lease whose deadline has passed is `LOST`, whether or not its record still lies there.
        A deadline never moves back: steps may overtake each other, and a late renewal must not
        cut short what a later extension gave. Only an `exact` renewal sets it to a ttl from now,
        be that earlier or later. So a copy of one that arrives late must not exist, or be known:
        an `exact` renewal that was sent more than once, or may be done later, is `UNKNOWN`.
        """

    @abstractmethod
    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        """Leave the queue; say whether the request still stood there. Wakes those whose turn it is."""

    @abstractmethod
    async def abandon(self, request: Request, *, deadline: float) -> None:
        """Remove whatever an interrupted request may have left. Wakes those whose turn it is."""

    @abstractmethod
    async def inspect(self, name: str, *, deadline: float) -> LockState:
        """Return who holds and who waits. An unknown name is a free lock."""

    @abstractmethod
    async def list(self, prefix: str, *, deadline: float) -> Sequence[LockState]:
        """Return all locks that are held or waited for, by name, sorted."""

    @abstractmethod
    async def force_release(self, name: str, owner: str | None, *, deadline: float) -> Sequence[Entry]:
        """Remove the holders, or the one holder or waiter `owner`; return what was removed."""

    @abstractmethod
    async def close(self) -> None:
        """Give back every socket, file and thread. Idempotent."""

    async def observe(self, name: str, seen: LockState | None, *, deadline: float) -> LockState:
        """Return the lock's state once its holders differ from `seen`, at `deadline`, or when closing.

        This one polls; a backend that can push does better.
        """
        runtime = self.runtime
        while True:
            state = await self.inspect(name, deadline=runtime.now() + 5.0)
            if seen is None or _holders(state) != _holders(seen) or runtime.now() >= deadline:
                return state
            await runtime.sleep(min(OBSERVE_INTERVAL, max(0.0, deadline - runtime.now())))
            if self.closing:
                return state  # another look might open again what is being closed

    def guard(self, request: Request, token: int, transaction: Any) -> None:
        """Add to a user's own transaction that this lease must be held when it is done. No I/O."""
        raise Unsupported(capability="guard", backend=self.name)

    async def doctor(self) -> Sequence[Finding]:
        """Look at the server's real settings. Does I/O; changes nothing."""
        return ()

    async def pulse(self, *, deadline: float) -> Sequence[Pulse]:
        """Make one cheap round trip to each server, and ask it for the time. Changes nothing.

        This one looks at a lock that nobody has, and learns no time.
        """
        began = self.runtime.now()
        await self.inspect("fencelock-pulse", deadline=deadline)
        return (Pulse(self.name, self.runtime.now() - began),)

    def forget(self, requests: Sequence[Request]) -> None:
        """Remove records without the runtime: its event loop has ended and nobody closed the client.

        As well as it can, in the end of a program; by default nothing, and they expire.
        """

    def forked(self) -> None:
        """In a forked child: forget every socket, file and thread without touching them."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


def _holders(state: LockState) -> list[tuple[str, int]]:
    return [(entry.owner, entry.token) for entry in state.holders]
