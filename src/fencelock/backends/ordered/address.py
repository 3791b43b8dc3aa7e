"""What the URLs of these stores have in common: several hosts, and TLS by files with certificates."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from fencelock.backends.url import addresses, host_port
from fencelock.errors import ConfigurationError

__all__ = ["FILES", "endpoints", "is_tls", "tls_context"]

FILES = ("cacert", "cert", "key")
"""Options that name a file with certificates, and mean TLS."""


def endpoints(hosts: str, default_port: int, shown: str) -> tuple[str, ...]:
    """Return HOST:PORT of each host between commas; `shown` is the URL for a message."""
    return tuple(host_port(host, port) for host, port in addresses(hosts, default_port, shown))


def is_tls(options: Mapping[str, str], further: str, shown: str) -> bool:
    """Say whether these options mean TLS, if they fit together; `further` is one that only TLS has."""
    if ("cert" in options) != ("key" in options):
        raise ConfigurationError(f"{shown!r} has one of cert and key: a client's certificate needs both")
    wanted = set(options) & {*FILES, further}
    tls = options.get("tls", "yes" if wanted else "no") == "yes"
    if wanted and not tls:
        raise ConfigurationError(f"{shown!r} has tls=no and options of TLS: leave out one or the other")
    return tls


def tls_context(cacert: str | None, cert: str | None, key: str | None) -> ssl.SSLContext:
    """Return what TLS needs. Reads the files."""
    try:
        context = ssl.create_default_context(cafile=cacert)
        if cert is not None:
            context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(file for file in (cacert, cert, key) if file is not None)
        words = error.strerror or str(error)
        raise ConfigurationError(f"{files}: not to be read as certificates and key: {words}") from error
    return context
