"""`redis+sentinel://`: the primary that Sentinel names, and the next one after a failover.

The Sentinels are asked one after the other, those that were right lately first, which server is the
service's primary. A server that they name is believed only when it says so itself (ROLE): a Sentinel
may be cut off and tell of old times, and a server may not have heard of its promotion yet.
Whatever looks like trouble (refused, no answer, READONLY, MASTERDOWN) makes the next request ask anew.

So does the passing of a second. An old primary that stood still, or was cut off, while another was promoted
takes itself for the primary until Sentinel has spoken to it, ten seconds later or more; whoever asks leaves
it at once. Without a sign of trouble the primary is kept if no Sentinel names another: Sentinels that are
down do no harm.

Not promised: that an old primary grants nothing in that second, or to those who reach no Sentinel that knows
better; nor that the new one knows what the old one had granted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import hiredis

from fencelock.backends.redis.acknowledged import ACKED, AcknowledgedBackend, acked_of
from fencelock.backends.redis.failures import BACKEND, said
from fencelock.backends.redis.moving import Moving, share, tls_of
from fencelock.backends.redis.server import OPTIONS, Server, database, options_of
from fencelock.backends.redis.wire import Wire
from fencelock.backends.url import addresses, hide_password, split
from fencelock.errors import BackendUnavailable, ConfigurationError
from fencelock.guarantees import Guarantees
from fencelock.runtime import clock

__all__ = ["SentinelBackend", "Sentinels"]

SENTINEL_PORT = 26379
SENTINEL_OPTIONS = OPTIONS | {ACKED, "sentinel_password", "sentinel_username", "tls"}
FRESH = 1.0
"""Seconds for which the word of a Sentinel is enough."""
LATER = 10.0
"""Seconds until Sentinels are asked again that had no answer, while there is no trouble."""
SLOW = 0.25
"""A server that takes longer to say that it is the primary may have been replaced meanwhile."""
DEMOTED = ("READONLY", "MASTERDOWN", "LOADING", "UNBLOCKED")


class Sentinels(Moving):
    """The primary of one service, by the word of Sentinels and its own."""

    def __init__(self, service: str, sentinels: Sequence[Server], like: Server) -> None:
        """`like` has the credentials of the servers that hold the data."""
        super().__init__(like)
        self.service = service
        self.label = f"{service} of {', '.join(sentinel.label for sentinel in sentinels)}"
        self._sentinels = list(sentinels)
        self._primary: Server | None = None
        self._until = 0.0

    def known(self, bucket: int) -> Server | None:
        return self._primary if clock.now() < self._until else None

    def home(self) -> Server | None:
        return self._primary

    def suspect(self, server: Server | None) -> None:
        if server is self._primary:
            self._primary = None

    async def servers(self, wire: Wire, deadline: float) -> Sequence[Server]:
        return [await self.look(0, wire, deadline)]

    async def correct(self, server: Server, text: str, wire: Wire, deadline: float) -> None:
        if text.startswith(DEMOTED):
            self.suspect(server)
            if await self.learn(0, wire, deadline) is not server:
                return
        raise said(server.label, text)

    async def look(self, bucket: int, wire: Wire, deadline: float) -> Server:
        kept = self._primary
        failures: dict[Server, BackendUnavailable] = {}
        for left, sentinel in zip(range(len(self._sentinels), 0, -1), list(self._sentinels), strict=True):
            found = await self._ask(sentinel, wire, share(deadline, left), failures)
            if found is not None:
                return self._believe(found, FRESH)
            self._sentinels = [*(one for one in self._sentinels if one is not sentinel), sentinel]
        if kept is not None and kept not in failures:
            return self._believe(kept, LATER)
        raise self._nobody(list(failures.values()))

    def _believe(self, server: Server, seconds: float) -> Server:
        self._primary, self._until = server, clock.now() + seconds
        return server

    async def _ask(
        self, sentinel: Server, wire: Wire, deadline: float, failures: dict[Server, BackendUnavailable]
    ) -> Server | None:
        """Return the primary, by the word of this Sentinel and its own; else note who failed."""
        before: Server | None = None
        blamed = sentinel
        try:
            while True:
                named = blamed = await self._named_by(sentinel, wire, share(deadline, 2))
                if named in failures:
                    return None
                asked = clock.now()
                await self._confirm(named, sentinel, wire, deadline)
                if named is before or clock.now() - asked < SLOW:
                    return named
                before = named
        except BackendUnavailable as error:
            failures[blamed] = error
            return None

    async def _named_by(self, sentinel: Server, wire: Wire, deadline: float) -> Server:
        try:
            reply = await wire.tell(
                sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service, deadline=deadline
            )
        finally:
            await wire.part(sentinel)
        if isinstance(reply, hiredis.ReplyError):
            if "unknown command" in str(reply).lower():
                raise _failure(f"{sentinel.label}: it is no Sentinel", False)
            raise said(f"sentinel {sentinel.label}", str(reply))
        if not reply:
            raise _failure(f"sentinel {sentinel.label} knows no service {self.service!r}", False)
        host, port = reply
        return self.at(host.decode(), int(port))

    async def _confirm(self, server: Server, sentinel: Server, wire: Wire, deadline: float) -> None:
        reply = await wire.tell(server, "ROLE", deadline=deadline)
        if isinstance(reply, hiredis.ReplyError):
            raise said(server.label, str(reply))
        if reply[0] != b"master":
            raise _failure(
                f"sentinel {sentinel.label} names {server.label}, which is a replica", transient=True
            )

    def _nobody(self, failures: Sequence[BackendUnavailable]) -> BackendUnavailable:
        passing = [failure for failure in failures if failure.transient]
        told = "; ".join(dict.fromkeys(failure.detail for failure in passing or failures))
        return _failure(f"no primary of {self.service!r}: {told}", bool(passing))


def _failure(detail: str, transient: bool) -> BackendUnavailable:
    return BackendUnavailable(backend=BACKEND, detail=detail, transient=transient)


class SentinelBackend(AcknowledgedBackend):
    """Locks on the primary that Sentinel names."""

    default_port = None  # sentinels give the address of the primary

    @classmethod
    def from_url(cls, url: str) -> SentinelBackend:
        parts, shown = split(url), hide_password(url)
        options = options_of(url, SENTINEL_OPTIONS)
        given = parts.options
        service, _, number = parts.path.strip("/").partition("/")
        if not service:
            raise ConfigurationError(f"{shown!r} names no service: write redis+sentinel://host:26379/SERVICE")
        if number:
            options["db"] = database(unquote(number), shown)
        tls = tls_of(given, shown)
        own: dict[str, Any] = {key: value for key, value in options.items() if key.startswith("ssl_")}
        for key in ("username", "password"):
            if f"sentinel_{key}" in given:
                own[key] = given[f"sentinel_{key}"]
        places = addresses(parts.hosts, SENTINEL_PORT, shown)
        sentinels = [Server(tls=tls, host=host, port=port, **own) for host, port in places]
        return cls(Sentinels(unquote(service), sentinels, Server(tls=tls, **options)), acked_of(given, shown))

    @property
    def guarantees(self) -> Guarantees:
        return self.with_acks(
            replace(
                super().guarantees,
                caveats=(
                    "leases expire by the primary's clock: set forward, it ends them early; set back, it "
                    "keeps dead holders longer",
                    "the new primary may not know of the latest grants, renewals and places in the queue: a "
                    "lock may have two holders, the older of which learns of its loss at its next renewal; "
                    "tokens rise as long as the servers' clocks agree",
                    "an old primary that was cut off goes on granting, for a second to those who reach a "
                    "Sentinel that knows better, else until it is demoted or its min-replicas-to-write stops "
                    "it; in that time both may give the same token, in the same microsecond",
                    "a primary that loses its data and is not replaced (restart without persistence before "
                    "Sentinel takes it for dead) loses all locks; tokens still rise with its clock",
                    "whoever can write to the primary can take and break every lock on it",
                ),
            )
        )
