"""MySQL. User and database are called `fencelock`; the user may do everything and logs in as MySQL does by
default, with `caching_sha2_password`.

The server makes a certificate of its own, so TLS is possible and not required. Our own questions come from
root over the socket: a login of the user would put its password into the server's cache, and the next login
without TLS would be easier than a first one is. Settings are options of mysqld; durability is the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .group import Group
from .mariadb import NAME, MariaDB
from .server import Server

NO_FILES = "--secure-file-priv=NULL"
"""Its default is a folder that a script of the package makes."""


class MySQL(MariaDB):
    """One server."""

    def _initialise(self, data: Path) -> None:
        fast = ["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync"]
        where = ["--no-defaults", f"--datadir={data}", f"--tmpdir={self.folder}"]
        self.run([self.program("mysqld"), *where, "--initialize-insecure", NO_FILES, *fast])

    def command(self) -> list[str]:
        # The second protocol would take a port that is not ours.
        return [self.program("mysqld"), *self.options(), "--mysqlx=OFF", NO_FILES]

    def query(self, statement: str) -> str:
        """The unadorned output of one statement, sent by root over the socket."""
        client = [self.program("mysql"), "--no-defaults", "-N", "-B", "--connect-timeout=3"]
        return self.run(
            [*client, f"--socket={self.folder / 'socket'}", "-u", "root", NAME, "-e", statement]
        ).strip()


class MySQLGroup(Group):
    """One MySQL."""

    def plan(self) -> Sequence[Server]:
        server = MySQL(self.site, "mysql")
        self.urls["mysql"] = server.url
        return [server]
