"""Where registers live: one small class for each store, over the wires that the locks use.

A cell reads a value with its version, and writes one if the version is still the one that was read. A wire
sends a request again when its answer was lost. A write that was sent twice and then finds another version may
have been done by its first sending, and been overwritten since: nobody can tell any more, so that is an error
and not a conflict (`unknown`).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

from fencelock.backends import backend_from_url, hide_password
from fencelock.connections import has
from fencelock.errors import BackendUnavailable, ConfigurationError, Unsupported

__all__ = ["Cell", "Value", "cell_from_url", "cells_of", "place", "unknown"]

LONGEST_PLACE = 200


class Value(NamedTuple):
    """What a register has: a value, and the version to write the next one with.

    A register that was never written has the version 0 and the value `None`.
    """

    value: bytes | None
    version: int


class Cell(ABC):
    """One register in one store."""

    @abstractmethod
    async def read(self, deadline: float) -> Value:
        """Return what is there."""

    @abstractmethod
    async def set(self, value: bytes, version: int, deadline: float) -> Value | None:
        """Write, if the version is this one; `None` if it is not."""

    @abstractmethod
    async def close(self, deadline: float) -> None:
        """Close every connection."""

    def drop(self) -> None:
        """In a forked child: let go of the connections, without a word to the server."""


def unknown(backend: str, name: str) -> BackendUnavailable:
    """Nobody can tell whether a write was done."""
    return BackendUnavailable(
        backend=backend,
        detail=f"an answer was lost, so whether register {name!r} was written is not known: read it",
    )


def place(name: str) -> str:
    """Return a name as a part of a path that every store takes; no two names have the same.

    Example:
        >>> place("a/b")
        'a=2Fb'
    """
    found = quote(name, safe="").replace(".", "%2E").replace("%", "=")
    return found if len(found) <= LONGEST_PLACE else f"=={hashlib.sha256(name.encode()).hexdigest()}"


def cell_from_url(url: str, name: str, *, is_async: bool) -> Cell:
    """Return the cell of a register. No I/O."""
    if not isinstance(url, str):
        raise ConfigurationError(f"url={url!r} is not a URL: give that of redis, etcd, consul or zookeeper")
    backend = backend_from_url(url)
    make = cells_of(backend, is_async=is_async)
    if make is None:
        raise Unsupported(capability=f"registers ({hide_password(url)})", backend=backend.name)
    return make(name)


def cells_of(backend: Any, *, is_async: bool) -> Callable[[str], Cell] | None:
    """Return what makes the registers of the store that keeps a backend's locks, if it can keep any."""
    if has(backend, "_topology", "fencelock.backends.redis.topology", "Topology"):
        from fencelock.optimistic.cells.redis import RedisCell

        return lambda name: RedisCell(backend._topology, name, is_async=is_async)
    if has(backend, "_address", "fencelock.backends.etcd.address", "Address"):
        from fencelock.optimistic.cells.etcd import EtcdCell

        return lambda name: EtcdCell(backend._address, name, is_async=is_async)
    if has(backend, "_address", "fencelock.backends.consul.address", "Address"):
        from fencelock.optimistic.cells.consul import ConsulCell

        return lambda name: ConsulCell(backend._address, name, is_async=is_async)
    if has(backend, "_address", "fencelock.backends.zookeeper.address", "Address"):
        from fencelock.optimistic.cells.zookeeper import ZooKeeperCell

        return lambda name: ZooKeeperCell(backend._address, name, is_async=is_async)
    return None
