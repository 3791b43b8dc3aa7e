"""Other lock libraries behind the face of `chaos.subject`: one small file each.

Fair means: each with the settings that its documentation recommends for what the workload does, and each
choice with its reason in the first lines of its file. What a library does not offer (a token, an order among
waiters, word of a loss) is left blank by its traits, and not judged. What it claims is what its documentation
lets a user believe:

- one without renewal is believed for the ttl, counted from before `acquire` was called, or for the validity
  that it returns;
- one that renews by itself is believed whenever it says that the lock is held, and for no time ahead.

Their versions are those of the benchmark (`bench/peers/requirements-*.txt`), in environments of their own
(`bench/environment.py`). A client process uses one library, so it takes the packages of that environment
before its own: `library` does that, and installs them on first use. It is called when a module is imported,
so that those who are forked from there have it.

`python -m chaos.peers` tries each of them on a real server, without faults.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.environment import interpreter

from holdfast.testing import boottime

__all__ = ["ANSWER", "Believed", "Claim", "library", "nodes"]

ANSWER = 1.0
"""Seconds that a server has to answer: without a limit a client of redis-py waits for ever."""

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


class Claim:
    """A lease of a library that says nothing after the grant: believed until its time is over."""

    token = None

    def __init__(self, owner: str, until: float, give_back: Any) -> None:
        self.owner = owner
        self._until = until
        self._give_back = give_back

    def remaining(self) -> float:
        return max(0.0, self._until - boottime())

    def is_held(self) -> bool:
        return boottime() < self._until

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
