"""The table of conformance runs: how to reach a backend of each scheme. One without a row is a failure.

A row is named by its scheme; one that reaches the backend in another way has that behind an @.
"""

from __future__ import annotations

import gc
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tools.servers import ports, start

__all__ = ["ALIASES", "ROWS", "UNRELAYED", "certificate"]

Row = Callable[[Path], AbstractContextManager[str]]


@contextmanager
def memory(folder: Path) -> Iterator[str]:
    yield "memory://"


@contextmanager
def sqlite(folder: Path) -> Iterator[str]:
    yield f"sqlite://{folder}/locks.db"


def server(kind: str, **settings: str) -> Row:
    @contextmanager
    def row(folder: Path) -> Iterator[str]:
        with start(kind, settings=settings) as group:
            yield group.url

    return row


@contextmanager
def unix(folder: Path) -> Iterator[str]:
    path = folder / "redis.sock"
    with start("redis", settings={"unixsocket": str(path)}):
        yield f"unix://{quote(str(path))}"


def certificate(folder: Path, host: str = "IP:127.0.0.1") -> Mapping[str, str]:
    """Make a certificate for a host that vouches for itself; return settings for a server with it."""
    key, cert = folder / "server.key", folder / "server.crt"
    names = ["-subj", "/CN=fencelock test", "-addext", f"subjectAltName={host}"]
    made = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *made],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return {"tls-cert-file": str(cert), "tls-key-file": str(key), "tls-auth-clients": "no"}


def tls(kind: str, scheme: str) -> Row:
    @contextmanager
    def row(folder: Path) -> Iterator[str]:
        settings = certificate(folder)
        port = ports.take()
        try:
            with start(kind, settings={**settings, "tls-port": str(port)}):
                yield f"{scheme}://127.0.0.1:{port}?ssl_ca_certs={quote(settings['tls-cert-file'])}"
        finally:
            ports.give_back(port)

    return row


def postgres(kind: str, way: str, scheme: str, **settings: str) -> Row:
    """Reach PostgreSQL by one of the ways that a group of servers has; look what is left in the end."""

    @contextmanager
    def row(folder: Path) -> Iterator[str]:
        with start(kind, settings=settings) as group:
            _, _, rest = group.urls[way].partition("://")
            yield f"{scheme}://{rest}"
            left = [
                "pg_stat_activity WHERE state LIKE 'idle in transaction%'",
                "pg_locks WHERE locktype = 'advisory'",
            ]
            if kind == "postgres":  # a pooler keeps its sessions
                left.append(
                    "pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                )
            nothing_left(group.members[0], left)

    return row


def mariadb(scheme: str) -> Row:
    """Reach MariaDB. It need not flush for each commit: what a crash loses is looked at elsewhere."""

    @contextmanager
    def row(folder: Path) -> Iterator[str]:
        with start("mariadb", settings={"innodb-flush-log-at-trx-commit": "2"}) as group:
            _, _, rest = group.url.partition("://")
            yield f"{scheme}://{rest}"
            sessions = "information_schema.PROCESSLIST WHERE USER = 'fencelock' AND ID <> CONNECTION_ID()"
            nothing_left(group.members[0], ["information_schema.INNODB_TRX", sessions])

    return row


def nothing_left(server: Any, tables: Sequence[str]) -> None:
    """Fail unless these have no rows, soon: no open transaction, and no session that could hold a lock."""
    gc.collect()  # some checks leave a client to the collector
    until = time.monotonic() + 10.0
    for table in tables:
        while server.query(f"SELECT COUNT(*) FROM {table}") != "0":
            if time.monotonic() > until:
                raise AssertionError(f"after all checks: {server.query(f'SELECT * FROM {table}')}")
            time.sleep(0.1)


MANY = {"default_pool_size": "90", "max_client_conn": "500"}
"""In session mode a client's connection has one of the server's for as long as it lives."""

NO_FSYNC = {"unsafe-no-fsync": "true"}
"""Where nothing crashes, nothing needs to be on disk."""

MANY_HTTP = {"limits": '{"http_max_conns_per_client": 2000}'}
"""All checks come from one address, as one program does not."""

ROWS: dict[str, Row] = {
    "memory": memory,
    "sqlite": sqlite,
    "redis": server("redis"),
    "rediss": tls("redis", "rediss"),
    "unix": unix,
    "valkey": server("valkey"),
    "valkeys": tls("valkey", "valkeys"),
    "redis+sentinel": server("sentinel"),
    "redis+cluster": server("cluster"),
    "redlock": server("redlock"),
    "postgresql": postgres("postgres", "postgres", "postgresql"),
    "postgres": postgres("postgres", "postgres", "postgres"),
    "postgresql@session-pooler": postgres("pgbouncer", "session", "postgresql", **MANY),
    "postgresql@transaction-pooler": postgres("pgbouncer", "transaction", "postgresql"),
    "postgresql+advisory": postgres("postgres", "postgres", "postgresql+advisory"),
    "postgres+advisory": postgres("postgres", "postgres", "postgres+advisory"),
    "mysql": mariadb("mysql"),
    "mariadb": mariadb("mariadb"),
    "mysql+getlock": mariadb("mysql+getlock"),
    "zookeeper": server("zookeeper", forceSync="no"),
    "zookeeper@ensemble": server("zookeeper3", forceSync="no"),
    "zookeeper@stock": server("zookeeper", forceSync="no", tickTime="2000", maxSessionTimeout="40000"),
    "etcd": server("etcd", **NO_FSYNC),
    "etcd@ensemble": server("etcd3", **NO_FSYNC),
    "consul": server("consul", **MANY_HTTP),
    "consul@ensemble": server("consul3", **MANY_HTTP),
}

ALIASES = {
    "mariadb": "mysql",
    "unix": "redis",
    "rediss": "redis",
    "valkey": "redis",
    "redis+sentinel": "redis",
    "redis+cluster": "redis",
    "postgres": "postgresql",
    "postgres+advisory": "postgresql+advisory",
    "postgresql@session-pooler": "postgresql",
    "postgresql@transaction-pooler": "postgresql",
    "valkeys": "valkey",
    "zookeeper@ensemble": "zookeeper",
    "zookeeper@stock": "zookeeper",  # sessions of 4 to 40 seconds
    "etcd@ensemble": "etcd",
    "consul@ensemble": "consul",
}
"""Another way to what has a row of its own: one check in eight will do, unless `FENCELOCK_CHECKS=all`.

Sentinels and a cluster have connections of their own, with tests of their own, and the same scripts."""

UNRELAYED = {"memory", "sqlite", "unix", "redis+sentinel", "redis+cluster"}
"""Where no relay can stand before the servers: there is no network, or servers name further servers."""
