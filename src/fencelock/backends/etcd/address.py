"""Where etcd is: `etcd://[USER:PASSWORD@]HOST:PORT,HOST:PORT/PREFIX?cacert=…&cert=…&key=…`.

The options have the names that etcdctl gives them. Any of cacert, cert, key and tls=yes means TLS.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from urllib.parse import unquote

from fencelock.backends.ordered.address import FILES, endpoints, is_tls, tls_context
from fencelock.backends.url import hide_password, split
from fencelock.errors import ConfigurationError

__all__ = ["DEFAULT_PORT", "Address", "parse"]

DEFAULT_PORT = 2379
DEFAULT_PREFIX = "fencelock"
OPTIONS = (*FILES, "tls", "server_name")


@dataclass(frozen=True, slots=True)
class Address:
    """Where, as whom, and how."""

    endpoints: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX
    user: str | None = None
    password: str | None = field(default=None, repr=False)
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
        if not self.tls:
            return None
        context = tls_context(self.cacert, self.cert, self.key)
        context.set_alpn_protocols(["h2"])
        return context


def parse(url: str) -> Address:
    """Read a URL. No I/O."""
    shown = hide_password(url)
    parts = split(url)
    user, password = parts.user or None, parts.password
    if (user is None) != (password is None):
        raise ConfigurationError(f"{shown!r} has a user without a password: write etcd://USER:PASSWORD@…")
    options = parts.options
    unknown = sorted(set(options) - set(OPTIONS))
    odd = options.get("tls", "yes") not in {"yes", "no"}
    if unknown or odd or "" in options.values():
        wrong = ", ".join(unknown) or ("tls" if odd else "an empty one")
        raise ConfigurationError(
            f"unknown option {wrong} in {shown!r}: etcd:// knows namespace, {', '.join(FILES)}, tls=yes|no "
            "and server_name"
        )
    return Address(
        endpoints=endpoints(parts.hosts, DEFAULT_PORT, shown),
        prefix=unquote(parts.path).strip("/") or DEFAULT_PREFIX,
        user=user,
        password=password,
        tls=is_tls(options, "server_name", shown),
        cacert=options.get("cacert"),
        cert=options.get("cert"),
        key=options.get("key"),
        server_name=options.get("server_name"),
    )
