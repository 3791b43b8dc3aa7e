"""Backends, found by URL scheme through the entry-point group `fencelock.backends`.

fencelock's own are known here as well, since reading the entry points of all installed
packages costs more time than everything else about starting up; a test compares the two.
An entry point may name an extra, `scheme = "module:Class [extra]"`: a driver that is
missing or too old then says what to install.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, cast

from fencelock.backends.url import URL, hide_password, split
from fencelock.core.ports import Backend
from fencelock.errors import ConfigurationError
from fencelock.extras import refuse_old

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "OWN", "RIGHTS", "backend_from_url", "hide_password", "known_schemes"]

GROUP = "fencelock.backends"
RIGHTS = "docs/reference/permissions.md"
"""The page that has the rights which each store needs: errors about a missing one name it."""

OWN = {
    "memory": "fencelock.backends.memory:MemoryBackend",
    "sqlite": "fencelock.backends.sqlite:SQLiteBackend",
    **dict.fromkeys(
        ("redis", "rediss", "unix", "valkey", "valkeys"), "fencelock.backends.redis:RedisBackend [redis]"
    ),
    "redis+sentinel": "fencelock.backends.redis.sentinel:SentinelBackend [redis]",
    "redis+cluster": "fencelock.backends.redis.cluster:ClusterBackend [redis]",
    "redlock": "fencelock.backends.redlock:RedlockBackend [redis]",
    **dict.fromkeys(
        ("postgresql", "postgres"),  # libpq accepts both
        "fencelock.backends.postgres:PostgresBackend [postgres]",
    ),
    **dict.fromkeys(
        ("postgresql+advisory", "postgres+advisory"),
        "fencelock.backends.postgres.advisory:AdvisoryBackend [postgres]",
    ),
    **dict.fromkeys(("mysql", "mariadb"), "fencelock.backends.mysql:MySQLBackend [mysql]"),
    "mysql+getlock": "fencelock.backends.mysql.getlock:GetLockBackend [mysql]",
    "zookeeper": "fencelock.backends.zookeeper:ZooKeeperBackend [zookeeper]",
    "etcd": "fencelock.backends.etcd:EtcdBackend [etcd]",
    "consul": "fencelock.backends.consul:ConsulBackend [consul]",
}


def backend_from_url(url: str) -> Backend:
    """Return an unopened backend for `url`. No I/O beyond importing it."""
    scheme, separator, _ = url.partition("://")
    if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        raise ConfigurationError(
            f"{hide_password(url)!r} is not a URL: write scheme://…, with one of {_listed()}"
        )
    if _password_spills(split(url)):
        raise ConfigurationError(
            f"{hide_password(url)!r} has an '@' after a '/', '?' or '#': in a password write %2F, %3F and %23"
        )
    return _find(scheme.lower()).from_url(url)


def _password_spills(parts: URL) -> bool:
    """Whether a password with a '/', '?' or '#' in it was taken for more than that.

    What stands before that sign is then a user name, a colon, and no port; and the '@' comes later.
    """
    first = parts.authority.partition(",")[0]
    _, colon, rest = first.rpartition(":")
    is_port = rest.isdigit() or rest.endswith("]")
    late = "@" in parts.path + parts.query + parts.fragment
    return bool(colon) and not is_port and "@" not in parts.authority and late


def known_schemes() -> list[str]:
    """Return every scheme that some installed backend serves."""
    from importlib.metadata import entry_points

    return sorted({*OWN, *(point.name for point in entry_points(group=GROUP))})


def _find(scheme: str) -> type[Backend]:
    if scheme in OWN:
        target, _, extra = OWN[scheme].partition(" [")
        return _import(scheme, target, extra.rstrip("]"), "fencelock")
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=scheme):
        return load(point)
    raise ConfigurationError(f"no backend for {scheme}://: known schemes are {_listed()}")


def load(point: EntryPoint) -> type[Backend]:
    """Import the backend of an entry point; a missing driver says which extra to install."""
    package = point.dist.name if point.dist is not None else "fencelock"
    return _import(point.name, f"{point.module}:{point.attr}", ", ".join(point.extras), package)


def _import(scheme: str, target: str, extra: str, package: str) -> type[Backend]:
    module, _, attribute = target.partition(":")
    if extra and package == "fencelock":
        refuse_old(extra, f"{scheme}://")
    try:
        return cast(type[Backend], getattr(import_module(module), attribute))
    except ModuleNotFoundError as error:
        if not extra:
            raise
        raise ConfigurationError(
            f"{scheme}:// needs the package {error.name!r}: pip install '{package}[{extra}]'"
        ) from error


def _listed() -> str:
    return ", ".join(f"{scheme}://" for scheme in known_schemes())
