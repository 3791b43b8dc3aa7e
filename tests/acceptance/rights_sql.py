"""PostgreSQL and MariaDB with owners, workers and lookers as docs/reference/permissions.md makes them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import mysql_desk
import postgres_desk
from cli_helpers import fencelock_command
from rights_page import block
from tools.servers import start
from workers.databases import engine_url

PASSWORD = "marlinspike"
TABLES = "Tables of modules in your own database"


class Database(NamedTuple):
    """A server, and how the tests come to it as an administrator."""

    kind: str
    server: Any
    ask: Callable[..., Any]
    forms: dict[str, str]
    """The scheme of each form of locks, and the heading of its worker's GRANTs."""

    def url(self, role: str, scheme: str = "") -> str:
        return f"{scheme or self.kind}://{role}:{PASSWORD}@{self.server.address}/fencelock"

    def grants(self, heading: str) -> list[str]:
        """Return the statements of a block, for this database."""
        text = block(heading).replace("app.", "fencelock.").replace("DATABASE app ", "DATABASE fencelock ")
        if heading == "Tables worker":
            text = text.replace(" ON ", " ON fencelock." if self.kind == "mysql" else " ON public.")
        return [" ".join(one.split()) for one in text.split(";") if one.strip()]

    def grant(self, role: str, *headings: str) -> None:
        """Give a role exactly what these blocks say."""
        self.forget(role)
        for heading in headings:
            for statement in self.grants(heading):
                self.ask(self.server, statement)

    def forget(self, role: str) -> None:
        """Let a role have no rights."""
        if self.kind == "mysql":
            self.ask(self.server, f"CREATE OR REPLACE USER {role} IDENTIFIED BY '{PASSWORD}'")
            return
        if not self.ask(self.server, "SELECT 1 FROM pg_roles WHERE rolname = %s", role):
            self.ask(self.server, f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
        self.ask(self.server, f"DROP OWNED BY {role}")


POSTGRES = {"postgresql": "PostgreSQL worker", "postgresql+advisory": "PostgreSQL advisory worker"}
MYSQL = {"mysql": "MySQL worker", "mysql+getlock": "MySQL GET_LOCK worker"}


@contextmanager
def database_of(kind: str, folder: Path) -> Iterator[Database]:
    """A server where the owner has made everything, with no more rights than the page says."""
    if kind == "postgres":
        with start("postgres", settings={"fsync": "off"}) as group:
            found = Database("postgresql", group.members[0], postgres_desk.ask, POSTGRES)
            found.grant("owner", "PostgreSQL owner")
            # The tables of the user's own are there.
            found.ask(found.server, "GRANT CREATE ON SCHEMA public TO owner")
            made(found, folder)
            yield found
    else:
        with start("mariadb") as group:
            found = Database("mysql", group.members[0], mysql_desk.ask, MYSQL)
            found.grant("owner", "MySQL owner")
            made(found, folder)
            yield found


def made(database: Database, folder: Path) -> None:
    """Let the owner run `fencelock schema` for each form, and the page's program for the rest."""
    for scheme in database.forms:
        done = fencelock_command(database.url("owner", scheme), "schema")
        assert done.returncode == 0, done.stderr
    (folder / "tables.py").write_text(block(TABLES))
    where = engine_url(database.url("owner"))
    done = subprocess.run(
        [sys.executable, folder / "tables.py", where], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


class Right(NamedTuple):
    """One right on one thing."""

    word: str
    thing: str

    def __str__(self) -> str:
        return f"GRANT {self.word} ON {self.thing} TO worker"


def rights_of(statements: list[str]) -> list[Right]:
    """Take GRANTs apart: `GRANT SELECT, INSERT ON a, b` is four rights."""
    found = []
    for statement in statements:
        told = re.fullmatch(r"GRANT (.+) ON (PROCEDURE |SEQUENCE |SCHEMA )?(.+) TO worker", statement)
        assert told, statement
        for thing in told[3].split(", "):
            found += [Right(word, f"{told[2] or ''}{thing}") for word in told[1].split(", ")]
    return found
