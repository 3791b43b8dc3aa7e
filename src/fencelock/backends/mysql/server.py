"""How to reach a server: its address, credentials and TLS, from a URL; and how each driver is told.

    mysql://user:password@host:3306/database?option=…

Passwords go to the drivers as UTF-8 bytes: given text, both of them take it for Latin-1.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from fencelock.backends.url import address, hide_password, host_port, split
from fencelock.errors import ConfigurationError

__all__ = ["DEFAULT_PORT", "OPTIONS", "Server", "number_of", "options_of"]

DEFAULT_PORT = 3306
POOL_SIZE = 8
CONNECT = 3.0
FILES = frozenset({"ssl_ca", "ssl_cert", "ssl_key"})
VERIFY = ("full", "ca", "no")
OPTIONS = FILES | {"ssl", "ssl_verify", "unix_socket", "connect_timeout", "pool_size", "prefix", "charset"}
"""What a URL may say after the question mark."""


class Server:
    """How to reach one server and one database on it. Does not change."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        parts, shown = split(url), hide_password(url)
        self.user, self.password = parts.user or None, (parts.password or "").encode()
        self.path = options.get("unix_socket")
        self.host, self.port = address(parts.hosts or "localhost", DEFAULT_PORT, shown)
        self.database = unquote(parts.path.strip("/"))
        if not self.database or "/" in self.database or parts.fragment:
            raise ConfigurationError(f"{shown!r} names no database: write {parts.scheme}://HOST/DATABASE")
        self.charset = options.get("charset", "utf8mb4")
        if not re.fullmatch(r"\w+", self.charset, re.ASCII):
            raise ConfigurationError(f"charset={self.charset} in {shown!r} is no character set")
        self.connect_timeout = number_of(options, "connect_timeout", CONNECT, shown)
        self.pool_size = int(number_of(options, "pool_size", POOL_SIZE, shown, whole=True))
        self.tls = _tls(options, shown)

    @property
    def label(self) -> str:
        """Its address, for people to read. Never a credential."""
        if self.path is not None:
            return self.path
        return host_port(self.host, self.port)

    def arguments(self, timeout: float) -> dict[str, Any]:
        """Return what both drivers want to know. `timeout` is for the connection to be made."""
        return {
            "host": self.host,
            "port": self.port,
            "unix_socket": self.path,
            "user": self.user,
            "password": self.password,
            "database": self.database,
            "charset": self.charset,
            "autocommit": True,
            "connect_timeout": max(0.001, timeout),
            "program_name": "fencelock",
            "ssl": self.tls,
        }

    def __repr__(self) -> str:
        return f"<Server {self.label}/{self.database}>"


def options_of(url: str, known: frozenset[str]) -> dict[str, str]:
    """Return what stands after the question mark; unknown options are an error."""
    parts, shown = split(url), hide_password(url)
    given = parts.options
    unknown = sorted(set(given) - known)
    if unknown:
        raise ConfigurationError(
            f"unknown option {', '.join(unknown)} in {shown!r}: {parts.scheme}:// knows "
            f"{', '.join(sorted({*known, 'namespace'}))}"
        )
    return given


def number_of(
    options: Mapping[str, str], key: str, default: float, shown: str, *, whole: bool = False
) -> float:
    """Return a positive number that an option gives."""
    text = options.get(key)
    if text is None:
        return default
    pattern = r"[0-9]{1,6}" if whole else r"[0-9]{1,6}(\.[0-9]{1,6})?"
    if not re.fullmatch(pattern, text) or float(text) == 0:
        kind = "a whole number from 1 on" if whole else "seconds, more than 0"
        raise ConfigurationError(f"{key}={text} in {shown!r}: give {kind}")
    return float(text)


def _tls(options: Mapping[str, str], shown: str) -> ssl.SSLContext | None:
    """Return what the `ssl…` options ask for; without any of them nothing is encrypted."""
    verify, wanted = options.get("ssl_verify", "full"), options.get("ssl", "yes")
    if verify not in VERIFY:
        raise ConfigurationError(f"ssl_verify={verify} in {shown!r}: write {', '.join(VERIFY)}")
    if wanted not in {"yes", "no"}:
        raise ConfigurationError(f"ssl={wanted} in {shown!r}: write yes or no")
    if wanted == "no" or not any(key.startswith("ssl") for key in options):
        return None
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca"))
        if "ssl_cert" in options:
            context.load_cert_chain(options["ssl_cert"], options.get("ssl_key"))
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        named = ", ".join(f"{key}={options[key]}" for key in sorted(FILES & set(options))) or "ssl options"
        raise ConfigurationError(f"{named}: cannot be used: {error}") from error
    # The certificates that MySQL makes for itself do not pass the strict rules of Python 3.13.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = verify == "full"
    context.verify_mode = ssl.CERT_NONE if verify == "no" else ssl.CERT_REQUIRED
    return context
