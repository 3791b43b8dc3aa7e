"""`mysql://` and `mariadb://`: locks in a table of the database you have.

One InnoDB table holds the queues of all names, ordered by token (`sql/schema.sql` has the layout and the
rule). Every step is one call of a stored procedure: one round trip, one transaction, begun and ended
on the server, so a client that stops in the middle holds up nobody. A row for each of 256 buckets is at
once latch and counter; the token is `max(last token + 1, server's time in µs)`, written in the
transaction that puts the request into the queue, so it survives whatever the grant survives.

Expiry is by the server's clock, in UTC, read after the latch was taken. Whoever asks for a lock takes out
what has expired there; what nobody asks for is swept once a minute.

A step that was interrupted may still be under way when the request is given up on another connection.
Then the request is noted as gone, for a minute, and the late step finds that under the same latch.

MySQL cannot push. A waiter looks, often when it is next and seldom when it is not (see `pace.py`); when its
turn has come it takes another `acquire` step.

Not promised: exclusion across a failover to a replica that lags behind (asynchronous replication may
lose the latest grants; tokens still rise if the new primary's clock is not behind), nor after a power
loss with innodb_flush_log_at_trx_commit other than 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fencelock.backends import hide_password
from fencelock.backends.mysql import schema
from fencelock.backends.mysql.blocking import BlockingPool
from fencelock.backends.mysql.borrowed import AsyncBorrowedPool, BorrowedPool, check_engine
from fencelock.backends.mysql.failures import BACKEND, no_answer
from fencelock.backends.mysql.pace import Waiter
from fencelock.backends.mysql.places import Places, literal
from fencelock.backends.mysql.pool import Pool, Wire
from fencelock.backends.mysql.records import Waiting, details, glance, state, states
from fencelock.backends.mysql.server import DEFAULT_PORT, OPTIONS, Server, options_of
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

__all__ = ["MySQLBackend"]

FORGET_LIMIT = 1.0
SWEEP_EVERY = 60.0
SWEEP_GRACE = 10.0
UNSURE, MANY_UNSURE = 60.0, 1000
HURRY = 1.0
"""Seconds: whoever has less to wait looks before it stands in line."""
OTHER_LIMIT, GIVEN_UP = 2, 3
LOOK, REMOVE = 0, -1
ANSWERS = {ord("R"): Outcome.RENEWED, ord("H"): Outcome.HELD, ord("L"): Outcome.LOST}
REMOVED = ord("X")


class MySQLBackend(Backend):
    """Locks in a table of a MySQL or MariaDB server."""

    name = BACKEND
    capabilities = CAPABILITIES
    renew_batch = 500
    default_port = DEFAULT_PORT

    def __init__(
        self, server: Server | None, *, prefix: str = schema.DEFAULT_PREFIX, engine: Any = None
    ) -> None:
        """Use a server, or somebody else's engine; see `from_url` and `from_engine`."""
        self._server = server
        self._engine = engine
        self._prefix = prefix
        self._flavour, self._label = ("", server.label) if server is not None else check_engine(engine)

    @classmethod
    def from_url(cls, url: str) -> MySQLBackend:
        options = options_of(url, OPTIONS)
        prefix = schema.check_prefix(options.get("prefix", schema.DEFAULT_PREFIX), hide_password(url))
        return cls(Server(url, options), prefix=prefix)

    @classmethod
    def from_engine(cls, engine: Any, *, prefix: str = schema.DEFAULT_PREFIX) -> MySQLBackend:
        """Use the connections of a SQLAlchemy engine: one on PyMySQL, or an async one on asyncmy."""
        return cls(None, prefix=schema.check_prefix(prefix, "from_engine()"), engine=engine)

    def open(self, runtime: Runtime, namespace: str, lost: Callable[[str, str], None]) -> None:
        super().open(runtime, namespace, lost)
        if self._flavour and self._flavour != runtime.flavour:
            raise ConfigurationError(
                f"an engine of the {self._flavour} kind does not go with a client of the {runtime.flavour} "
                "kind: give an Engine to Client and an AsyncEngine to AsyncClient"
            )
        self._places = Places(namespace)
        self._start()

    def _start(self) -> None:
        self._waiting: dict[str, Waiter] = {}
        self._unsure: dict[str, float] = {}  # owners of whom a step may still be under way, and since when
        self._sweep_at = self.runtime.now() + SWEEP_EVERY * self.runtime.jitter()
        database = self._server.database if self._server is not None else ""
        self._pool = self._make_pool()
        self._wire = Wire(self._pool, self.runtime, database, self._prefix)
        self._call = self._wire.call

    def _make_pool(self) -> Pool:
        asyncio = self.runtime.flavour == "asyncio"
        if self._server is None:
            kind = AsyncBorrowedPool if asyncio else BorrowedPool
            return kind(self._engine, self._label)
        if not asyncio:
            return BlockingPool(self._server)
        from fencelock.backends.mysql.nonblocking import AsyncPool

        return AsyncPool(self._server)

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
            wakeup="poll",
            min_ttl=0.05,
            max_ttl=LONGEST_TTL,
            caveats=(
                "leases expire by the server's clock: set forward, it ends them early; set back, it keeps "
                "dead holders longer",
                "a replica that lags and is promoted does not know of the latest grants: two holders, and a "
                "token given twice if its clock is behind; with replication that waits for it nothing "
                "is lost",
                "with innodb_flush_log_at_trx_commit other than 1 a power loss loses the latest grants, "
                "and tokens rise only as the clock does",
                "on Galera let all clients use one node: steps on two nodes are certified at commit, and one "
                "of them repeated, but leases expire by each node's clock",
                "waiters poll: from about 1 ms when next and fresh to 250 ms after a long wait",
                "whoever can write the tables can take and break every lock in them",
            ),
        )

    def schema(self) -> str:
        """Return the SQL that makes the tables and procedures, for people who run migrations themselves."""
        return schema.script(self._prefix)

    async def create_schema(self, *, deadline: float) -> None:
        """Make the tables and procedures that are missing."""
        await self._wire.prepare(deadline, anew=True)

    # The steps ----------------------------------------------------------------------------

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        now = self.runtime.now()
        if now >= self._sweep_at:
            await self._sweep(deadline)
        if not wait or deadline - now > HURRY or request.owner in self._waiting:
            return await self._stand(request, wait, deadline)
        # To stand in line is a durable write, to see that the lock is busy is not. Whoever is in a hurry
        # is to be told so, and not that a slow disk did not answer.
        seen = glance(await self.inspect(request.name, deadline=deadline), request)
        try:
            return await self._stand(request, wait, deadline)
        except BackendUnavailable:
            if seen is None or self.runtime.now() < deadline:
                raise
            return seen

    async def _stand(self, request: Request, wait: bool, deadline: float) -> Grant | Busy:
        place = self._places.find(request.name)
        ttl, silence = int(request.ttl * 1e6), int(patience(request.ttl) * 1e6)
        stay = 0 if not wait else 1 if request.owner in self._waiting else 2
        was_unsure = request.owner in self._unsure
        self._note_unsure(request.owner)  # now: a signal handler may give the request up before the answer
        try:
            rows, again = await self._call(
                f"CALL {self._prefix}acquire_v1({place.bucket}, {place.word}, '{request.owner}', "
                f"'{request.mode}', {request.limit}, {ttl}, {silence}, {stay}, {details(request)})",
                deadline,
            )
        except PoolExhausted:  # nothing was sent
            if not was_unsure:
                self._unsure.pop(request.owner, None)
            raise
        if not again and not was_unsure:
            self._unsure.pop(request.owner, None)
        row = rows[0]
        if len(row) == 1:
            if self._waiting:
                self._waiting.pop(request.owner, None)
            return Grant(row[0], request.ttl)
        if row[0] == OTHER_LIMIT:
            raise ConfigurationError(
                f"limit={request.limit} for semaphore {request.name!r}: it is in use with limit {row[1]}, "
                "give the same one everywhere"
            )
        if row[0] == GIVEN_UP:
            raise no_answer(self._label)
        busy = Waiting(row)
        if wait:
            now = self.runtime.now()
            waiter = self._waiting.get(request.owner)
            if waiter is None:
                self._waiting[request.owner] = Waiter(busy.token, busy.before, now, self.runtime.signal())
            else:
                waiter.stands(busy.token, busy.before, now)
        return busy

    def _note_unsure(self, owner: str) -> None:
        now = self.runtime.now()
        if len(self._unsure) >= MANY_UNSURE:  # a long outage: what is that old has failed by now
            self._unsure = {one: since for one, since in self._unsure.items() if since > now - UNSURE}
        self._unsure[owner] = now

    async def wait(self, request: Request, deadline: float) -> Grant | None:
        runtime = self.runtime
        waiter = self._waiting.get(request.owner)
        if waiter is None:
            return None  # closed meanwhile, as the caller will see
        place, slots = self._places.find(request.name), request.limit
        while True:
            now = runtime.now()
            pause = waiter.pause(now, slots, runtime.jitter())
            await waiter.signal.wait(min(pause, deadline - now))
            if self.closing or now + pause >= deadline:
                return None
            rows, _ = await self._call(
                f"CALL {self._prefix}ahead_v1({place.word}, {waiter.token}, '{request.mode}')",
                max(deadline, runtime.now() + 0.5),
            )
            there, before, others = rows[0]
            if not there or not before or (not others and (not slots or before < slots)):
                return None
            waiter.stands(waiter.token, before, runtime.now())

    def wake(self) -> None:
        self._pool.wake()
        for waiter in list(self._waiting.values()):
            waiter.signal.notify()

    async def renew(self, renewals: Sequence[Renewal], *, deadline: float) -> Sequence[Outcome]:
        asked = [
            (renewal, max(1, int(renewal.ttl * 1e6)) if renewal.extend else LOOK) for renewal in renewals
        ]
        answers, again = await self._settle(asked, deadline)
        return as_sent(renewals, [ANSWERS[answer] for answer in answers], twice=again)

    async def _settle(self, asked: Sequence[tuple[Renewal, int]], deadline: float) -> tuple[list[int], bool]:
        """Renew, look at or take out many requests; return a letter for each. See renew_v2."""
        lines = [
            (self._places.find(one.request.name).raw, one.token, one.request.owner, ttl, one.exact, index)
            for index, (one, ttl) in enumerate(asked)
        ]
        lines.sort()  # row locks are taken in one order by everybody
        text = "".join(
            f"{raw.hex()} {token} {owner} {ttl} {exact:d}|" for raw, token, owner, ttl, exact, _ in lines
        )
        rows, again = await self._call(f"CALL {self._prefix}renew_v2('{text}')", deadline)
        answers = [0] * len(lines)
        for letter, line in zip(bytes(rows[0][0]), lines, strict=True):
            answers[line[-1]] = letter
        return answers, again

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        rows, again = await self._call(self._leaving(request, token), deadline)
        self._unsure.pop(request.owner, None)
        # Sent twice and not there: the first sending may have done it, and a lease that is held by the
        # clock was there a moment ago.
        return bool(rows[0][0]) or again

    async def abandon(self, request: Request, *, deadline: float) -> None:
        self._waiting.pop(request.owner, None)
        await self._call(self._leaving(request), deadline)
        self._unsure.pop(request.owner, None)

    def _leaving(self, request: Request, token: int = 0) -> str:
        place = self._places.find(request.name)
        unsure = request.owner in self._unsure
        if token and not unsure and self._pool.autocommits:
            which = f"place = {place.word} AND token = {token} AND owner = '{request.owner}'"
            return f"DELETE FROM {self._prefix}queue WHERE {which}"
        words = f"{place.bucket}, {place.word}, '{request.owner}', {token}, {unsure:d}"
        return f"CALL {self._prefix}leave_v2({words})"

    async def _sweep(self, deadline: float) -> None:
        self._sweep_at = self.runtime.now() + SWEEP_EVERY * (0.5 + self.runtime.jitter())
        await self._wire.quietly(f"CALL {self._prefix}sweep_v1({int(SWEEP_GRACE * 1e6)})", deadline)

    # Looking --------------------------------------------------------------------------------

    async def inspect(self, name: str, *, deadline: float) -> LockState:
        raw = self._places.find(name).raw
        rows, _ = await self._call(
            f"CALL {self._prefix}look_v1({literal(raw)}, {literal(raw + bytes(1))})", deadline
        )
        return state(name, rows)

    async def list(self, prefix: str, *, deadline: float) -> Sequence[LockState]:
        start, end = self._places.between(prefix)
        rows, _ = await self._call(f"CALL {self._prefix}look_v1({start}, {end})", deadline)
        return states(self._places, rows)

    async def force_release(self, name: str, owner: str | None, *, deadline: float) -> Sequence[Entry]:
        found = await self.inspect(name, deadline=deadline)
        everyone = [*found.holders, *found.waiters]
        wanted = found.holders if owner is None else [one for one in everyone if one.owner == owner]
        if not wanted:
            return []
        asked = [(Renewal(_request(name, one), one.token, 0.0, False), REMOVE) for one in wanted]
        answers, again = await self._settle(asked, deadline)
        return [one for one, answer in zip(wanted, answers, strict=True) if answer == REMOVED or again]

    # The rest -------------------------------------------------------------------------------

    async def doctor(self) -> Sequence[Finding]:
        from fencelock.backends.mysql.doctor import examine

        return await examine(self._wire, self._prefix, self.runtime.now() + 5.0)

    async def pulse(self, *, deadline: float) -> Sequence[Pulse]:
        from fencelock.backends.mysql.doctor import pulse

        return await pulse(self._wire, self._label, deadline)

    async def close(self) -> None:
        self._waiting = {}
        await self._pool.close()

    def forget(self, requests: Sequence[Request]) -> None:
        """On a connection of its own, whatever the flavour: the event loop is gone."""
        bury = getattr(self._pool, "bury", None)
        if bury is not None:
            bury()
        if self._server is None and self.runtime.flavour == "asyncio":
            return  # an engine of its loop is of no use any more: they expire
        pool = self._pool if self._server is None else BlockingPool(self._server)
        wire = Wire(pool, blocking_runtime.BlockingRuntime(), "", self._prefix)
        deadline = clock.now() + FORGET_LIMIT
        try:
            for request in requests:
                blocking_runtime.run(wire.persist(self._leaving(request), deadline))
        finally:
            blocking_runtime.run(pool.close())

    def forked(self) -> None:
        self._pool.drop()
        self._start()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._label}>"


def _request(name: str, entry: Entry) -> Request:
    """Return as much of a request as taking it out needs."""
    return Request(entry.owner, name, "exclusive", 1, 0.0, None, None)  # type: ignore[arg-type]
