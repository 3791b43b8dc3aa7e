"""One MariaDB."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, ClassVar

import pymysql  # type: ignore[import-untyped]
from tools.servers import NotReady
from tools.servers.mariadb import NAME, PASSWORD

from chaos.backends.store import Store

__all__ = ["MariaDB"]

DEADLOCK = 1213
CUT_OFF = "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'fencelock' AND ID <> CONNECTION_ID()"


class MariaDB(Store):
    """One MariaDB."""

    word = "mariadb"
    kind = "mariadb"
    spared: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("partition", "leader"), "one server: nothing to partition, nobody to lead"),
        "failover": "a replica that takes over is a server restored from a copy: declared, not started here",
        "session": "no sessions: every request has its own deadline",
        "pooler": "a pooler is PostgreSQL's",
    }

    log = "/ib_logfile0"

    def ask(self, *statements: str) -> Any:
        """What the server answers to the last of these."""
        server = self.group.members[0]
        connection = pymysql.connect(
            host=server.host, port=server.port, user=NAME, password=PASSWORD, database=NAME,
            autocommit=True, connect_timeout=10, read_timeout=30, ssl_disabled=True,
        )  # fmt: skip
        with contextlib.closing(connection), connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    def residue(self) -> list[str]:
        return [f"queue: {owner!r}" for (owner,) in self.ask("SELECT owner FROM fencelock_queue")]

    def delete(self) -> None:
        try:
            self.ask("DELETE FROM fencelock_queue", "DELETE FROM fencelock_buckets")
        except pymysql.OperationalError as error:
            if error.args[0] != DEADLOCK:
                raise
            raise NotReady("the records could not be deleted") from error  # an operator would try again

    def is_acquire(self, data: bytes) -> bool:
        return b"acquire_v1" in data

    def is_renewal(self, data: bytes) -> bool:
        return b"renew_v2" in data

    def refuse(self) -> None:
        """As a replica does: it reads and does not write."""
        self._read_only("ON")

    def accept(self) -> None:
        self._read_only("OFF")

    def _read_only(self, value: str) -> None:
        """Only new sessions take it over, so the old ones are ended."""
        self.ask("SET SESSION tx_read_only = OFF", f"SET GLOBAL tx_read_only = {value}")
        self.cut_off()

    def cut_off(self) -> int:
        """End every connection of a client's; return how many there were."""
        numbers = [number for (number,) in self.ask(CUT_OFF)]
        for number in numbers:
            with contextlib.suppress(pymysql.err.OperationalError):  # gone by itself
                self.ask(f"KILL {number}")
        return len(numbers)
