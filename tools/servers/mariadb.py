"""MariaDB. User and database are called `fencelock`; the user may do everything.

Settings are options of mariadbd; durability is the default one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .errors import NotReady
from .group import Group
from .server import Server

NAME = "fencelock"
PASSWORD = "reef-knot"
FIRST_WORDS = f"""\
CREATE DATABASE IF NOT EXISTS {NAME};
CREATE USER IF NOT EXISTS '{NAME}'@'%' IDENTIFIED BY '{PASSWORD}';
GRANT ALL PRIVILEGES ON *.* TO '{NAME}'@'%' WITH GRANT OPTION;
"""


class MariaDB(Server):
    """One server."""

    account = "mysql"

    @property
    def url(self) -> str:
        return f"mysql://{NAME}:{PASSWORD}@{self.address}/{NAME}"

    def prepare(self) -> None:
        (self.folder / "first-words.sql").write_text(FIRST_WORDS)
        self.fill("mariadb", self._initialise)

    def _initialise(self, data: Path) -> None:
        fast = ["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync"]
        where = ["--no-defaults", f"--datadir={data}", f"--tmpdir={self.folder}", "--skip-test-db"]
        self.run(
            [self.program("mariadb-install-db"), *where, "--auth-root-authentication-method=normal", *fast]
        )

    def command(self) -> list[str]:
        return [self.program("mariadbd"), *self.options()]

    def options(self) -> list[str]:
        """The options of its command line."""
        chosen = {
            "datadir": str(self.data),
            "bind-address": self.host,
            "port": str(self.port),
            "socket": str(self.folder / "socket"),
            "pid-file": str(self.folder / "pid"),
            "init-file": str(self.folder / "first-words.sql"),
            **self.settings,
        }
        return [
            "--no-defaults",
            "--skip-name-resolve",
            *(f"--{key}={value}" for key, value in chosen.items()),
        ]

    def query(self, statement: str) -> str:
        """The unadorned output of one statement, sent over TCP."""
        where = ["-h", self.host, "-P", str(self.port), "--protocol=tcp", "-u", NAME, NAME]
        client = [self.program("mariadb"), "--no-defaults", "-N", "-B", "--connect-timeout=3"]
        return self.run([*client, *where, "-e", statement], MYSQL_PWD=PASSWORD).strip()

    def probe(self) -> None:
        if (said := self.query("SELECT 1")) != "1":
            raise NotReady(f"{self.name} answered SELECT 1 with {said!r}")

    def version(self) -> str:
        return self.query("SELECT VERSION()").split("-")[0]


class MariaDBGroup(Group):
    """One MariaDB."""

    def plan(self) -> Sequence[Server]:
        server = MariaDB(self.site, "mariadb")
        self.urls["mariadb"] = server.url
        return [server]
