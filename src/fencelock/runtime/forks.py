"""What a forked child does with the connections of its parent's event loop."""

from __future__ import annotations

import asyncio
import os

__all__ = ["let_go"]


def let_go(transport: asyncio.BaseTransport) -> None:
    """Close the child's copy of a transport's socket, and nothing else. Keep the transport for ever.

    The transport's own way of closing would take the socket out of the parent's event loop as well: parent
    and child share its selector. The number of the socket stays taken, since the transport still has it.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return
    null = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(null, sock.fileno(), inheritable=False)
    finally:
        os.close(null)
