"""Where the server is: the URL as libpq understands it, and the options that are fencelock's own.

libpq reads `postgresql://user:password@host:port/database?sslmode=…` itself, several hosts and sockets
included, so every option that psql knows works here. Connections are told apart in
pg_stat_activity by `application_name=fencelock`, unless the user names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlencode

from psycopg import OperationalError, pq

from fencelock.backends import hide_password
from fencelock.errors import ConfigurationError

__all__ = ["Address", "identifier"]

OWN = {"schema", "pool_size"}
DEFAULTS = {
    "application_name": "fencelock",
    # A host that is gone is noticed by the kernel, whoever waits for whom.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
MOST = 100
HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::(.*))?")
"""A host, with a port or without: a name, numbers, or numbers in brackets."""
POOL_SIZE = 4


class Address:
    """What a URL says: how to connect, and how to behave."""

    def __init__(self, conninfo: Mapping[str, str], *, schema: str = "fencelock", pool_size: int = POOL_SIZE):
        self.parameters = {**DEFAULTS, **conninfo}
        self.schema = schema
        self.pool_size = pool_size
        self.label = _label(self.parameters)

    @classmethod
    def from_url(cls, url: str, own: frozenset[str] = frozenset()) -> tuple[Address, dict[str, str]]:
        """Read a URL; options named in `own` are returned beside it."""
        shown = hide_password(url)
        base, _, rest = url.partition("?")
        query, _, fragment = rest.partition("#")
        if fragment or "#" in base:
            raise ConfigurationError(f"{shown!r} has a '#': in a password write %23")
        if "\0" in url:
            raise ConfigurationError(f"{shown!r} has a NUL character")
        options = dict(_options(query))
        if any("@" in key for key in options):
            raise ConfigurationError(f"{shown!r} has a '?' before the '@': in a password write %3F")
        mine = {key: options.pop(key) for key in list(options) if key in OWN | own}
        known = ", ".join(sorted(OWN | own | {"namespace"}))
        given = _parsed(base.partition("://")[2], urlencode(options, quote_via=quote), shown, known)
        address = cls(
            given,
            schema=identifier(mine.pop("schema", "fencelock"), shown),
            pool_size=_size(mine.pop("pool_size", str(POOL_SIZE)), shown),
        )
        return address, mine

    def with_parameters(self, parameters: Mapping[str, str]) -> Address:
        """Return the same address with some parameters written otherwise."""
        other = Address({**self.parameters, **parameters}, schema=self.schema, pool_size=self.pool_size)
        other.label = self.label
        return other

    @property
    def conninfo(self) -> bytes:
        """Return the parameters as libpq takes them."""
        words = [f"{key}={_quoted(value)}" for key, value in self.parameters.items()]
        return " ".join(words).encode()

    def __repr__(self) -> str:
        return f"<Address {self.label}>"


def _options(query: str) -> Iterator[tuple[str, str]]:
    """Return the options as they were meant. As for libpq, a plus sign is one, and no space."""
    for pair in query.split("&") if query else []:
        key, _, value = pair.partition("=")
        yield unquote(key), unquote(value)


def _parsed(where: str, query: str, shown: str, known: str) -> dict[str, str]:
    """Return what libpq understands. Its words are shown only where no password can be in them."""
    authority, slash, rest = where.partition("/")
    user, mark, hosts = authority.rpartition("@")
    if "@" in user:
        raise ConfigurationError(f"{shown!r} has more than one '@': in a user name or a password write %40")
    for spec in hosts.split(","):
        match = HOST.fullmatch(spec)
        if match is None or (match[2] and not (match[2].isdecimal() and 0 < int(match[2]) < 65536)):
            hint = "; in a password write %2F for / and %3F for ?" if not mark and ":" in spec else ""
            raise ConfigurationError(f"{shown!r} is not understood: what stands for a port is none{hint}")
    if query:
        query = f"?{query}"
    try:
        pq.Conninfo.parse(f"postgresql://{hosts}{slash}{rest}{query}".encode())
    except (OperationalError, ValueError) as error:
        words = str(error).strip()
        raise ConfigurationError(
            f"{shown!r} is not understood by libpq: {words}; fencelock's own options are {known}"
        ) from None
    try:
        found = pq.Conninfo.parse(f"postgresql://{where}{query}".encode())
        return {option.keyword.decode(): option.val.decode() for option in found if option.val is not None}
    except (OperationalError, ValueError):
        raise ConfigurationError(
            f"{shown!r} is not understood by libpq: percent-encode the user name and the password, in UTF-8"
        ) from None


def identifier(name: str, shown: str) -> str:
    """Return the name of a schema, checked: it is written into statements."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", name):
        raise ConfigurationError(
            f"schema={name[:80]!r} in {shown!r} is no plain name: use letters, digits and underscores"
        )
    return name


def _size(text: str, shown: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise ConfigurationError(f"pool_size={text[:20]!r} in {shown!r} is not a number from 1 to {MOST}")
    return int(text)


def _label(parameters: Mapping[str, Any]) -> str:
    host = parameters.get("host") or parameters.get("hostaddr") or "localhost"
    port = parameters.get("port")
    if "," in host:
        return host
    return f"{host}:{port}" if port and not host.startswith("/") else host


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
