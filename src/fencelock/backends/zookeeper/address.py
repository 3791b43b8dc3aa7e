"""Where ZooKeeper is: `zookeeper://[USER:PASSWORD@]HOST:PORT,HOST,HOST/CHROOT?cacert=…&cert=…&key=…`.

A user and a password are ZooKeeper's `digest` scheme, and what is made then belongs to that user alone, or to
everybody with `acl=open`; `sasl=DIGEST-MD5` gives them to SASL instead. Any of cacert, cert, key and tls=yes
means TLS.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE  # type: ignore[import-untyped]

from fencelock.backends.ordered.address import FILES, endpoints, is_tls, tls_context
from fencelock.backends.url import hide_password, split
from fencelock.errors import ConfigurationError

__all__ = ["DEFAULT_PORT", "OPTIONS", "Address", "parse"]

DEFAULT_PORT = 2181
CHOICES = {
    "tls": ("yes", "no"),
    "check_hostname": ("yes", "no"),
    "acl": ("creator", "open"),
    "sasl": ("DIGEST-MD5", "PLAIN", "GSSAPI"),
}
OPTIONS = (*FILES, *CHOICES)


@dataclass(frozen=True, slots=True)
class Address:
    """Where, as whom, and how."""

    hosts: tuple[str, ...]
    chroot: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    sasl: str | None = None
    is_open: bool = True
    """Whether what is made is everybody's."""
    tls: bool = False
    cacert: str | None = None
    cert: str | None = None
    key: str | None = None
    check_hostname: bool = True

    @property
    def label(self) -> str:
        """All members, for people to read. Never a credential."""
        return ",".join(self.hosts)

    @property
    def acl(self) -> list[ACL]:
        """Who may do what with what we make."""
        found: list[ACL] = OPEN_ACL_UNSAFE if self.is_open else CREATOR_ALL_ACL
        return found

    def options(self) -> dict[str, Any]:
        """Return what kazoo needs."""
        found: dict[str, Any] = {"hosts": ",".join(self.hosts) + self.chroot, "default_acl": self.acl}
        if self.sasl is not None:
            login = {"username": self.user, "password": self.password} if self.user is not None else {}
            found["sasl_options"] = {"mechanism": self.sasl, **login}
        elif self.user is not None:
            found["auth_data"] = [("digest", f"{self.user}:{self.password}")]
        return found

    def context(self) -> ssl.SSLContext | None:
        """Return what TLS needs, `None` without it. Reads the files."""
        if not self.tls:
            return None
        context = tls_context(self.cacert, self.cert, self.key)
        context.check_hostname = self.check_hostname
        return context


def parse(url: str) -> Address:
    """Read a URL. No I/O."""
    shown = hide_password(url)
    parts = split(url)
    user, password = parts.user or None, parts.password
    if (user is None) != (password is None):
        raise ConfigurationError(
            f"{shown!r} has a user without a password: write zookeeper://USER:PASSWORD@…"
        )
    options = _options(parts.options, shown)
    sasl = options.get("sasl")
    if sasl in {"DIGEST-MD5", "PLAIN"} and user is None:
        raise ConfigurationError(f"{shown!r} has sasl={sasl} and no user: write zookeeper://USER:PASSWORD@…")
    owned = user is not None or sasl is not None
    if options.get("acl") == "creator" and not owned:
        raise ConfigurationError(f"{shown!r} has acl=creator and no user: write zookeeper://USER:PASSWORD@…")
    chroot = unquote(parts.path).rstrip("/")
    if "//" in chroot or any(part in {".", ".."} for part in chroot.split("/")):
        raise ConfigurationError(f"{shown!r} has no chroot that ZooKeeper takes: write …/a/path")
    return Address(
        hosts=endpoints(parts.hosts, DEFAULT_PORT, shown),
        chroot=chroot,
        user=user,
        password=password,
        sasl=sasl,
        is_open=options.get("acl", "creator" if owned else "open") == "open",
        tls=is_tls(options, "check_hostname", shown),
        cacert=options.get("cacert"),
        cert=options.get("cert"),
        key=options.get("key"),
        check_hostname=options.get("check_hostname", "yes") == "yes",
    )


def _options(options: dict[str, str], shown: str) -> dict[str, str]:
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown or "" in options.values():
        raise ConfigurationError(
            f"unknown option {', '.join(unknown) or 'without a value'} in {shown!r}: zookeeper:// knows "
            f"namespace, {', '.join(OPTIONS)}"
        )
    for name, values in CHOICES.items():
        if options.get(name, values[0]) not in values:
            raise ConfigurationError(f"{name}={options[name]} in {shown!r}: it is {' or '.join(values)}")
    return options
