"""Where Consul is: `consul://[:TOKEN@]HOST:PORT,HOST:PORT/PREFIX?dc=…&cacert=…&cert=…&key=…`.

The token is an ACL token, as a password without a user. Any of cacert, cert, key and tls=yes means TLS.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.errors import ConfigurationError

__all__ = ["Address", "parse"]

DEFAULT_PORT = 8500
DEFAULT_PREFIX = "holdfast"
FILES = ("cacert", "cert", "key")
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
        return context


def parse(url: str) -> Address:
    """Read a URL. No I/O."""
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    shown = f"consul://{hosts}"  # a token may stand in many wrong places: no more than this is shown
    endpoints = tuple(_endpoint(host, shown) for host in hosts.split(","))
    user, colon, token = login.partition(":")
    if login and (user or not colon or not token):
        raise ConfigurationError(f"{shown!r} comes with a user: a token is written consul://:TOKEN@…")
    token = unquote(token)
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError(f"{shown!r} comes with a token that is none: it has spaces or strange signs")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - set(OPTIONS))
    tls = options.get("tls", "yes" if set(options) & set(FILES) else "no")
    if unknown or tls not in {"yes", "no"} or "" in options.values() or parts.fragment:
        wrong = ", ".join(unknown) or ("tls" if tls not in {"yes", "no"} else "an empty one, or a #")
        raise ConfigurationError(
            f"unknown option {wrong} for {shown!r}: consul:// knows namespace, dc, {', '.join(FILES)}, "
            "tls=yes|no and server_name"
        )
    if ("cert" in options) != ("key" in options):
        raise ConfigurationError(f"one of cert and key for {shown!r}: a client's certificate needs both")
    if tls == "no" and set(options) & {*FILES, "server_name"}:
        raise ConfigurationError(f"options of TLS for {shown!r}, but no TLS: add tls=yes, or leave them out")
    return Address(
        endpoints=endpoints,
        prefix=_prefix(unquote(parts.path), shown),
        token=token or None,
        dc=options.get("dc"),
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
    if not host or not port.isdigit() or not 0 < int(port) < 65536 or (":" in host and host[0] != "["):
        raise ConfigurationError(f"{text!r} in {shown!r} is no address: write consul://HOST:PORT,HOST:PORT")
    return f"{host}:{port}"


def _prefix(path: str, shown: str) -> str:
    prefix = path.strip("/") or DEFAULT_PREFIX
    if {"", ".", ".."} & set(prefix.split("/")) or not prefix.isprintable():
        # Consul's HTTP server would take such a path for another one, or refuse it.
        raise ConfigurationError(f"the prefix of {shown!r} is no path: write …/NAME or …/NAME/NAME")
    return prefix
