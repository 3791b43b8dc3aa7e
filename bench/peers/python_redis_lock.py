"""python-redis-lock: a signal list wakes one waiter, which then competes; no fencing token.

Settings: `expire` as for everybody; without `auto_renewal`, which would start a thread for each
acquisition; the Lock object is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

from bench.peers import TTL, Make

__all__ = ["blocking", "holding"]


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    library = import_module("redis_lock")
    client = import_module("redis").StrictRedis.from_url(url)
    yield lambda name: library.Lock(client, name, expire=TTL)
    client.close()


@contextmanager
def holding(url: str, count: int) -> Iterator[Callable[[], object]]:
    """Renew that many in turn, each by its own `extend`; `auto_renewal` would be a thread for each."""
    library = import_module("redis_lock")
    client = import_module("redis").StrictRedis.from_url(url)
    locks = [library.Lock(client, f"lease-{number}", expire=300) for number in range(count)]
    for lock in locks:
        lock.acquire()

    def renew() -> None:
        for lock in locks:
            lock.extend(300)

    yield renew
    for lock in locks:
        lock.release()
    client.close()
