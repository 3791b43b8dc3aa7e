"""The end of a program whose event loop is gone: give locks back over sockets of its own."""

from __future__ import annotations

from collections.abc import Sequence

import hiredis

from fencelock.backends.redis.server import Server
from fencelock.errors import FencelockError

__all__ = ["say_goodbye"]

LIMIT = 0.5
"""Seconds for each node."""


def say_goodbye(servers: Sequence[Server], calls: Sequence[bytes]) -> None:
    """Send the calls to each node and wait for the answers, as well as it can be done. Raises nothing."""
    for server in servers:
        try:
            _tell(server, calls)
        except (FencelockError, OSError, hiredis.HiredisError):
            continue  # it expires there


def _tell(server: Server, calls: Sequence[bytes]) -> None:
    with server.dial(LIMIT) as sock:
        sock.settimeout(LIMIT)
        sock.sendall(b"".join(calls))
        reader = hiredis.Reader()
        missing = len(calls)
        while missing:
            if reader.gets() is not False:
                missing -= 1
            elif data := sock.recv(65536):
                reader.feed(data)
            else:
                return
