"""Every kind of server that can be started, by its name, and `start()` itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import packages
from .consul import ConsulCluster, ConsulGroup
from .errors import PortClash, ServerError
from .etcd import EtcdCluster, EtcdGroup
from .group import Group
from .mariadb import MariaDBGroup
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
    def installed(self) -> bool:
        return all(package.installed for package in self.needs)


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
    known = lookup(kind)
    packages.install(known.needs)

    def site() -> Site:
        network = Namespaces() if netns else Loopback()
        return Site(kind, settings=settings, env=env, network=network, place=place)

    for _ in range(ATTEMPTS - 1):
        try:
            return _start(site(), known, seconds)
        except PortClash:
            continue
    return _start(site(), known, seconds)


def lookup(kind: str) -> Kind:
    """The kind of that name, or an error that lists them all."""
    if kind not in KINDS:
        raise ServerError(f"no kind of server is called {kind!r}; there are: {' '.join(KINDS)}")
    return KINDS[kind]


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
