"""PostgreSQL, alone or behind two pgbouncers, one in session and one in transaction mode.

The role and the database are both called `fencelock`; the role is a superuser and needs no password. Settings
go to PostgreSQL, or to the pgbouncers where there are any; durability is the default one, fsync included.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from .errors import NotReady
from .group import Group
from .server import Server
from .site import Site

NAME = "fencelock"


class SQLServer(Server):
    """What speaks PostgreSQL's protocol."""

    account = "postgres"

    @property
    def url(self) -> str:
        return f"postgresql://{NAME}@{self.address}/{NAME}"

    def query(self, statement: str, database: str = NAME) -> str:
        """The unadorned output of one statement."""
        client = [self.program("psql"), "-X", "-A", "-t", "-w"]
        where = ["-h", self.host, "-p", str(self.port), "-U", NAME, "-d", database]
        return self.run([*client, *where, "-c", statement], PGCONNECT_TIMEOUT="3").strip()

    def probe(self) -> None:
        if (said := self.query("SELECT 1")) != "1":
            raise NotReady(f"{self.name} answered SELECT 1 with {said!r}")


class Postgres(SQLServer):
    """One server."""

    # SIGTERM would wait for the clients to go away by themselves.
    stop_signal = signal.SIGINT

    def __init__(self, site: Site, name: str, settings: dict[str, str]) -> None:
        super().__init__(site, name)
        self.settings = settings

    def prepare(self) -> None:
        self.fill("postgres", self._initialise)
        # With namespaces, clients come from other addresses.
        with (self.data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all samenet trust\n")

    def _initialise(self, data: Path) -> None:
        how = ["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        self.run([self.program("initdb"), "-D", str(data), "-U", NAME, *how])
        # In single-user mode, so that the first answer over the network already finds it.
        single = ["--single", "-D", str(data), "postgres"]
        self.run([self.program("postgres"), *single], stdin=f"CREATE DATABASE {NAME};\n")

    def command(self) -> list[str]:
        chosen = {
            "listen_addresses": self.host,
            "port": str(self.port),
            "unix_socket_directories": "",
            **self.settings,
        }
        options = [word for key, value in chosen.items() for word in ("-c", f"{key}={value}")]
        return [self.program("postgres"), "-D", str(self.data), *options]

    def version(self) -> str:
        return self.query("SHOW server_version").split()[0]


class PgBouncer(SQLServer):
    """One pooler in front of `backend`; `mode` is session or transaction."""

    # SIGTERM is at once; SIGINT would wait for the clients to finish.
    stop_signal = signal.SIGTERM

    def __init__(self, site: Site, backend: Postgres, mode: str) -> None:
        super().__init__(site, f"pgbouncer-{mode}")
        self.backend = backend
        self.mode = mode

    def prepare(self) -> None:
        # Even with `trust` a user must be listed.
        users = self.data / "users.txt"
        users.write_text(f'"{NAME}" ""\n')
        chosen = {
            "listen_addr": self.host,
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": str(users),
            "admin_users": NAME,
            "pool_mode": self.mode,
            **self.settings,
        }
        target = f"* = host={self.backend.host} port={self.backend.port}"
        lines = ["[databases]", target, "[pgbouncer]", *(f"{key} = {value}" for key, value in chosen.items())]
        (self.data / "pgbouncer.ini").write_text("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        return [self.program("pgbouncer"), str(self.data / "pgbouncer.ini")]

    def version(self) -> str:
        return self.query("SHOW VERSION", database="pgbouncer").split()[-1]


class PostgresGroup(Group):
    """One PostgreSQL."""

    def plan(self) -> Sequence[Server]:
        server = Postgres(self.site, "postgres", self.site.settings)
        self.urls["postgres"] = server.url
        return [server]


class PgBouncerGroup(Group):
    """One PostgreSQL and two ways to it through a pooler, beside the direct one."""

    def plan(self) -> Sequence[Server]:
        direct = Postgres(self.site, "postgres", {})
        session = PgBouncer(self.site, direct, "session")
        transaction = PgBouncer(self.site, direct, "transaction")
        self.urls |= {"session": session.url, "transaction": transaction.url, "direct": direct.url}
        return [direct, session, transaction]

    def version(self) -> str:
        return f"{self.members[1].version()} (PostgreSQL {self.members[0].version()})"
