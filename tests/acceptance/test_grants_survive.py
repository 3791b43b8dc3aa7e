"""A grant that was answered is on disk: the server crashes right after it, and still knows the holder."""

from __future__ import annotations

from typing import Any

import pytest
from postgres_desk import FLAVOURS, desk_for
from tools.servers import start

LAZY = {"wal_writer_delay": "10000", "wal_writer_flush_after": "1GB", "synchronous_commit": "off"}
"""Nothing gets to the disk by itself for a while: only who asks for it, by whatever right, has it there."""


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_grant_that_was_answered_is_known_after_a_crash(flavour: str) -> None:
    with start("postgres", settings=LAZY) as group:
        server: Any = group.members[0]
        with desk_for(flavour, group.url) as desk:
            lease = desk.acquire("job", ttl=60)
            server.kill()
            server.restart()
            assert desk(lease.verify)
            with desk_for("blocking", group.url) as other:
                assert other.locks.lock("job").try_acquire() is None
