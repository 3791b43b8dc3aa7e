"""`postgresql+advisory://`: PostgreSQL's own session advisory locks, with tokens, order and news of loss.

A name is a 64-bit key, and the lock on it belongs to a session of the server: to a connection of this
client (`seat.py`; `seats.py` has them all). A lock that is free is taken by a try on any
connection, many on one. Who finds it taken waits in the server's own queue, first come first served, on a
connection that holds nothing, so that no wait stands in the way of a release; the lock then stays with that
connection. If all connections that may wait do so, the request comes back and tries; a try never passes
those who wait.

Advisory locks are re-entrant: a session that has a lock gets it again at once. So a key is never asked for
on a connection that has it (`taking.py`).

A lease ends with its connection: the server frees it when the client's process dies, and the client hears
at once when the server hangs up. A ttl is kept by the client, which lets go of what was not renewed in
time, and by the server, which ends a session that is silent for longer than the longest ttl of its leases.
A token is drawn while the lock is held, in the same round trip (`schema.sql`).

Not promised: that a short lease of a stopped process ends by its own ttl while it shares its connection
with a longer one; and anything across a failover, where every lock is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fencelock.backends.postgres import schema as schemas
from fencelock.backends.postgres.address import Address
from fencelock.backends.postgres.advisory.look import states
from fencelock.backends.postgres.advisory.seat import HELD, POLLING, WAITING, Hold
from fencelock.backends.postgres.advisory.steps import Steps
from fencelock.backends.postgres.pooler import keeps_sessions
from fencelock.backends.postgres.pools import TaskPool, ThreadPool
from fencelock.backends.postgres.wire import Source, Wire
from fencelock.backends.url import hide_password, split
from fencelock.core.ports import Backend, Busy, Grant, Outcome, PoolExhausted, Renewal, Request
from fencelock.errors import BackendUnavailable, ConfigurationError, Unsupported
from fencelock.findings import Finding, Pulse
from fencelock.guarantees import Guarantees
from fencelock.runtime.base import Runtime
from fencelock.state import Entry, LockState

__all__ = ["AdvisoryBackend"]

DEAD_AFTER = 15
POOL_SIZE = 8
"""A request that waits has a connection of its own: more than a lease table needs."""
LAST_SECONDS = 1.5
"""Who gives up within so many seconds is told who holds the lock."""
LONGEST = 2_000_000.0
"""Seconds. The server counts a session's silence in milliseconds, in 32 bits: see idle_session_timeout."""
POLL = 0.1
"""Seconds until a request that has no place in the server's queue looks again, if nobody rings before."""
KIND = "advisory"


