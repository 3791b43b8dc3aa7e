"""kazoo's Lock: a queue of sequential znodes, no fencing token.

Settings: its own; one client, started once, and the Lock object is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.peers import Make
from bench.peers.kazoo_hand import started

__all__ = ["blocking"]


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    with started(url) as client:
        yield lambda name: client.Lock(f"/bench-kazoo-lock/{name}", "bench")
