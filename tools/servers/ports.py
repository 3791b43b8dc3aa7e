"""Free TCP ports, chosen below the range from which the kernel takes the ports of outgoing connections.

A port from that range would work at first. But while a killed server is down, an outgoing connection may be
given its port, and the server cannot come back; worse, a client that keeps trying a dead port of that range
sooner or later connects to itself. A free port can still be taken by somebody else before our server binds
it; the caller notices that and begins again.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

from .errors import ServerError

LOWEST = 10_000
HIGHEST = 65_535

# Not the shared generator: test workers that seed it alike would all choose the same ports.
_random = random.SystemRandom()
_taken: set[int] = set()


def take() -> int:
    """A port that nobody listens on, and that is not given out again in this process before `give_back`."""
    candidates = _candidates()
    for _ in range(1000):
        port = _random.choice(candidates)
        if port not in _taken and _is_free(port):
            _taken.add(port)
            return port
    raise ServerError(f"no free port found between {candidates[0]} and {candidates[-1]}")


def give_back(port: int) -> None:
    """The port may be chosen again."""
    _taken.discard(port)


def _candidates() -> range:
    low, high = _outgoing()
    if low - LOWEST >= 1000:
        return range(LOWEST, low)
    return range(high + 1, HIGHEST + 1) if HIGHEST - high >= 1000 else range(LOWEST, HIGHEST + 1)


def _outgoing() -> tuple[int, int]:
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    except OSError:
        return 32_768, 60_999
    return int(low), int(high)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # All addresses: some servers bind a wildcard, and a member may live at another address of ours.
            probe.bind(("", port))
        except OSError:
            return False
    return True
