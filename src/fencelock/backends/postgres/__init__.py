"""`postgresql://`: locks in a table of a PostgreSQL database.

A lock in use is its queue's rows in one table (`schema.sql` has the layout and the queue rule, as
functions); a lock that is not in use is nothing at all. Every step is one call of one function, in a
transaction of its own and one round trip. Whoever leaves the queue hands the lock to the next waiter in the
same transaction and notifies that waiter's client: it holds the lock from then on without asking. Where
a pooler does not let notifications through, waiters poll.

Expiry is by the server's clock. Tokens come from a counter row in the same transaction; grants and
renewals are on disk before they are answered, so a crash of the server loses no grant and no token.

Not promised: anything that asynchronous replication loses in a failover (the latest grants and tokens),
unless the server waits for its standby (synchronous_standby_names); and nothing is freed by a
connection that breaks: leases end by their ttl.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from fencelock.backends.postgres import schema as schemas
from fencelock.backends.postgres.address import Address
from fencelock.backends.postgres.failures import BACKEND, no_answer
from fencelock.backends.postgres.link import Statement
from fencelock.backends.postgres.listening import TaskNotifications, ThreadNotifications
from fencelock.backends.postgres.pools import TaskPool, ThreadPool
from fencelock.backends.postgres.records import Places, Standing, Waiting, details, entry, states
from fencelock.backends.postgres.statements import Statements
from fencelock.backends.postgres.turns import Turns
from fencelock.backends.postgres.wire import Source, Wire
from fencelock.backends.resent import as_sent
from fencelock.core.ports import (
    CAPABILITIES,
    LONGEST_TTL,
    Backend,
    Busy,
    Grant,
    Outcome,
    PoolExhausted,
    Renewal,
    Request,
    patience,
)
from fencelock.errors import BackendUnavailable, ConfigurationError
from fencelock.findings import Finding, Pulse
from fencelock.guarantees import Guarantees
from fencelock.runtime import blocking as blocking_runtime
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime
from fencelock.state import Entry, LockState

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool, ConnectionPool
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["PostgresBackend"]

FORGET_LIMIT = 1.0
SWEEP_EVERY = 60.0
NEW, DOUBTFUL = Standing(b"0", True), Standing(None, False)
"""A request that was not sent yet, and one whose step has no reply."""
ANSWERS = {"r": Outcome.RENEWED, "h": Outcome.HELD, "l": Outcome.LOST}


class PostgresBackend(Backend):
    """Locks in a table of a PostgreSQL database."""

    name = BACKEND
    capabilities = CAPABILITIES
    renew_batch = 500
    default_port = 5432

    def __init__(self, address: Address, *, source: Callable[[str], Source] | None = None) -> None:
        """Use a server; `source` makes the connections for a flavour, by default the backend's own."""
        self._address = address
        self._make_source = source or self._own_source

    @classmethod
    def from_url(cls, url: str) -> PostgresBackend:
        address, _ = Address.from_url(url)
        return cls(address)

    @classmethod
    def from_pool(
        cls, pool: ConnectionPool[Any] | AsyncConnectionPool[Any], *, schema: str = "fencelock"
    ) -> Self:
        """Use the connections of a psycopg pool; an AsyncConnectionPool goes with AsyncClient."""
        from fencelock.backends.postgres.borrowed import from_pool

        return from_pool(cls, pool, schema)

    @classmethod
    def from_engine(cls, engine: Engine | AsyncEngine, *, schema: str = "fencelock") -> Self:
        """Use the connections of a SQLAlchemy engine (psycopg); an AsyncEngine goes with AsyncClient."""
        from fencelock.backends.postgres.borrowed import from_engine

        return from_engine(cls, engine, schema)

    def _own_source(self, flavour: str) -> Source:
        return TaskPool(self._address) if flavour == "asyncio" else ThreadPool(self._address)

    def open(self, runtime: Runtime, namespace: str, lost: Callable[[str, str], None]) -> None:
        super().open(runtime, namespace, lost)
        self._places = Places(namespace, schemas.BUCKETS)
        self._statements = Statements(self._address.schema)
        self._start()

    def _start(self) -> None:
        self._channel = f"fencelock_{os.urandom(8).hex()}"
        self._ready = False
        self._sweep_at = clock.now() + SWEEP_EVERY
        self._waiting: dict[str, Waiting] = {}
        self._standing: dict[str, Standing] = {}
        source = self._make_source(self.runtime.flavour)
        self._wire = Wire(source, self._make_schema)
        self._listener: ThreadNotifications | TaskNotifications
        if self.runtime.flavour == "asyncio":
            self._listener = TaskNotifications(source, self._channel, self._was_broken)
        else:
            self._listener = ThreadNotifications(source, self._channel, self._was_broken)
        self._turns = Turns(self._call, self._statements, self._listener, self.runtime, self._address.label)

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            scope="cluster",
            use_for="correctness",
            fencing="durable",
            crash_release="ttl",
            clock="exclusion",
            failover="exclusion",
            restart="nothing",
            fairness="fifo",
            wakeup="push",
            min_ttl=0.05,
            max_ttl=LONGEST_TTL,
            caveats=(
                "leases expire by the server's clock: set forward, it ends them early; set back, it keeps "
                "dead holders longer",
                "a standby that is promoted without synchronous_standby_names may not know of the latest "
                "grants: two holders, and a token given twice if its clock is behind",
                "a database restored from a backup has forgotten who holds; tokens rise with its clock",
                "behind a pooler in transaction mode waiters poll instead of being pushed",
                "a transaction that stays open for hours on the same server keeps dead rows from being "
                "vacuumed, and steps become slower",
                "whoever may write fencelock's schema can take and break every lock in it",
            ),
        )

    # The schema -----------------------------------------------------------------------------

    def schema(self) -> str:
        """Return the SQL that makes what this backend needs, for people who run migrations themselves."""
        return schemas.script(self._address.schema)

    async def create_schema(self, *, deadline: float) -> None:
        """Make what this backend needs, or what is missing of it."""
        await schemas.check(self._wire, self._address.schema, deadline)
        await schemas.create(self._wire, self._address.schema, deadline)

    async def _make_schema(self, wire: Wire, deadline: float) -> None:
        await self.create_schema(deadline=deadline)

    async def _call(
        self,
        statement: Statement,
        values: Sequence[bytes | None],
        deadline: float,
        then: Sequence[bytes | None] | None = None,
    ) -> Any:
        if not self._ready:
            if not await schemas.check(self._wire, self._address.schema, deadline):
                await schemas.create(self._wire, self._address.schema, deadline)
            self._ready = True
        return await self._wire.call(statement, values, deadline, then)

    # The steps ------------------------------------------------------------------------------

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        place = self._places.find(request.name)
        ttl, owner = request.ttl, request.owner
        values = (
            place.bucket,
            place.key,
            owner.encode(),
            request.mode.encode(),
            b"%d" % request.limit,
            repr(ttl).encode(),
            repr(patience(ttl)).encode(),
            (self._channel.encode() if self._turns.has_pushes else b"") if wait else None,
            details(request),
        )
        reply, is_sure = await self._stand(owner, values, deadline)
        if reply[0] < ord("a"):
            if clock.now() >= self._sweep_at:
                await self._sweep(deadline)
            return Grant(int(reply), ttl)
        text = reply.decode()
        if text[0] == "l":
            raise ConfigurationError(
                f"limit={request.limit} for semaphore {request.name!r}: it is in use with limit {text[1:]}, "
                "give the same one everywhere"
            )
        answer = Waiting(text, is_sure=is_sure)
        if not wait:
            self._standing.pop(owner, None)
        else:
            self._waiting[owner] = answer
            self._standing[owner] = Standing(b"%d" % answer.token, is_sure)
        return answer

    async def _stand(
        self, owner: str, values: tuple[bytes | None, ...], deadline: float
    ) -> tuple[bytes, bool]:
        """Take the step of acquiring; return the reply, and whether every step until now got one."""
        before = self._standing.get(owner, NEW)
        self._standing[owner] = DOUBTFUL
        again = None if before is DOUBTFUL else (*values, None)
        try:
            result, is_again = await self._call(
                self._statements.acquire, (*values, before.token), deadline, again
            )
        except PoolExhausted as error:
            if before is DOUBTFUL:  # an earlier sending may have been done
                raise no_answer(self._address.label) from error
            if before is NEW:
                del self._standing[owner]
            else:
                self._standing[owner] = before
            raise
        return bytes(result.get_value(0, 0)), before.is_sure and not is_again

    async def wait(self, request: Request, deadline: float) -> Grant | None:
        waiting = self._waiting.pop(request.owner, None)
        if waiting is None:
            return None
        me = (self._places.find(request.name).key, b"%d" % waiting.token, request.owner.encode())
        try:
            come = await self._turns.come(me, waiting, deadline)
        except BackendUnavailable:
            if clock.now() < deadline:
                raise
            return None  # the time is over, which says nothing about the server
        if come:
            # The row has still a waiter's deadline: the lease is good for no longer until it is renewed.
            return Grant(waiting.token, min(request.ttl, patience(request.ttl)))
        return None

    def wake(self) -> None:
        self._turns.wake()
        self._wire.source.wake()

    async def renew(self, renewals: Sequence[Renewal], *, deadline: float) -> Sequence[Outcome]:
        keys = [self._places.find(one.request.name).key for one in renewals]
        places = b",".join(b'"\\\\x%b"' % key.hex().encode() for key in keys)
        tokens = b",".join(b"%d" % one.token for one in renewals)
        owners = b",".join(one.request.owner.encode() for one in renewals)
        ttls = b",".join(repr(one.ttl).encode() if one.extend else b"NULL" for one in renewals)
        exact = b",".join(b"t" if one.exact else b"f" for one in renewals)
        values = tuple(b"{%b}" % column for column in (places, tokens, owners, ttls, exact))
        result, again = await self._call(self._statements.renew, values, deadline)
        answers = [ANSWERS[letter] for letter in result.get_value(0, 0).decode()]
        outcomes = as_sent(renewals, answers, twice=again)
        for renewal, outcome in zip(renewals, outcomes, strict=True):
            if outcome is Outcome.LOST:
                self._standing.pop(renewal.request.owner, None)
        return outcomes

    def _was_broken(self, owner: str, reason: str) -> None:
        self._standing.pop(owner, None)
        self.lost(owner, reason)

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        place, owner = self._places.find(request.name), request.owner
        values = (place.bucket, place.key, owner.encode(), b"%d" % token)
        result, again = await self._call(self._statements.leave, values, deadline)
        await self._has_left(owner, deadline)
        # Sent twice and not there: the first sending may have done it, and a lease that is held by the
        # clock was there a moment ago.
        return bool(result.get_value(0, 0) == b"t") or again

    async def abandon(self, request: Request, *, deadline: float) -> None:
        self._waiting.pop(request.owner, None)
        place = self._places.find(request.name)
        await self._wire.source.settled(deadline)  # what it undoes may still be under way
        values = (place.bucket, place.key, request.owner.encode(), None)
        await self._call(self._statements.leave, values, deadline)
        await self._has_left(request.owner, deadline)

    async def _has_left(self, owner: str, deadline: float) -> None:
        """Forget a request that has left the queue."""
        self._standing.pop(owner, None)
        await self._turns.rest(deadline)

    async def _sweep(self, deadline: float) -> None:
        """Remove what has expired, of names that nobody asks for any more too."""
        self._sweep_at = clock.now() + SWEEP_EVERY
        try:
            await self._call(self._statements.sweep, (), deadline)
        except BackendUnavailable:
            return  # another time

    # Looking --------------------------------------------------------------------------------

    async def inspect(self, name: str, *, deadline: float) -> LockState:
        values = (self._places.find(name).key,)
        result, _ = await self._call(self._statements.inspect, values, deadline)
        for state in states(result, self._places):
            return state
        return LockState(name=name, holders=(), waiters=())

    async def list(self, prefix: str, *, deadline: float) -> Sequence[LockState]:
        result, _ = await self._call(self._statements.list, self._places.range_of(prefix), deadline)
        return states(result, self._places)

    async def force_release(self, name: str, owner: str | None, *, deadline: float) -> Sequence[Entry]:
        place = self._places.find(name)
        values = (place.bucket, place.key, None if owner is None else owner.encode())
        result, _ = await self._call(self._statements.break_, values, deadline)
        return [
            entry([result.get_value(row, column) for column in range(1, 9)]) for row in range(result.ntuples)
        ]

    # The rest -------------------------------------------------------------------------------

    async def close(self) -> None:
        await self._listener.close()
        await self._wire.source.close()

    def forget(self, requests: Sequence[Request]) -> None:
        """On a connection of its own, whatever the flavour: the event loop is gone."""
        wire = Wire(ThreadPool(self._address), self._make_schema)
        deadline = clock.now() + FORGET_LIMIT
        for request in requests:
            place = self._places.find(request.name)
            values = (place.bucket, place.key, request.owner.encode(), None)
            blocking_runtime.run(wire.call(self._statements.leave, values, deadline))
        blocking_runtime.run(wire.source.close())

    def forked(self) -> None:
        self._listener.drop()
        self._wire.source.drop()
        self._start()

    async def doctor(self) -> Sequence[Finding]:
        from fencelock.backends.postgres.doctor import examine

        return await examine(self._wire, self._address.schema, self.runtime.now() + 5.0)

    async def pulse(self, *, deadline: float) -> Sequence[Pulse]:
        from fencelock.backends.postgres.facts import pulse

        return await pulse(self._wire, deadline)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._address.label}>"
