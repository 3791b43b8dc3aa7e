"""Where Consul is: `consul://[:TOKEN@]HOST:PORT,HOST:PORT/PREFIX?dc=…&cacert=…&cert=…&key=…`.

The token is an ACL token, as a password without a user. Any of cacert, cert, key and tls=yes means TLS.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from urllib.parse import unquote

from fencelock.backends.ordered.address import FILES, endpoints, is_tls, tls_context
from fencelock.backends.url import split
from fencelock.errors import ConfigurationError

__all__ = ["DEFAULT_PORT", "Address", "parse"]

DEFAULT_PORT = 8500
DEFAULT_PREFIX = "fencelock"
OPTIONS = ("dc", *FILES, "tls", "server_name")


@dataclass(frozen=True, slots=True)
class Address:
    """Where, as whom, and how."""

    endpoints: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX
    token: str | None = field(default=None, repr=False)
    dc: str | None = None
    tls: bool = False
    cacert: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None

    @property
    def label(self) -> str:
        """All endpoints, for people to read. Never a credential."""
        return ",".join(self.endpoints)

    def context(self) -> ssl.SSLContext | None:
        """Return what TLS needs, `None` without it. Reads the files."""
        return tls_context(self.cacert, self.cert, self.key) if self.tls else None


def parse(url: str) -> Address:
    """Read a URL. No I/O."""
    parts = split(url)
    shown = f"consul://{parts.hosts}"  # a token may stand in many wrong places: no more than this is shown
    if parts.user or parts.password == "":
        raise ConfigurationError(f"{shown!r} comes with a user: a token is written consul://:TOKEN@…")
    token = parts.password or ""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError(f"{shown!r} comes with a token that is none: it has spaces or strange signs")
    options = parts.options
    unknown = sorted(set(options) - set(OPTIONS))
    odd = options.get("tls", "yes") not in {"yes", "no"}
    if unknown or odd or "" in options.values() or parts.fragment:
        wrong = ", ".join(unknown) or ("tls" if odd else "an empty one, or a #")
        raise ConfigurationError(
            f"unknown option {wrong} for {shown!r}: consul:// knows namespace, dc, {', '.join(FILES)}, "
            "tls=yes|no and server_name"
        )
    return Address(
        endpoints=endpoints(parts.hosts, DEFAULT_PORT, shown),
        prefix=_prefix(unquote(parts.path), shown),
        token=token or None,
        dc=options.get("dc"),
        tls=is_tls(options, "server_name", shown),
        cacert=options.get("cacert"),
        cert=options.get("cert"),
        key=options.get("key"),
        server_name=options.get("server_name"),
    )


def _prefix(path: str, shown: str) -> str:
    prefix = path.strip("/") or DEFAULT_PREFIX
    if {"", ".", ".."} & set(prefix.split("/")) or not prefix.isprintable():
        # Consul's HTTP server would take such a path for another one, or refuse it.
        raise ConfigurationError(f"the prefix of {shown!r} is no path: write …/NAME or …/NAME/NAME")
    return prefix
