"""What `doctor` says of advisory locks, beside what it says of any PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from fencelock.backends.postgres.address import Address
from fencelock.backends.postgres.advisory.seat import IDLE_SINCE
from fencelock.backends.postgres.advisory.steps import Steps
from fencelock.backends.postgres.wire import Source, Wire
from fencelock.findings import Finding

__all__ = ["examine"]

OF_THE_LEASE_TABLE = {"rights", "synchronous_commit", "pooler"}
"""Subjects on which the lease table's needs are others than those of session locks."""


async def examine(steps: Steps, source: Source, address: Address, deadline: float) -> Sequence[Finding]:
    """Look at the server, and at what this form of lock needs of it."""
    from fencelock.backends.postgres.doctor import examine as examine_server

    async def nothing(wire: Wire, deadline: float) -> None:
        """The schema is there: a seat was opened."""

    who = object()
    seat = await steps.seats.any(who, deadline)  # makes the schema, and refuses a pooler that will not do
    version, is_pooled = seat.pg.server_version, seat.pid != seat.pg.backend_pid
    steps.seats.free(seat, who)
    try:
        found = await examine_server(Wire(source, nothing), address.schema, deadline)
    finally:
        await source.close()
    return [
        *(finding for finding in found if finding.subject not in OF_THE_LEASE_TABLE),
        _pooler(is_pooled),
        _silence(version),
    ]


def _pooler(is_pooled: bool) -> Finding:
    if not is_pooled:
        return Finding("ok", "pooler", "none in between")
    return Finding(
        "notice",
        "pooler",
        "one in session mode: each connection of a client is one of the server's",
        "let its pool be as large as all clients' pool_size together, or connect to the server itself",
    )


def _silence(version: int) -> Finding:
    if version >= IDLE_SINCE:
        return Finding(
            "ok", "silent holders", "the server ends a session that is silent for longer than its leases' ttl"
        )
    return Finding(
        "warning",
        "silent holders",
        "this server knows no idle_session_timeout: a process that is stopped keeps its locks as long as its "
        "connection lives",
        "use PostgreSQL 14 or newer, or postgresql://",
    )
