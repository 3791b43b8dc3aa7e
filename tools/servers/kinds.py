"""Every kind of server that can be started, by its name, and `start()` itself.

A name alone is the machine's own version; `NAME@SUITE`, such as `redis@sid`, is that of another Debian suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import packages, suites
from .consul import ConsulCluster, ConsulGroup
from .errors import PortClash, ServerError
from .etcd import EtcdCluster, EtcdGroup
from .group import Group
from .mariadb import MariaDBGroup
from .mysql import MySQLGroup
from .network import Loopback, Namespaces
from .packages import Package
from .postgres import PgBouncerGroup, PostgresGroup
from .redis import ClusterGroup, RedisGroup, RedlockGroup, SentinelGroup, ValkeyGroup
from .server import START_SECONDS
from .site import Site
from .zookeeper import ZooKeeperEnsemble, ZooKeeperGroup

ATTEMPTS = 4


@dataclass(frozen=True)
class Kind:
    """What can be started: in words, as packages, as a class."""

    about: str
    needs: tuple[Package, ...]
    group: type[Group]

    @property
    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [package.name for package in self.needs if not package.installed]


KINDS: Mapping[str, Kind] = {
    "redis": Kind("one Redis", (packages.REDIS,), RedisGroup),
    "valkey": Kind("one Valkey", (packages.VALKEY,), ValkeyGroup),
    "redlock": Kind("five independent Redis servers", (packages.REDIS,), RedlockGroup),
    "cluster": Kind("Redis Cluster: three primaries, three replicas", (packages.REDIS,), ClusterGroup),
    "sentinel": Kind("Redis primary, two replicas, three Sentinels", (packages.REDIS,), SentinelGroup),
    "postgres": Kind("one PostgreSQL", (packages.POSTGRES,), PostgresGroup),
    "pgbouncer": Kind(
        "PostgreSQL behind pgbouncer: session mode, transaction mode",
        (packages.POSTGRES, packages.PGBOUNCER),
        PgBouncerGroup,
    ),
    "mariadb": Kind("one MariaDB", (packages.MARIADB,), MariaDBGroup),
    "zookeeper": Kind("one ZooKeeper", (packages.ZOOKEEPER,), ZooKeeperGroup),
    "zookeeper3": Kind("ZooKeeper ensemble of three", (packages.ZOOKEEPER,), ZooKeeperEnsemble),
    "etcd": Kind("one etcd", (packages.ETCD,), EtcdGroup),
    "etcd3": Kind("etcd cluster of three", (packages.ETCD,), EtcdCluster),
    "consul": Kind("one Consul server", (packages.CONSUL,), ConsulGroup),
    "consul3": Kind("Consul cluster of three servers", (packages.CONSUL,), ConsulCluster),
}

ELSEWHERE: Mapping[str, Kind] = {
    "mysql": Kind("one MySQL", (packages.MYSQL,), MySQLGroup),
}
"""Kinds that the machine's own release does not have: they are started as `mysql@sid`."""


@dataclass(frozen=True)
class Choice:
    """A kind, and the root to run it in, if it comes from another suite."""

    kind: Kind
    name: str
    root: suites.Root | None = None

    def install(self) -> list[str]:
        """Gets what is missing and names it."""
        if self.root is None:
            return packages.install(self.kind.needs)
        return [self.root.wanted] if self.root.install() else []

    @property
    def missing(self) -> list[str]:
        """The packages that are not there."""
        if self.root is None:
            return self.kind.missing
        return [] if self.root.installed else list(self.root.packages)

    @property
    def version(self) -> str:
        """The version of its first package; empty if that is not there."""
        return self.kind.needs[0].version if self.root is None else self.root.version


def start(
    kind: str,
    *,
    settings: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    netns: bool = False,
    place: Callable[[str], Path] | None = None,
    seconds: float = START_SECONDS,
) -> Group:
    """Installs what is missing, starts a group of this kind, and returns it once it is ready.

    `settings` are the server's own, as each family's file says; `env` is added to its environment. With
    `netns` each member lives in a network namespace of its own, so that `partition()` and `cut()` work.
    `place` gives the empty folder in which the member of a name keeps its data, if not a temporary one.

    The group is a context manager that stops itself. Failure is a ServerError with the last lines of the log,
    and leaves nothing running.
    """
    chosen = lookup(kind)
    chosen.install()

    def site() -> Site:
        network = Namespaces() if netns else Loopback()
        return Site(chosen.name, settings=settings, env=env, network=network, place=place, root=chosen.root)

    for _ in range(ATTEMPTS - 1):
        try:
            return _start(site(), chosen.kind, seconds)
        except PortClash:
            continue
    return _start(site(), chosen.kind, seconds)


def lookup(wanted: str) -> Choice:
    """What `NAME` or `NAME@SUITE` stands for, or an error that lists all names."""
    name, at, suite = wanted.partition("@")
    known = KINDS.get(name) or ELSEWHERE.get(name)
    if known is None:
        names = " ".join([*KINDS, *ELSEWHERE])
        raise ServerError(f"no kind of server is called {name!r}; there are: {names}")
    if at:
        return Choice(known, name, suites.root(wanted, suite, known.needs))
    if name in ELSEWHERE:
        raise ServerError(
            f"{name} is not in this machine's release: name a suite that has it, as in {name}@sid"
        )
    return Choice(known, name)


def choices() -> dict[str, Choice]:
    """Every kind of the machine's own, and what was unpacked from other suites."""
    everything = {**KINDS, **ELSEWHERE}
    found = {name: lookup(name) for name in KINDS}
    for suite, names in suites.unpacked():
        for name, kind in everything.items():
            if tuple(package.name for package in kind.needs) == names:
                found[f"{name}@{suite}"] = lookup(f"{name}@{suite}")
    return found


def _start(site: Site, known: Kind, seconds: float) -> Group:
    try:
        group = known.group(site)
    except BaseException:
        site.close()
        raise
    try:
        group.start(seconds)
    except BaseException:
        group.stop()
        raise
    return group
