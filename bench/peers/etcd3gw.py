"""etcd3gw's Lock, over etcd's JSON gateway: no queue, no waiting, no fencing token, no renewal.

Settings: its own; the client, with its pool of connections, and the Lock object are kept. It tries once, so
whoever waits tries again after `sleep` seconds. Every try makes a new lease and leaves it behind, won or not:
they are revoked in the end, so that their expiry does not slow down whoever comes next.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from bench.peers import TTL, Make
from bench.peers.etcd_calls import place_of

__all__ = ["blocking"]


class Section:
    def __init__(self, lock: Any, sleep: float | None) -> None:
        self.lock = lock
        self.sleep = sleep

    def __enter__(self) -> None:
        while not self.lock.acquire():
            if self.sleep is None:
                raise RuntimeError("it was held already")
            time.sleep(self.sleep)

    def __exit__(self, *_: object) -> None:
        if not self.lock.release():
            raise RuntimeError("it was not held")


@contextmanager
def blocking(url: str, sleep: float | None = None) -> Iterator[Make]:
    host, port = place_of(url)
    client = import_module("etcd3gw").client(host=host, port=port)
    grant, leases = client.lease, []

    def remembered(*arguments: Any, **named: Any) -> Any:
        leases.append(grant(*arguments, **named))
        return leases[-1]

    client.lease = remembered
    yield lambda name: Section(client.lock(f"etcd3gw/{name}", ttl=TTL), sleep)
    for lease in leases:
        lease.revoke()
