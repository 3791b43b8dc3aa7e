"""The backends that go through the harness, by their words."""

from __future__ import annotations

from collections.abc import Mapping

from chaos.backends.ensembles import Consul, Etcd, ZooKeeper
from chaos.backends.mariadb import MariaDB
from chaos.backends.postgres import Postgres
from chaos.backends.redis import Redis, Valkey
from chaos.backends.redlock import Redlock
from chaos.backends.sqlite import SQLite
from chaos.backends.store import Shape, Store, patiently

__all__ = ["BACKENDS", "Shape", "Store", "patiently"]

BACKENDS: Mapping[str, type[Store]] = {
    store.word: store
    for store in (SQLite, Redis, Valkey, Redlock, Postgres, MariaDB, ZooKeeper, Etcd, Consul)
}
