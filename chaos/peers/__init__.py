"""Other lock libraries behind the face of `chaos.subject`: one small file each.

Fair means: each with the settings that its documentation recommends for what the workload does, and each
choice with its reason in the first lines of its file. What a library does not offer (a token, an order among
waiters, word of a loss) is left blank by its traits, and not judged. What it claims is what its documentation
lets a user believe:

- one without renewal is believed for the ttl, counted from before the attempt that got the lock, or for the
  validity that it returns;
- one that renews by itself is believed whenever it says that the lock is held, and for no time ahead.

Where a library says nothing after the grant, the claim is that of the process which asked: a child that it
forks claims nothing, whatever the library would let it do with the lock.

Their versions are those of the benchmark (`bench/peers/requirements-*.txt`), in environments of their own
(`bench/environment.py`). A client process uses one library, so it takes the packages of that environment
before its own: `library` does that, and installs them on first use. It is called when a module is imported,
so that those who are forked from there have it.

`python -m chaos.peers` tries each of them on a real server, without faults.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.environment import interpreter

from chaos.subject import Ask
from fencelock.testing import boottime

__all__ = [
    "ANSWER",
    "PAUSE",
    "Believed",
    "Claim",
    "attempts",
    "connect",
    "library",
    "mine",
    "nodes",
    "sentinels",
]

ANSWER = 1.0
"""Seconds that a server has to answer: without a limit a client of redis-py waits for ever."""

PAUSE = 0.02
"""Between two attempts: short, as the ttl is."""
MOMENT = 0.001


def library(environment: str, module: str) -> Any:
    """Import a module from that environment."""
    python = interpreter(environment, lambda line: print(line, file=sys.stderr))
    (packages,) = Path(python).parents[1].glob("lib/python*/site-packages")
    if str(packages) not in sys.path:
        sys.path.insert(0, str(packages))
    return import_module(module)


def nodes(url: str) -> list[str]:
    """Return the URL of each node: of one server, or of all that a `redlock://` names."""
    scheme, _, rest = url.partition("://")
    if scheme != "redlock":
        return [url]
    return [f"redis://{node}" for node in rest.partition("?")[0].partition("/")[0].split(",")]


def sentinels(url: str) -> tuple[list[tuple[str, int]], str]:
    """Return the addresses of the Sentinels and the name of their service; none if the URL names a server."""
    scheme, _, rest = url.partition("://")
    if scheme != "redis+sentinel":
        return [], ""
    places, _, service = rest.partition("/")
    split = [place.rpartition(":") for place in places.split(",")]
    return [(host, int(port)) for host, _, port in split], service


def connect(redis: Any, url: str) -> Any:
    """Make a client of redis-py, in the flavour of that module: of a server, or by way of Sentinels."""
    limits = {"socket_timeout": ANSWER, "socket_connect_timeout": ANSWER}
    places, service = sentinels(url)
    if places:
        return redis.sentinel.Sentinel(places, sentinel_kwargs=limits, **limits).master_for(service)
    return redis.Redis.from_url(url, **limits)


def attempts(ask: Ask) -> Iterator[float]:
    """The time before each attempt, until the time to wait is over."""
    deadline = boottime() + ask.timeout
    while True:
        yield boottime()
        left = deadline - boottime()
        if left <= 0:
            return
        time.sleep(min(left, random.uniform(0.5, 1.5) * PAUSE))


def mine() -> Any:
    """Make a question: is this still the process that asked for it?"""
    process = os.getpid()
    return lambda: os.getpid() == process


class Claim:
    """A lease of a library that says nothing after the grant: believed until its time is over."""

    token = None

    def __init__(self, owner: str, until: float, give_back: Any) -> None:
        self.owner = owner
        self._until = until
        self._give_back = give_back
        self._mine = mine()

    def remaining(self) -> float:
        return max(0.0, self._until - boottime()) if self._mine() else 0.0

    def is_held(self) -> bool:
        return self.remaining() > 0

    def release(self) -> Any:
        self._until = 0.0
        return self._give_back()


class Believed:
    """A lease of a library that renews by itself: believed at the moment at which it says so."""

    token = None

    def __init__(self, owner: str, says: Any, give_back: Any) -> None:
        self.owner = owner
        self._says = says
        self._give_back = give_back
        self._released = False

    def remaining(self) -> float:
        return MOMENT if self.is_held() else 0.0

    def is_held(self) -> bool:
        return not self._released and bool(self._says())

    def release(self) -> Any:
        self._released = True
        return self._give_back()
