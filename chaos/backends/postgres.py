"""One PostgreSQL."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, ClassVar

import psycopg
from tools.servers import NotReady, Server

from chaos.backends.store import Store

__all__ = ["Postgres"]


class Postgres(Store):
    """One PostgreSQL."""

    word = "postgresql"
    kind = "postgres"
    spared: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("partition", "leader"), "one server: nothing to partition, nobody to lead"),
        "failover": "a promoted standby is a server restored from a copy: declared, and not started here",
        "session": "no sessions: every request has its own deadline",
    }

    @property
    def server(self) -> Any:
        """The server to ask."""
        return self.group.members[0]

    @property
    def url(self) -> str:
        return str(self.group.urls.get("transaction") or self.group.url)

    @property
    def servers(self) -> list[Server]:
        return super().servers[:1]

    def ask(self, *statements: str) -> list[tuple[Any, ...]]:
        """What the server answers to the last of these."""
        where = psycopg.connect(
            self.server.url, autocommit=True, application_name="chaos", connect_timeout=10
        )
        with contextlib.closing(where) as connection:
            rows: list[tuple[Any, ...]] = []
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
            return rows

    def residue(self) -> list[str]:
        return [
            f"queue: {place!r} {owner}"
            for place, owner in self.ask("SELECT place, owner FROM fencelock.queue")
        ]

    def delete(self) -> None:
        try:
            self.ask("DELETE FROM fencelock.queue", "DELETE FROM fencelock.buckets")
        except psycopg.errors.DeadlockDetected as error:  # with a client: an operator would try again
            raise NotReady("the records could not be deleted") from error

    log = "/pg_wal/0"

    def persist(self) -> None:
        """WAL is flushed by nobody but whoever needs it flushed: all that may be lost is lost."""
        self.options |= {"wal_writer_delay": "10000", "wal_writer_flush_after": "1GB", "wal_recycle": "off"}

    def is_acquire(self, data: bytes) -> bool:
        return b"acquire" in data

    def is_renewal(self, data: bytes) -> bool:
        return b"renew" in data

    def refuse(self) -> None:
        """As a standby does: it reads and does not write."""
        self.ask("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")

    def accept(self) -> None:
        self.ask(
            "SET default_transaction_read_only = off",
            "ALTER SYSTEM RESET default_transaction_read_only",
            "SELECT pg_reload_conf()",
        )
