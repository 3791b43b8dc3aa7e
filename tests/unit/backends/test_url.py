"""One parser reads every URL: several hosts, IPv6 among them, on every Python."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fencelock
from fencelock.backends.url import URL, addresses, host_port, split
from fencelock.errors import ConfigurationError

HOST_LISTS = [
    "etcd://a:2379,[::1]:2379",
    "etcd://ann:p%40w@[::1]:2379,b/prefix?tls=yes",
    "zookeeper://a,b:2182,[::1]:2183/chroot",
    "zookeeper://ann:pw@a,[fe80::1]",
    "consul://:token@a,[::1]:8501",
    "redlock://ann:pw@a,b:7000,[::1]:7001/2",
    "redis+sentinel://a,[::1]:26380/service",
    "redis+cluster://a:7000,[::1]:7001",
    "postgresql://ann:pw@a:5432,[::1]:5433/db",
    "postgresql+advisory://a,[::1]/db",
]
REFUSING = """
import sys, urllib.parse

def refuse(*arguments, **options):
    raise ValueError("Invalid IPv6 URL")

urllib.parse.urlsplit = urllib.parse.urlparse = refuse
from fencelock import Client

for url in sys.argv[1:]:
    Client(url).close()
print("read")
"""


def test_host_lists_with_ipv6_need_nothing_from_urlsplit() -> None:
    """Python 3.13.18, 3.14.10 and others refuse a bracket after the first host."""
    command = [sys.executable, "-c", REFUSING, *HOST_LISTS]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (0, "read\n"), result.stderr


def test_no_other_parser_of_urls_is_left() -> None:
    root = Path(fencelock.__file__).parent
    users = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module == "urllib.parse"
        and {"urlsplit", "urlparse"} & {alias.name for alias in node.names}
    ]
    assert users == []


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("etcd://a:1,[::1]:2", URL("etcd", "a:1,[::1]:2", "", "", "")),
        ("Redis+Cluster://h/0?a=b?c#d#e", URL("redis+cluster", "h", "/0", "a=b?c", "d#e")),
        ("sqlite:///a%20b/c.db?mkdir=yes", URL("sqlite", "", "/a%20b/c.db", "mkdir=yes", "")),
        ("memory://", URL("memory", "", "", "", "")),
        ("no url at all", URL("", "", "no url at all", "", "")),
        ("a://b\nc", URL("a", "b\nc", "", "", "")),
    ],
)
def test_the_parts_of_a_url(url: str, parts: URL) -> None:
    assert split(url) == parts


@pytest.mark.parametrize(
    ("login", "user", "password"),
    [
        ("", "", None),
        ("ann@", "ann", None),
        (":pw@", "", "pw"),
        (":@", "", ""),
        ("us%3Aer:s%2F%40%3A@", "us:er", "s/@:"),
        ("ann:a:b@c@", "ann", "a:b@c"),
    ],
)
def test_user_and_password_are_decoded(login: str, user: str, password: str | None) -> None:
    url = split(f"x://{login}a:1,[::1]:2/p?q=1&q=a%20b&r=")
    assert (url.user, url.password, url.hosts) == (user, password, "a:1,[::1]:2")
    assert url.options == {"q": "a b", "r": ""}


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        ("h", [("h", 9)]),
        ("H1.Example:1,h2", [("h1.example", 1), ("h2", 9)]),
        ("[::1]", [("::1", 9)]),
        ("a:1,[::1]:2,[FE80::1]", [("a", 1), ("::1", 2), ("fe80::1", 9)]),
        ("[fe80::1%25eth0]:65535", [("fe80::1%eth0", 65535)]),
        ("[::ffff:1.2.3.4]:1,1.2.3.4", [("::ffff:1.2.3.4", 1), ("1.2.3.4", 9)]),
    ],
)
def test_hosts_and_ports(hosts: str, found: list[tuple[str, int]]) -> None:
    assert addresses(hosts, 9, "x://…") == found


@pytest.mark.parametrize(
    "hosts",
    [
        *("", "a,", "a,,b", ":1", "h:", "h:0", "h:65536", "h:-1", "h:port", "h:²", "h: 1", "a b", "a\nb"),
        *("::1", "::1:2379", "[::1", "::1]", "[]", "[h]", "[1.2.3.4]", "[::1]2", "a[::1]", "[::1]:1:2"),
    ],
)
def test_what_is_no_address_is_refused_in_one_line(hosts: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not an address: write HOST:PORT") as caught:
        addresses(hosts, 9, "x://…")
    assert len(str(caught.value).splitlines()) == 1


def test_an_address_as_it_is_written() -> None:
    assert (host_port("h", 1), host_port("::1", 2)) == ("h:1", "[::1]:2")
