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
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from fencelock.backends.postgres import schema as schemas
from fencelock.backends.postgres.address import Address
from fencelock.backends.postgres.failures import BACKEND, no_answer
from fencelock.backends.postgres.gate import Gate
from fencelock.backends.postgres.link import Statement
from fencelock.backends.postgres.listening import TaskNotifications, ThreadNotifications
from fencelock.backends.postgres.pools import TaskPool, ThreadPool
from fencelock.backends.postgres.records import Places, Waiting, details, entry, states
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
from fencelock.core.queue import PERMIT
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
ALONE, NAMES = 32, 1024
"""After so many times that nobody here had to wait for a lock it has no gate; of so many names."""
SWEEP_EVERY = 60.0
NEW = b"0"
"""What a request waits with that was told no token yet."""
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
        self._standing: dict[str, bytes | None] = {}
        """The tokens that requests were told to wait with; `None` for those that may stand with any."""
        self._alone: dict[str, int] = {}
        """How often in a row nobody here had to wait for a name: then the gate is not worth its price."""
        source = self._make_source(self.runtime.flavour)
        self._wire = Wire(source, self._make_schema)
        self._gate = Gate(source, self._statements.wait)
        self._listener: ThreadNotifications | TaskNotifications
        if self.runtime.flavour == "asyncio":
            self._listener = TaskNotifications(source, self._channel, self._was_broken)
        else:
            self._listener = ThreadNotifications(source, self._channel, self._was_broken)
        self._turns = Turns(
            self._call, self._statements, self._gate, self._listener, self.runtime, self._address.label
        )

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
        gated = self._is_gated(request, deadline)
        values = (
            place.bucket,
            place.key,
            owner.encode(),
            request.mode.encode(),
            b"%d" % request.limit,
            repr(ttl).encode(),
            repr(patience(ttl)).encode(),
            (self._channel.encode() if self._turns.has_pushes and not gated else b"") if wait else None,
            details(request),
        )
        reply = await self._stand(owner, values, gated, deadline)
        gated = self._gate.owner == owner
        if reply[0] < ord("a"):
            self._note_alone(request.name)
            if clock.now() >= self._sweep_at:
                await self._sweep(deadline)
            return Grant(int(reply), ttl)
        text = reply.decode()
        if gated and (not wait or text[0] == "l"):
            self._gate.give_up(owner)
        if text[0] == "l":
            raise ConfigurationError(
                f"limit={request.limit} for semaphore {request.name!r}: it is in use with limit {text[1:]}, "
                "give the same one everywhere"
            )
        answer = Waiting(text)
        if not wait:
            self._standing.pop(owner, None)
        else:
            self._alone.pop(request.name, None)
            answer.is_gated = gated and owner not in self._turns.ungated
            self._waiting[owner] = answer
            self._standing[owner] = b"%d" % answer.token
        return answer

    def _is_gated(self, request: Request, deadline: float) -> bool:
        """Whether the request has the gate, or may have it: a new one, if nobody else has.

        Whoever waits behind one that has none is told by NOTIFY.
        """
        owner = request.owner
        if self._gate.owner == owner:
            return owner not in self._turns.ungated
        # A semaphore's slot may be freed by anybody, not only by the one before.
        may = request.mode != PERMIT and self._ready and owner not in self._standing
        return may and self._alone.get(request.name, 0) < ALONE and self._gate.claim(owner, deadline)

    def _note_alone(self, name: str) -> None:
        """Nobody had to wait."""
        times = self._alone.get(name, 0)
        if times < ALONE:
            if times == 0 and len(self._alone) >= NAMES:
                self._alone.clear()
            self._alone[name] = times + 1

    async def _stand(
        self, owner: str, values: tuple[bytes | None, ...], gated: bool, deadline: float
    ) -> bytes:
        """Take the step of acquiring: at the gate if that is the request's, else anywhere."""
        known = self._standing.get(owner, NEW)
        self._standing[owner] = None
        if gated and known is not None:
            result = await self._gate.call(owner, self._statements.acquire, (*values, known, b"t"), deadline)
            if result is not None:
                return bytes(result.get_value(0, 0))
            known = None  # it may have been done
        if gated:
            await self._gate.open(owner)
            values = (*values[:7], None if values[7] is None else self._channel.encode(), *values[8:])
        again = None if known is None else (*values, None, b"f")
        try:
            result, _ = await self._call(self._statements.acquire, (*values, known, b"f"), deadline, again)
        except PoolExhausted as error:
            if known is None:  # an earlier sending may have been done
                raise no_answer(self._address.label) from error
            if known == NEW:
                del self._standing[owner]
            else:
                self._standing[owner] = known
            raise
        reply = bytes(result.get_value(0, 0))
        if self._gate.owner == owner and known not in reply.split(b" ", 2)[:2]:
            await self._gate.open(owner)  # its record was removed: the gate is where it stood
        return reply

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
                self._forget(renewal.request.owner)
        return outcomes

    def _forget(self, owner: str) -> None:
        """A lease has ended, and nobody will release it."""
        self._standing.pop(owner, None)
        self._turns.ungated.discard(owner)
        if self._gate.owner == owner:
            self._gate.abort()  # whoever is behind wakes and looks

    def _was_broken(self, owner: str, reason: str) -> None:
        self._forget(owner)
        self.lost(owner, reason)

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        place, owner = self._places.find(request.name), request.owner
        values = (place.bucket, place.key, owner.encode(), b"%d" % token)
        result, again = None, False
        if self._gate.owner == owner:
            result = await self._gate.call(owner, self._statements.leave, (*values, b"t"), deadline)
            if result is not None:
                self._gate.give_up(owner)
            else:
                again = True
        if result is None:
            result, twice = await self._call(self._statements.leave, (*values, b"f"), deadline)
            again = again or twice
        await self._wake(owner, deadline)
        # Sent twice and not there: the first sending may have done it, and a lease that is held by the
        # clock was there a moment ago.
        return bool(result.get_value(0, 0) == b"t") or again

    async def abandon(self, request: Request, *, deadline: float) -> None:
        self._waiting.pop(request.owner, None)
        place = self._places.find(request.name)
        await self._wire.source.settled(deadline)  # what it undoes may still be under way
        await self._call(
            self._statements.leave, (place.bucket, place.key, request.owner.encode(), None, b"f"), deadline
        )
        await self._wake(request.owner, deadline)

    async def _wake(self, owner: str, deadline: float) -> None:
        """After a request has left: let the one behind it through, and listen no more if nobody waits."""
        self._standing.pop(owner, None)
        self._turns.ungated.discard(owner)
        pid, self._gate.left = self._gate.left, None
        if pid is not None:
            with suppress(BackendUnavailable):  # then it ends by itself, a second later
                await self._call(self._statements.cancel, (pid,), deadline)
        if self._gate.owner == owner:
            await self._gate.open(owner)
        if self._listener.is_idle():
            await self._listener.rest(deadline)

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
        self._gate.close()
        await self._listener.close()
        await self._wire.source.close()

    def forget(self, requests: Sequence[Request]) -> None:
        """On a connection of its own, whatever the flavour: the event loop is gone."""
        wire = Wire(ThreadPool(self._address), self._make_schema)
        deadline = clock.now() + FORGET_LIMIT
        for request in requests:
            place = self._places.find(request.name)
            values = (place.bucket, place.key, request.owner.encode(), None, b"f")
            blocking_runtime.run(wire.call(self._statements.leave, values, deadline))
        blocking_runtime.run(wire.source.close())

    def forked(self) -> None:
        self._gate.drop()
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
