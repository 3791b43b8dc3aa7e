"""Relays: what stands between a client and every server that its URL names.

They know no protocol. A *request* is what one read from the client's socket gave, so with several requests
in one packet they strike all of them. Requests are counted over all relays of a client, from 1.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from fencelock.backends.url import addresses, hide_password, host_port, split
from fencelock.testing.proxy import TCPProxy
from fencelock.testing.relay import Fault

__all__ = ["Nth", "Relays", "Strike"]


class Nth:
    """Chooses the n-th request of all, whichever relay it goes through, and counts them."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.seen = 0
        self._numbers = count(1)  # each relay asks from a thread of its own

    def __call__(self, request: bytes) -> bool:
        number = next(self._numbers)
        self.seen = max(self.seen, number)
        return number == self.n


Strike = Callable[[TCPProxy, Nth], Fault]
"""Arms a fault that strikes the request that is chosen."""


class Relays:
    """A relay in front of each server of a URL; `url` leads through them."""

    def __init__(self, url: str, default_port: int) -> None:
        parts = split(url)
        servers = addresses(parts.hosts, default_port, hide_password(url))
        self._relays = [TCPProxy(host, port).start() for host, port in servers]
        login, at, _ = parts.authority.rpartition("@")
        hosts = ",".join(host_port(relay.host, relay.port) for relay in self._relays)
        _, _, rest = url.partition("://")
        self.url = f"{parts.scheme}://{login}{at}{hosts}{rest[len(parts.authority) :]}"

    def arm(self, strike: Strike, n: int) -> tuple[Nth, list[Fault]]:
        """Arm a fault for the n-th request from now on, in each relay."""
        nth = Nth(n)
        return nth, [strike(relay, nth) for relay in self._relays]

    def close(self) -> None:
        """End every connection."""
        for relay in self._relays:
            relay.close()
