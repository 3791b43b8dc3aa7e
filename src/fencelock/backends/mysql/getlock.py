"""`mysql+getlock://`: the server's own locks (GET_LOCK), bound to the connection that took them.

A lock is called `fencelock:` and 160 bits of a hash over database, namespace and name: names of GET_LOCK have
at most 64 characters, and case does not count in them. One thread keeps the client's connections (see
`board.py`). Locks that are free are taken on a shared one; a wait happens on the server, on a connection
that holds nothing, and that one then keeps the lock (see `claims.py`). So no wait holds up a release.
More waiters than there may be connections poll.

The token is drawn from an InnoDB row after the grant, on the connection that holds the lock: one durable
write. It is `max(last token + 1, server's time in µs)`.

A lease is lost with its connection, and that is noticed at once. Otherwise renewals find out: they ask
the server whether this very connection has the lock. Nothing is ever taken again by a reconnect.

Not promised: order among waiters; exclusion across a failover (the locks are in the memory of one server:
after it ended nobody holds them, and their holders are told); anything on Galera, where it is
refused, or behind a proxy that gives statements to changing connections, which is refused where it shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from fencelock.backends import hide_password
from fencelock.backends.mysql import schema
from fencelock.backends.mysql.blocking import BlockingLink, BlockingPool
from fencelock.backends.mysql.board import Job
from fencelock.backends.mysql.claims import BUSY, NEED, POLL, Asked, Desk
from fencelock.backends.mysql.failures import (
    BACKEND,
    Kind,
    Unusable,
    kind_of,
    no_connection,
    said,
    unreachable,
)
from fencelock.backends.mysql.places import BUCKETS
from fencelock.backends.mysql.pool import Wire
from fencelock.backends.mysql.server import DEFAULT_PORT, OPTIONS, Server, number_of, options_of
from fencelock.core.ports import LONGEST_TTL, Backend, Busy, Grant, Outcome, Renewal, Request, patience
from fencelock.errors import BackendUnavailable, Unsupported
from fencelock.findings import Finding, Pulse
from fencelock.guarantees import Guarantees
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime
from fencelock.runtime.blocking import BlockingRuntime, run
from fencelock.state import Entry, LockState

__all__ = ["GetLockBackend", "lock_name"]

NAME = "getlock"
CONNECTIONS = 8
POLL_EVERY = 0.05
LATE = 0.25
TURNS = 3
KNOWN = (OPTIONS - {"pool_size"}) | {"connections"}
GALERA = "SHOW VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_provider')"


def lock_name(database: str, namespace: str, name: str) -> str:
    """Return what a lock is called on the server."""
    place = "\0".join((database, namespace, name)).encode()
    return "fencelock:" + hashlib.sha256(place).hexdigest()[:40]


class GetLockBackend(Backend):
    """Locks of a MySQL or MariaDB server, bound to connections."""

    name = "mysql+getlock"
    capabilities = frozenset({"exclusive"})
    renew_batch = 500
    default_port = DEFAULT_PORT

    def __init__(
        self, server: Server, *, prefix: str = schema.DEFAULT_PREFIX, connections: int = CONNECTIONS
    ) -> None:
        """Use a server, with at most so many connections for waiting, and one for the rest."""
        self._server = server
        self._prefix = prefix
        self._connections = connections

    @classmethod
    def from_url(cls, url: str) -> GetLockBackend:
        options, shown = options_of(url, KNOWN), hide_password(url)
        prefix = schema.check_prefix(options.get("prefix", schema.DEFAULT_PREFIX), shown)
        connections = int(number_of(options, "connections", CONNECTIONS, shown, whole=True))
        return cls(Server(url, options), prefix=prefix, connections=connections)

    def open(self, runtime: Runtime, namespace: str, lost: Callable[[str, str], None]) -> None:
        super().open(runtime, namespace, lost)
        self._start()

    def _start(self) -> None:
        self._prepared = False
        self._desk = Desk(self.lost, f"{self._prefix}tokens", self._connections, fractions=True)

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
            fairness="none",
            wakeup="push",
            min_ttl=0.05,
            max_ttl=LONGEST_TTL,
            caveats=(
                "locks end with connections, and tokens rise whatever the clock does",
                "a new primary knows none of the locks, and holders learn of it when their connections "
                "break; tokens are a replicated table's: one is given twice if that lags and the clock is "
                "behind",
                "a holder that is stopped or cut off keeps the lock until the server closes its silent "
                "connection: after its longest ttl, at most 60 s, and a second",
                "a server that is restarted forgets its locks: holders are told, but may still be at work",
                "with innodb_flush_log_at_trx_commit other than 1 a power loss makes tokens rise only as the "
                "clock does",
                "Galera is refused; a proxy must give each client a connection of its own",
                "whoever may log in to the server can take its locks, and KILL connections of its own user",
            ),
        )

    def schema(self) -> str:
        """Return the SQL that makes the tables, for people who run migrations themselves."""
        return schema.script(self._prefix, NAME)

    async def create_schema(self, *, deadline: float) -> None:
        """Make the tables that are missing."""
        await self.runtime.call(self._prepare, deadline)

    # The steps ----------------------------------------------------------------------------

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        answer = await self._ask("acquire", self._asked(request), deadline)
        if answer is BUSY:
            return Busy(patience(request.ttl), None)
        assert isinstance(answer, Grant)
        return answer

    async def wait(self, request: Request, deadline: float) -> Grant | None:
        seconds = deadline - self.runtime.now()
        if seconds <= 0:
            return None
        answer = await self._ask("wait", self._asked(request, seconds), deadline + LATE, quiet=True)
        if answer is POLL:
            pause = POLL_EVERY * (0.5 + self.runtime.jitter())
            await self.runtime.sleep(min(pause, max(0.0, deadline - self.runtime.now())))
        return answer if isinstance(answer, Grant) else None

    def wake(self) -> None:
        if self._desk.sessions:
            with suppress(BackendUnavailable):  # it was closed before
                self._desk.post(Job("wake", None, self.runtime.signal()))

    async def renew(self, renewals: Sequence[Renewal], *, deadline: float) -> Sequence[Outcome]:
        outcomes = [Outcome.UNKNOWN] * len(renewals)
        await self._ask("renew", (renewals, outcomes), deadline, quiet=True)
        return list(outcomes)

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        return bool(await self._ask("release", self._asked(request), deadline))

    async def abandon(self, request: Request, *, deadline: float) -> None:
        await self._ask("abandon", self._asked(request), deadline)

    def _asked(self, request: Request, seconds: float = 0.0) -> Asked:
        lock = lock_name(self._server.database, self.namespace, request.name)
        return Asked(request.owner, lock, int(lock[-8:], 16) % BUCKETS, request.ttl, seconds)

    async def _ask(self, kind: str, subject: Any, deadline: float, *, quiet: bool = False) -> Any:
        """Let the keeper do something; make the connection it may need. `quiet`: no answer is `None`."""
        turns = 0
        while True:
            answer = await self._post(Job(kind, subject, self.runtime.signal()), deadline, quiet)
            if answer is NEED:
                link = await self.runtime.call(self._dial, deadline)
                await self._post(Job("add", link, self.runtime.signal()), deadline, quiet)
            elif answer is Kind.BROKEN:
                turns += 1  # the server may have closed it a moment ago, being idle; nothing is left on it
                if turns > TURNS:
                    raise unreachable(self._server.label, Unusable(2013, ""))
            elif answer is Kind.MISSING:
                self._prepared = False  # somebody dropped the tables
                await self.runtime.call(self._prepare, deadline)
            else:
                return answer

    async def _post(self, job: Job, deadline: float, quiet: bool) -> Any:
        began = self.runtime.now()
        try:
            self._desk.post(job)
            while not job.done:
                left = deadline - self.runtime.now()
                if left <= 0:
                    if quiet:
                        return None
                    is_well = job.kind == "acquire" and self._desk.has_answered(began)
                    raise no_connection(self._server.label, is_well=is_well)
                await job.signal.wait(left)
        finally:
            job.dead = True
        error = job.error
        if isinstance(error, Unusable):
            if kind_of(error) is Kind.MISSING and self._prepared:
                return Kind.MISSING
            broken = kind_of(error) is Kind.BROKEN
            if broken and job.kind == "acquire":
                return Kind.BROKEN
            raise (unreachable if broken else said)(self._server.label, error) from error
        if error is not None:
            raise error
        return job.result

    # Looking --------------------------------------------------------------------------------

    async def inspect(self, name: str, *, deadline: float) -> LockState:
        self._refuse("inspect")

    async def list(self, prefix: str, *, deadline: float) -> Sequence[LockState]:
        self._refuse("list")

    async def force_release(self, name: str, owner: str | None, *, deadline: float) -> Sequence[Entry]:
        self._refuse("force_release")

    def _refuse(self, capability: str) -> NoReturn:
        raise Unsupported(capability=capability, backend=self.name)

    # Connecting -----------------------------------------------------------------------------

    def _dial(self, deadline: float) -> BlockingLink:
        """Return a connection that may hold locks. On the caller's thread, or one of its loop."""
        if not self._prepared:
            self._prepare(deadline)
        link = BlockingLink()
        link.connect(self._server, min(deadline - clock.now(), self._server.connect_timeout))
        try:
            run(self._check(link, deadline))
        except Unusable as error:
            link.kill()
            raise unreachable(self._server.label, error) from error.__cause__
        except BaseException:
            link.kill()
            raise
        return link

    def _prepare(self, deadline: float) -> None:
        pool = BlockingPool(self._server)
        try:
            table = f"{self._prefix}{NAME}"
            wire = Wire(pool, BlockingRuntime(), self._server.database, self._prefix, NAME)
            run(wire.call(f"SELECT 1 FROM {table}, {self._prefix}tokens LIMIT 1", deadline))
            self._prepared = True
        finally:
            run(pool.close())

    async def _check(self, link: BlockingLink, deadline: float) -> None:
        left = max(0.01, deadline - clock.now())
        settings = {str(key): str(value) for key, value in await link.query(GALERA, left)}
        if settings.get("wsrep_on", "OFF") == "ON" and settings.get("wsrep_provider", "none") != "none":
            raise self._no("it is a Galera node: GET_LOCK excludes nobody on the other nodes, use mysql://")
        rows = await link.query("SELECT CONNECTION_ID(), VERSION()", left)
        again = await link.query("SELECT CONNECTION_ID()", left)
        if not rows[0][0] == again[0][0] == link.number:
            raise self._no(
                "a proxy stands between that changes connections: connect directly, or use mysql://"
            )
        self._desk.fractions = "maria" in str(rows[0][1]).lower()

    def _no(self, detail: str) -> BackendUnavailable:
        return BackendUnavailable(backend=BACKEND, detail=f"{self._server.label}: {detail}", transient=False)

    # The rest -------------------------------------------------------------------------------

    async def doctor(self) -> Sequence[Finding]:
        from fencelock.backends.mysql.doctor import examine_sessions

        return await self.runtime.call(examine_sessions, self._server, self._prefix, clock.now() + 5.0)

    async def pulse(self, *, deadline: float) -> Sequence[Pulse]:
        from fencelock.backends.mysql.doctor import pulse_sessions

        return await self.runtime.call(pulse_sessions, self._server, self._prefix, deadline)

    async def close(self) -> None:
        await self.runtime.call(self._desk.close)

    def forget(self, requests: Sequence[Request]) -> None:
        """The connections are closed, and the locks with them."""
        self._desk.close()

    def forked(self) -> None:
        self._desk.drop()
        self._start()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._server.label}>"
