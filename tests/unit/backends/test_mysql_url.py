"""What a URL says to the MySQL backends, and what it may not say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencelock import Client
from fencelock.backends import backend_from_url
from fencelock.backends.mysql import MySQLBackend
from fencelock.backends.mysql.getlock import GetLockBackend
from fencelock.backends.mysql.server import Server
from fencelock.errors import ConfigurationError


def server_of(url: str) -> Server:
    server = backend_from_url(url)._server  # type: ignore[attr-defined]
    assert isinstance(server, Server)
    return server


@pytest.mark.parametrize(
    ("url", "host", "port", "database"),
    [
        ("mysql://example.org/app", "example.org", 3306, "app"),
        ("mysql:///app", "localhost", 3306, "app"),
        ("MARIADB://example.org:3307/app", "example.org", 3307, "app"),
        ("mariadb://[::1]:3307/app/", "::1", 3307, "app"),
        ("mysql+getlock://user@example.org/a%20b", "example.org", 3306, "a b"),
    ],
)
def test_where_the_server_is(url: str, host: str, port: int, database: str) -> None:
    server = server_of(url)
    assert (server.host, server.port, server.database, server.path) == (host, port, database, None)
    assert server.tls is None


def test_which_backend_it_is() -> None:
    assert type(backend_from_url("mysql://h/d")) is type(backend_from_url("mariadb://h/d")) is MySQLBackend
    assert type(backend_from_url("mysql+getlock://h/d")) is GetLockBackend


def test_credentials_are_what_was_percent_encoded() -> None:
    server = server_of("mysql://us%3Aer:s%2F%40%3A%23%3F%C3%A9@h/d")
    assert server.user == "us:er"
    assert server.password == "s/@:#?é".encode()
    arguments = server.arguments(1.5)
    assert (arguments["user"], arguments["connect_timeout"]) == ("us:er", 1.5)
    assert arguments["autocommit"] is True


def test_options() -> None:
    url = "mysql://h/d?unix_socket=/run/my.sock&connect_timeout=0.5&pool_size=2&prefix=app_&charset=latin1"
    server = server_of(url)
    assert (server.path, server.connect_timeout, server.pool_size) == ("/run/my.sock", 0.5, 2)
    assert server.label == "/run/my.sock"
    assert server.charset == "latin1"
    assert "CREATE TABLE IF NOT EXISTS app_queue" in MySQLBackend.from_url(url).schema()
    assert GetLockBackend.from_url("mysql+getlock://h/d?connections=3")._connections == 3


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://h", "names no database"),
        ("mysql://h/", "names no database"),
        ("mysql://h/a/b", "names no database"),
        ("mysql://h/a#b", "names no database"),
        ("mysql://h:port/d", "is not an address"),
        ("mysql://a,b/d", "is not an address"),
        ("mysql://h/d?databse=x", "unknown option databse"),
        ("mysql://h/d?connections=2", "unknown option connections"),
        ("mysql+getlock://h/d?pool_size=2", "unknown option pool_size"),
        ("mysql://h/d?pool_size=0", "pool_size=0"),
        ("mysql://h/d?pool_size=many", "give a whole number from 1 on"),
        ("mysql://h/d?connect_timeout=-1", "give seconds, more than 0"),
        ("mysql://h/d?prefix=a-b", "write letters, digits"),
        ("mysql://h/d?prefix=1a", "write letters, digits"),
        ("mysql://h/d?prefix=x'%3B--", "write letters, digits"),
        ("mysql+getlock://h/d?prefix=", "write letters, digits"),
        ("mysql+getlock://h/d?connections=0", "connections=0"),
        ("mysql://h/d?charset=u'", "is no character set"),
        ("mysql://h/d?ssl=perhaps", "write yes or no"),
        ("mysql://h/d?ssl_verify=perhaps", "write full, ca, no"),
        ("mysql://h/d?ssl_ca=/no/such/file", "/no/such/file: cannot be used"),
    ],
)
def test_what_is_wrong_is_said(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Client(url.replace("://", "://user:s3cr3t@"))
    assert words in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_an_unknown_option_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"knows .*namespace.*pool_size.*prefix.*ssl_ca"):
        MySQLBackend.from_url("mysql://h/d?x=1")


@pytest.mark.parametrize(
    ("options", "encrypted", "hostname", "verified"),
    [
        ("", False, None, None),
        ("ssl=no", False, None, None),
        ("ssl=yes", True, True, True),
        ("ssl_verify=ca", True, False, True),
        ("ssl_verify=no", True, False, False),
    ],
)
def test_tls(options: str, encrypted: bool, hostname: Any, verified: Any) -> None:
    context = server_of(f"mysql://h/d?{options}").tls
    assert (context is not None) is encrypted
    if context is not None:
        assert context.check_hostname is hostname
        assert (context.verify_mode != 0) is verified


def test_nothing_shows_the_password() -> None:
    for scheme in ("mysql", "mysql+getlock"):
        backend = backend_from_url(f"{scheme}://user:s3cr3t@h/d")
        assert "s3cr3t" not in repr(backend) + repr(backend._server)  # type: ignore[attr-defined]
        assert "h:3306" in repr(backend)


def test_guarantees_need_no_server() -> None:
    with Client("mysql://h/d") as locks:
        assert (locks.guarantees.crash_release, locks.guarantees.wakeup) == ("ttl", "poll")
    with Client("mysql+getlock://h/d") as locks:
        assert (locks.guarantees.crash_release, locks.guarantees.fairness) == ("connection", "none")


def test_every_procedure_and_table_has_the_prefix() -> None:
    for url in ("mysql://h/d?prefix=app_", "mysql+getlock://h/d?prefix=app_"):
        text = backend_from_url(url).schema()  # type: ignore[attr-defined]
        assert "PREFIX" not in text
        assert "fencelock_" not in text


def test_the_sql_is_shipped_beside_the_code() -> None:
    import fencelock.backends.mysql as package

    folder = Path(str(package.__file__)).parent / "sql"
    assert sorted(file.name for file in folder.iterdir()) == ["getlock.sql", "schema.sql"]