class AdvisoryBackend(Backend):
    """Session advisory locks of a PostgreSQL database."""

    name = "postgresql+advisory"
    capabilities = frozenset({"exclusive", "shared", "fifo", "inspect", "list"})
    renew_batch = 500
    default_port = 5432

    def __init__(self, address: Address, *, dead_after: int = DEAD_AFTER) -> None:
        """Use a server; it gives up a client that has been silent for `dead_after` seconds."""
        self._address = address
        self._dead_after = dead_after

    @classmethod
    def from_url(cls, url: str) -> AdvisoryBackend:
        address, mine = Address.from_url(url, frozenset({"dead_after"}))
        if "pool_size" not in split(url).options:
            address.pool_size = POOL_SIZE
        return cls(address, dead_after=_seconds(mine.get("dead_after", str(DEAD_AFTER)), url))

    def open(self, runtime: Runtime, namespace: str, lost: Callable[[str, str], None]) -> None:
        super().open(runtime, namespace, lost)
        self._start()

    def _start(self) -> None:
        self._steps = Steps(
            self._address,
            self.runtime,
            self.namespace,
            dead_after=self._dead_after,
            lost=self.lost,
            make_schema=lambda deadline: self.create_schema(deadline=deadline),
            keeps_sessions=self._keeps_sessions,
        )

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            scope="cluster",
            use_for="correctness",
            fencing="durable",
            crash_release="connection",
            clock="nothing",
            failover="exclusion",
            restart="exclusion",
            fairness="fifo",
            wakeup="push",
            min_ttl=0.05,
            max_ttl=LONGEST,
            caveats=(
                "clients and the server count silence on their monotonic clocks",
                "a server that restarts or takes over knows none of the locks, and old holders hear of it "
                "when their connections break; tokens go on above those that it knew of, and above its clock",
                "a process that is stopped keeps its locks until its connection was silent for longer than "
                "the longest ttl of the leases on it; before PostgreSQL 14, as long as its connection lives",
                f"a client that the network has swallowed is given up after {self._dead_after}s "
                "(dead_after), or by its ttl if that is shorter; behind a pooler by its ttl",
                f"of one client at most {self._address.pool_size - 1} requests wait in the server's queue "
                "(pool_size - 1); those beyond it stand in line in the client, and come back to try",
                "a request that waits is a statement that runs: if it waits for hours, vacuum waits with it",
                "all advisory locks of a database share 64-bit keys, whoever uses them; and its clients must "
                "all give the same schema, since the tokens come from there",
            ),
        )

    # The schema -----------------------------------------------------------------------------

    def schema(self) -> str:
        """Return the SQL that makes what this backend needs, for people who run migrations themselves."""
        return schemas.script(self._address.schema, KIND)

    async def create_schema(self, *, deadline: float) -> None:
        """Make what this backend needs, or what is missing of it."""
        source = self._source()
        try:
            wire = Wire(source, _cannot)
            await schemas.check(wire, self._address.schema, deadline)
            await schemas.create(wire, self._address.schema, deadline, KIND)
        finally:
            await source.close()

    def _source(self) -> Source:
        """Return connections for what has nothing to do with locks."""
        return TaskPool(self._address) if self.runtime.flavour == "asyncio" else ThreadPool(self._address)

    async def _keeps_sessions(self, deadline: float) -> bool:
        source = self._source()
        link = await source.dial(deadline)
        try:
            return await keeps_sessions(source, link, deadline)
        finally:
            link.close()
            await source.close()

    # The steps ------------------------------------------------------------------------------

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        steps = self._steps
        hold = steps.holds.get(request.owner)
        if hold is None:
            hold = steps.new(request)
        elif hold.state is HELD:
            return self._granted(hold)
        elif hold.state is WAITING:
            if await steps.await_turn(hold, 0.0):
                return self._granted(hold)
            if hold.state is WAITING:
                return await self._busy(hold, deadline)
        elif hold.seat is not None:  # its reply was lost: begin anew
            await steps.withdraw(hold, deadline, request.owner)
            await steps.forget(hold, deadline)
            hold = steps.new(request)
        try:
            if await steps.take(hold, deadline):
                return self._granted(hold)
        except PoolExhausted:
            if not wait:  # nothing was sent for it
                steps.holds.pop(request.owner, None)
            raise
        if not wait:
            await steps.forget(hold, deadline)
            return Busy(0.0, None)
        try:
            await steps.stand(hold, deadline)
        except BackendUnavailable:
            if self.runtime.now() < deadline:
                raise
            # It was told that somebody has the lock, and had no time for more.
        return await self._busy(hold, deadline)

    def _granted(self, hold: Hold) -> Grant:
        ttl = hold.request.ttl
        hold.deadline = max(hold.deadline, self.runtime.now() + ttl)
        return Grant(hold.token, ttl)

    async def _busy(self, hold: Hold, deadline: float) -> Busy:
        holder = None
        if deadline - self.runtime.now() < LAST_SECONDS:
            try:
                holders = (await self.inspect(hold.request.name, deadline=deadline)).holders
                holder = holders[0] if holders else None
            except BackendUnavailable:
                pass  # it has to give up, that is all
        return Busy(float("inf"), holder)

    async def wait(self, request: Request, deadline: float) -> Grant | None:
        steps, runtime = self._steps, self.runtime
        hold = steps.holds.get(request.owner)
        if hold is None:
            return None
        if hold.state is WAITING:
            return self._granted(hold) if await steps.await_turn(hold, deadline) else None
        if hold.state is POLLING and hold.bell is not None:
            await hold.bell.wait(min(POLL * (0.5 + runtime.jitter()), deadline - runtime.now()))
        return None

    def wake(self) -> None:
        self._steps.wake()

    async def renew(self, renewals: Sequence[Renewal], *, deadline: float) -> Sequence[Outcome]:
        return await self._steps.renew(renewals, deadline)

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        hold = self._steps.holds.get(request.owner)
        if hold is None or hold.state is not HELD or hold.token != token:
            return False
        return await self._steps.give(hold, deadline)

    async def abandon(self, request: Request, *, deadline: float) -> None:
        await self._steps.abandon(request, deadline)

    # Looking --------------------------------------------------------------------------------

    async def inspect(self, name: str, *, deadline: float) -> LockState:
        steps = self._steps
        for state in states(await steps.look(steps.keys.find(name), deadline), steps.keys):
            return state
        return LockState(name=name, holders=(), waiters=())

    async def list(self, prefix: str, *, deadline: float) -> Sequence[LockState]:
        steps = self._steps
        return states(await steps.list(prefix, deadline), steps.keys)

    async def force_release(self, name: str, owner: str | None, *, deadline: float) -> Sequence[Entry]:
        raise Unsupported(capability="force_release", backend=self.name)

    # The rest -------------------------------------------------------------------------------

    async def close(self) -> None:
        await self._steps.seats.close()

    def forget(self, requests: Sequence[Request]) -> None:
        """The locks end with the connections."""
        self._steps.seats.finish()

    def forked(self) -> None:
        self._steps.seats.drop()
        self._start()

    async def doctor(self) -> Sequence[Finding]:
        from fencelock.backends.postgres.advisory.doctor import examine

        return await examine(self._steps, self._source(), self._address, self.runtime.now() + 5.0)

    async def pulse(self, *, deadline: float) -> Sequence[Pulse]:
        from fencelock.backends.postgres.facts import pulse

        source = self._source()
        try:
            wire = Wire(source, _cannot)
            await pulse(wire, deadline)  # connecting is not what is measured
            return await pulse(wire, deadline)
        finally:
            await source.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._address.label}>"


def _seconds(text: str, url: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= 3600:
        raise ConfigurationError(
            f"dead_after={text[:20]!r} in {hide_password(url)!r} is not a number of seconds from 2 to 3600"
        )
    return int(text)


async def _cannot(wire: Wire, deadline: float) -> None:
    """What makes the schema does not need it."""
