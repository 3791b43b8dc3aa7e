"""Exchanges, and how one is found by a URL."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

from fencelock.backends.url import hide_password, split
from fencelock.crdt.exchange.base import Exchange, Record
from fencelock.crdt.exchange.directory import DirectoryExchange
from fencelock.crdt.exchange.redis import RedisExchange
from fencelock.crdt.exchange.sql import SQLExchange
from fencelock.errors import ConfigurationError
from fencelock.names import shown

__all__ = ["DirectoryExchange", "Exchange", "Record", "RedisExchange", "SQLExchange", "exchange_from"]

REDIS = {"redis", "rediss", "unix", "valkey", "valkeys"}
SQL = {"sqlite", "postgresql", "postgres", "mysql", "mariadb"}


def exchange_from(target: str | os.PathLike[str] | Exchange) -> Exchange:
    """Return the exchange that a URL, the path of a directory or an exchange stands for. No I/O."""
    if isinstance(target, Exchange):
        return target
    if isinstance(target, os.PathLike):
        return DirectoryExchange(target)
    if not isinstance(target, str):
        raise ConfigurationError(f"exchange={shown(target)} is neither a URL nor a path nor an exchange")
    scheme = target.partition("://")[0] if "://" in target else ""
    if scheme == "file":
        parts = split(target)
        if parts.authority or not parts.path:
            raise ConfigurationError(f"exchange={target!r} names no directory: write file:///absolute/path")
        return DirectoryExchange(Path(unquote(parts.path)))
    if scheme in REDIS:
        return RedisExchange.from_url(target)
    if scheme in SQL:
        return SQLExchange.from_url(target)
    known = ", ".join(sorted({"file", *REDIS, *SQL}))
    raise ConfigurationError(f"exchange={hide_password(target)!r} is not a URL of one of {known}")
