"""What the harness must know of peers without loading them: their requests on the wire, and their records.

Those on Redis ask for a lock by `SET … NX`. Renewals are scripts, known by their shape alone:

    tooz                EVALSHA sha 1 key token ms            (its release has no milliseconds)
    python-redis-lock   EVALSHA sha 2 key signal id seconds   (its release ends in the 1000 ms of the signal)

kazoo makes a sequential znode for each request, below one path.

Not promised: that these see a request which comes in two pieces. `python -m chaos.peers` tries them.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from kazoo.exceptions import NoNodeError, NotEmptyError  # type: ignore[import-untyped]

__all__ = [
    "PATH",
    "flush_nodes",
    "is_redis_lock_renewal",
    "is_set",
    "is_tooz_renewal",
    "is_znode",
    "remove_path",
]

PATH = "/chaos-kazoo"
"""Where kazoo's locks are."""
CREATE = re.compile(
    rb"\x00\x00\x00\x01\x00\x00\x00." + PATH.encode() + rb"/[^/]+/[0-9a-f]{32}__r?lock__", re.DOTALL
)
SIGNAL = b"\r\n$4\r\n1000\r\n"


def is_set(data: bytes) -> bool:
    """Whether it is `SET … NX`."""
    return b"\r\nSET\r\n" in data and b"\r\nNX\r\n" in data


def is_tooz_renewal(data: bytes) -> bool:
    """Whether it is redis-py's `reacquire`, which is all that tooz renews by."""
    return data.startswith(b"*6\r\n$7\r\nEVALSHA\r\n")


def is_redis_lock_renewal(data: bytes) -> bool:
    """Whether it is python-redis-lock's `extend`."""
    return data.startswith(b"*7\r\n$7\r\nEVALSHA\r\n") and not data.endswith(SIGNAL)


def is_znode(data: bytes) -> bool:
    """Whether it makes the znode of one of kazoo's requests."""
    return CREATE.search(data) is not None


def flush_nodes(store: Any) -> None:
    """Delete all that is on each of the servers."""
    for server in store.servers:
        server.ask("FLUSHALL")


def remove_path(store: Any) -> None:
    """Delete kazoo's locks, and their parents."""
    # Somebody may make another znode in between: then the parent stays, this time.
    with store.operator() as client, suppress(NotEmptyError, NoNodeError):
        client.delete(PATH, recursive=True)
