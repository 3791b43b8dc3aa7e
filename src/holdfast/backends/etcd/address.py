"""Where etcd is: `etcd://[USER:PASSWORD@]HOST:PORT,HOST:PORT/PREFIX?cacert=…&cert=…&key=…`.

The options have the names that etcdctl gives them. Any of cacert, cert, key and tls=yes means TLS.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.backends import hide_password
from holdfast.errors import ConfigurationError

__all__ = ["Address", "parse"]

DEFAULT_PORT = 2379
DEFAULT_PREFIX = "holdfast"
FILES = ("cacert", "cert", "key")
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
        try:
            context = ssl.create_default_context(cafile=self.cacert)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(file for file in (self.cacert, self.cert, self.key) if file is not None)
            words = error.strerror or str(error)
            raise ConfigurationError(f"{files}: not to be read as certificates and key: {words}") from error
        context.set_alpn_protocols(["h2"])
        return context


def parse(url: str) -> Address:
    """Read a URL. No I/O."""
    shown = hide_password(url)
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    endpoints = tuple(_endpoint(host, shown) for host in hosts.split(","))
    user, colon, password = login.partition(":")
    if login and not (user and colon):
        raise ConfigurationError(f"{shown!r} has a user without a password: write etcd://USER:PASSWORD@…")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - set(OPTIONS))
    tls = options.get("tls", "yes" if set(options) & {*FILES, "server_name"} else "no")
    if unknown or tls not in {"yes", "no"} or "" in options.values():
        wrong = ", ".join(unknown) or ("tls" if tls not in {"yes", "no"} else "an empty one")
        raise ConfigurationError(
            f"unknown option {wrong} in {shown!r}: etcd:// knows namespace, {', '.join(FILES)}, tls=yes|no "
            "and server_name"
        )
    if ("cert" in options) != ("key" in options):
        raise ConfigurationError(f"{shown!r} has one of cert and key: a client's certificate needs both")
    if tls == "no" and set(options) & {*FILES, "server_name"}:
        raise ConfigurationError(f"{shown!r} has tls=no and options of TLS: leave out one or the other")
    return Address(
        endpoints=endpoints,
        prefix=unquote(parts.path).strip("/") or DEFAULT_PREFIX,
        user=unquote(user) if login else None,
        password=unquote(password) if login else None,
        tls=tls == "yes",
        cacert=options.get("cacert"),
        cert=options.get("cert"),
        key=options.get("key"),
        server_name=options.get("server_name"),
    )


def _endpoint(text: str, shown: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or (":" in host and host[0] != "["):
        raise ConfigurationError(f"{text!r} in {shown!r} is no address: write etcd://HOST:PORT,HOST:PORT")
    return f"{host}:{port}"
