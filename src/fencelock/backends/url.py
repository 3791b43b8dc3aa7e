"""Reads `scheme://user:password@h1:2379,[::1]:2379/path?option=value#fragment`, with one host or several.

`urllib.parse.urlsplit` is for one host: newer Python releases refuse a bracket after the first host. What is
read here is the generic syntax of RFC 3986, the same on every Python. A host list stays one text until
`addresses` reads it, so that a backend without hosts need not have any.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from fencelock.errors import ConfigurationError

__all__ = ["URL", "address", "addresses", "hide_password", "host_port", "split"]

PARTS = re.compile(
    r"(?:(?P<scheme>[^:/?#]*):)?(?://(?P<authority>[^/?#]*))?(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?(?:\#(?P<fragment>.*))?",
    re.DOTALL,
)
ADDRESS = re.compile(r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<name>[^\[\]:,@\s]+))(?::(?P<port>[0-9]{1,5}))?")


class URL(NamedTuple):
    """The parts of a URL as they were written; only the scheme is in small letters."""

    scheme: str
    authority: str
    path: str
    query: str
    fragment: str

    @property
    def user(self) -> str:
        """The user name, decoded; empty without one."""
        return unquote(self._login[0])

    @property
    def password(self) -> str | None:
        """The password, decoded; `None` if not even its colon is there."""
        _, colon, password = self._login
        return unquote(password) if colon else None

    @property
    def hosts(self) -> str:
        """What stands for the hosts: `h1:2379,[::1]:2379`."""
        return self.authority.rpartition("@")[2]

    @property
    def options(self) -> dict[str, str]:
        """What stands after the question mark, decoded."""
        return dict(parse_qsl(self.query, keep_blank_values=True))

    @property
    def _login(self) -> tuple[str, str, str]:
        return self.authority.rpartition("@")[0].partition(":")


def split(url: str) -> URL:
    """Split any text; no text is refused."""
    match = PARTS.fullmatch(url)
    assert match is not None  # every part may be empty
    parts = {name: text or "" for name, text in match.groupdict().items()}
    return URL(**{**parts, "scheme": parts["scheme"].lower()})


def addresses(hosts: str, default_port: int, shown: str) -> list[tuple[str, int]]:
    """Return the host and port of each address between commas; `shown` is the URL for a message."""
    return [address(text, default_port, shown) for text in hosts.split(",")]


def address(text: str, default_port: int, shown: str) -> tuple[str, int]:
    """Return the host and port of `h1`, `h1:2379` or `[::1]:2379`."""
    match = ADDRESS.fullmatch(text)
    port = int(match["port"] or default_port) if match is not None else 0
    if match is None or not 0 < port < 65536 or not _is_v6(match["v6"]):
        raise ConfigurationError(
            f"{text!r} in {shown!r} is not an address: write HOST:PORT, or [ADDRESS]:PORT for IPv6"
        )
    host, zone, scope = unquote(match["v6"] or match["name"]).partition("%")
    return f"{host.lower()}{zone}{scope}", port


def _is_v6(text: str | None) -> bool:
    from ipaddress import AddressValueError, IPv6Address  # few URLs need it

    try:
        return text is None or bool(IPv6Address(unquote(text)))
    except AddressValueError:
        return False


def host_port(host: str, port: int) -> str:
    """Return `HOST:PORT` as a URL has it, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def hide_password(url: str) -> str:
    """Return `url` as it may be shown: without its password."""
    url = re.sub(r"(^[^/?#@:\s]*|://[^/?#@:]*):[^/?#\s]*@", r"\1:***@", url)
    # A password in which / ? or # was not escaped is one all the same: up to the last @.
    url = re.sub(r"(://[^/?#@:\s]*):(?!\*\*\*@)\S*@", r"\1:***@", url)
    return re.sub(r"([?&]\w*password=)[^&#]*", r"\1***", url, flags=re.IGNORECASE)
