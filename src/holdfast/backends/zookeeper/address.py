"""Where ZooKeeper is: `zookeeper://[USER:PASSWORD@]HOST:PORT,HOST,HOST/CHROOT?ca=…`.

A user and a password are ZooKeeper's `digest` scheme, and what is made then belongs to that user alone;
`sasl=DIGEST-MD5` gives them to SASL instead. The options of TLS have kazoo's names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from holdfast.backends import hide_password
from holdfast.errors import ConfigurationError

__all__ = ["Address", "parse"]

DEFAULT_PORT = 2181
FILES = ("ca", "certfile", "keyfile")
OPTIONS = (*FILES, "tls", "check_hostname", "sasl")
MECHANISMS = ("DIGEST-MD5", "PLAIN", "GSSAPI")


@dataclass(frozen=True, slots=True)
class Address:
    """Where, as whom, and how."""

    hosts: tuple[str, ...]
    chroot: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    sasl: str | None = None
    tls: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """All members, for people to read. Never a credential."""
        return ",".join(self.hosts)

    @property
    def acl(self) -> list[ACL]:
        """Who may do what with what we make."""
        found: list[ACL] = OPEN_ACL_UNSAFE if self.user is None else CREATOR_ALL_ACL
        return found

    def options(self) -> dict[str, Any]:
        """Return what kazoo needs."""
        found: dict[str, Any] = {
            "hosts": ",".join(self.hosts) + self.chroot,
            "default_acl": self.acl,
            **self.tls,
        }
        if self.sasl is not None:
            found["sasl_options"] = {
                "mechanism": self.sasl,
                "username": self.user,
                "password": self.password,
            }
        elif self.user is not None:
            found["auth_data"] = [("digest", f"{self.user}:{self.password}")]
        return found


def parse(url: str) -> Address:
    """Read a URL. No I/O."""
    shown = hide_password(url)
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    if login and not (user and colon):
        raise ConfigurationError(
            f"{shown!r} has a user without a password: write zookeeper://USER:PASSWORD@…"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown or "" in options.values():
        raise ConfigurationError(
            f"unknown option {', '.join(unknown) or 'without a value'} in {shown!r}: zookeeper:// knows "
            f"namespace, {', '.join(OPTIONS)}"
        )
    sasl = options.get("sasl")
    if sasl is not None and sasl not in MECHANISMS:
        raise ConfigurationError(f"sasl={sasl} in {shown!r}: it is one of {', '.join(MECHANISMS)}")
    chroot = unquote(parts.path).rstrip("/")
    if "//" in chroot or any(part in {".", ".."} for part in chroot.split("/")):
        raise ConfigurationError(f"{shown!r} has no chroot that ZooKeeper takes: write …/a/path")
    return Address(
        hosts=tuple(_host(host, shown) for host in hosts.split(",")),
        chroot=chroot,
        user=unquote(user) if login else None,
        password=unquote(password) if login else None,
        sasl=sasl,
        tls=_tls(options, shown),
    )


def _tls(options: dict[str, str], shown: str) -> dict[str, Any]:
    switches = {name: options.get(name, "no") for name in ("tls", "check_hostname")}
    if not set(switches.values()) <= {"yes", "no"}:
        raise ConfigurationError(f"tls and check_hostname in {shown!r} are yes or no")
    files = {name: options[name] for name in FILES if name in options}
    if switches["tls"] == "no" and not files:
        return {}
    return {"use_ssl": True, "check_hostname": switches["check_hostname"] == "yes", **files}


def _host(text: str, shown: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not host or not port.isdigit() or not 0 < int(port) < 65536 or (":" in host and host[0] != "["):
        raise ConfigurationError(
            f"{text!r} in {shown!r} is no address: write zookeeper://HOST:PORT,HOST:PORT"
        )
    return f"{host}:{port}"
