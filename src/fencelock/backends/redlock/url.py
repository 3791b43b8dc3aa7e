"""The URL: redlock://user:password@h1:6379,h2:6379,h3:6379/0?tls=yes&node_timeout=1&max_ttl=300."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict
from urllib.parse import unquote

from fencelock.backends.redis.server import DEFAULT_PORT, OPTIONS, Server, database, options_of
from fencelock.backends.url import addresses, hide_password, split
from fencelock.errors import ConfigurationError

__all__ = ["MAX_TTL", "NODE_TIMEOUT", "Limits", "check_nodes", "parse"]

NODE_TIMEOUT = 1.0
MAX_TTL = 300.0
FEWEST = 3
OWN = frozenset({"tls", "node_timeout", "max_ttl"})


class Limits(TypedDict):
    """What the backend takes besides its servers."""

    node_timeout: float
    max_ttl: float


def parse(url: str) -> tuple[list[Server], Limits]:
    """Return the servers of a URL, and its limits."""
    parts, shown = split(url), hide_password(url)
    options = options_of(url, OPTIONS | OWN)
    own = {key: value for key, value in parts.options.items() if key in OWN}
    if not parts.hosts:
        raise ConfigurationError(f"{shown!r} names no servers: write redlock://h1:6379,h2:6379,h3:6379")
    if number := parts.path.strip("/"):
        options["db"] = database(unquote(number), shown)
    tls = own.get("tls", "no")
    if tls not in {"yes", "no"}:
        raise ConfigurationError(f"tls={tls} in {shown!r}: write yes or no")
    limits = Limits(
        node_timeout=_seconds(own.get("node_timeout", ""), NODE_TIMEOUT, "node_timeout", shown),
        max_ttl=_seconds(own.get("max_ttl", ""), MAX_TTL, "max_ttl", shown),
    )
    places = addresses(parts.hosts, DEFAULT_PORT, shown)
    return [Server(tls=tls == "yes", host=host, port=port, **options) for host, port in places], limits


def check_nodes(servers: Sequence[Server]) -> list[Server]:
    """Return the servers if they can be a quorum: at least three, each once."""
    labels = [server.label for server in servers]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ConfigurationError(f"redlock: {', '.join(twice)} is there twice: give each server once")
    if len(servers) < FEWEST:
        raise ConfigurationError(
            f"redlock: {len(servers)} servers are too few, since none may fail then: give three or five, or "
            "use redis:// for one"
        )
    return list(servers)


def _seconds(text: str, default: float, what: str, shown: str) -> float:
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ConfigurationError(f"{what}={text} in {shown!r}: write a number of seconds above 0")
    return value
