"""What a URL says, and what it may not say."""

from __future__ import annotations

from typing import Any

import pytest

from fencelock import Client
from fencelock.backends import backend_from_url
from fencelock.backends.redis import RedisBackend
from fencelock.backends.redis.server import Server
from fencelock.errors import ConfigurationError


def server_of(url: str) -> Server:
    server = RedisBackend.from_url(url)._topology.known(0)
    assert isinstance(server, Server)
    return server


@pytest.mark.parametrize(
    ("url", "host", "port", "tls"),
    [
        ("redis://", "localhost", 6379, False),
        ("redis:///", "localhost", 6379, False),
        ("redis://example.org", "example.org", 6379, False),
        ("REDIS://example.org:7000", "example.org", 7000, False),
        ("rediss://example.org:7000/", "example.org", 7000, True),
        ("valkey://[::1]:7000", "::1", 7000, False),
        ("valkeys://[fe80::1]", "fe80::1", 6379, True),
        ("redis://user@example.org", "example.org", 6379, False),
        ("redis://:p%40ss@example.org:1", "example.org", 1, False),
    ],
)
def test_where_the_server_is(url: str, host: str, port: int, tls: bool) -> None:
    server = server_of(url)
    assert (server.host, server.port, server.tls, server.path) == (host, port, tls, None)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("redis://h", {}),
        ("redis://h/3", {"db": 3}),
        ("redis://h?db=3", {"db": 3}),
        ("redis://user:secret@h", {"username": "user", "password": "secret"}),
        ("redis://:secret@h", {"password": "secret"}),
        ("redis://us%3Aer:s%2F%40%3A%23%3F@h", {"username": "us:er", "password": "s/@:#?"}),
        ("redis://user:a:b@h", {"username": "user", "password": "a:b"}),
        ("redis://h?username=user&password=secret", {"username": "user", "password": "secret"}),
        ("rediss://h?ssl_ca_certs=/a%20b.pem&ssl_check_hostname=no", {"ssl_ca_certs": "/a b.pem"}),
    ],
)
def test_what_is_said_to_it(url: str, options: dict[str, Any]) -> None:
    found = server_of(url).options
    assert {key: found.get(key) for key in options} == options
    assert ("password" in found) is ("password" in options)


def test_yes_and_no() -> None:
    for text, value in (("yes", True), ("TRUE", True), ("no", False), ("False", False)):
        assert server_of(f"rediss://h?ssl_check_hostname={text}").options["ssl_check_hostname"] is value


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("unix:///run/redis.sock", "/run/redis.sock"),
        ("unix:///a%20b.sock?db=2", "/a b.sock"),
        ("unix://u:p@/r.sock", "/r.sock"),
    ],
)
def test_a_socket_has_a_path(url: str, path: str) -> None:
    server = server_of(url)
    assert server.path == path
    assert server.label == path


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("redis://:secret@h", "h:6379"),
        ("redis://u:secret@[::1]:7", "[::1]:7"),
        ("redis://h:1/3?password=secret", "h:1"),
    ],
)
def test_a_label_has_no_credentials(url: str, label: str) -> None:
    server = server_of(url)
    assert server.label == label
    assert "secret" not in repr(server) + repr(RedisBackend.from_url(url))


@pytest.mark.parametrize(
    "url",
    [
        *("redis://h/x", "redis://h/-1", "redis://h/1.5", "redis://h/1/2", "redis://h/٣", "redis://h?db=x"),
        *(
            "redis://h:x",
            "redis://h:0",
            "redis://h:65536",
            "redis://h:-1",
            "redis://:6379",
            "redis://a,b",
            "redis://[::1",
        ),
        *(
            "redis://h?colour=red",
            "redis://h#3",
            "rediss://h?ssl_check_hostname=1",
            "rediss://h?ssl_cert_reqs=maybe",
        ),
        *("unix://", "unix:///", "unix://host/path", "unix://relative.sock"),
    ],
)
def test_what_cannot_be_meant_is_an_error_in_one_line(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        backend_from_url(url)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "url",
    [
        *(
            "redis://:{}@h/x",
            "redis://u:{}@h?colour=red",
            "redis://h?password={}&colour=red",
            "redis://:{}@h#3",
        ),
        *(
            "redis://:pa/{}@h",
            "redis://:pa?{}@h",
            "redis://:pa#{}@h",
            "rediss://h?ssl_password={}&colour=red",
        ),
        *("redis://:{}@h:x", "unix://:{}@host/path", "redis://:pa@{}@h:x"),
    ],
)
def test_no_error_shows_a_password(url: str) -> None:
    secret = "s3cr3t"
    with pytest.raises(ConfigurationError) as caught:
        Client(url.format(secret))
    assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["redis://u:s3cr3t@h", "redis://h?password=s3cr3t", "rediss://h?ssl_password=s3cr3t"]
)
def test_a_client_does_not_show_its_password(url: str) -> None:
    with Client(url) as locks:
        assert "s3cr3t" not in repr(locks)


def test_nothing_is_opened_before_the_first_use() -> None:
    with Client("redis://no-such-host.invalid:1") as locks:
        assert locks.guarantees.fairness == "fifo"
        assert locks.guarantees.wakeup == "push"
