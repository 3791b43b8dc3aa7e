"""Advisory locks and the network: a swallowed client is given up, a pooler that will not do is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from advisory_desk import HELD, advisory, clean
from crew import wait_until
from postgres_desk import FLAVOURS, ask, desk_for
from tools.servers import start

from fencelock import Client, ConfigurationError

DEAD_AFTER = 4
SLACK = 10.0


@pytest.fixture(scope="module")
def pooled() -> Iterator[Any]:
    with start("pgbouncer") as group:
        yield group


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_transaction_mode_is_refused_when_connecting(pooled: Any, flavour: str) -> None:
    server = pooled.members[0]
    with desk_for(flavour, advisory(pooled.urls["transaction"])) as desk:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="pooler in transaction mode"):
                desk.acquire("job", timeout=10)
        with pytest.raises(ConfigurationError, match="pooler in transaction mode"):
            desk.inspect("job")
    clean(server)
    # Nothing was set in sessions that are everybody's.
    assert ask(server, "SHOW search_path") == [('"$user", public',)]
    with desk_for("blocking", pooled.urls["transaction"]) as other:
        other(other.acquire("job").release)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_session_mode_will_do(pooled: Any, flavour: str) -> None:
    server = pooled.members[0]
    with desk_for(flavour, advisory(pooled.urls["session"])) as desk, Client(advisory(server.url)) as other:
        lease = desk.acquire("job", ttl=60)
        assert other.lock("job").try_acquire() is None
        waiting = desk.waiting("job", ttl=60)
        wait_until(lambda: len(other.inspect("job").waiters) == 1, "it waits")
        desk(lease.release)
        assert desk(waiting.result(60).release) is True
    clean(server)


def test_a_swallowed_holder_is_freed_within_the_bound() -> None:
    """No packet passes either way. The ttl is an hour: only the server's own watch can free the lock."""
    with start("postgres", netns=True) as group:
        server = group.members[0]
        with Client(advisory(server.url, dead_after=DEAD_AFTER)) as locks:
            lease = locks.lock("job", ttl=3600).acquire(timeout=10)
            assert server.query(HELD)
            group.partition(server, clients=True)
            cut = time.monotonic()
            try:
                wait_until(lambda: not server.query(HELD), "the lock is free", DEAD_AFTER + SLACK)
                assert time.monotonic() - cut > 1  # it was not freed by anything but the silence
                # The client's own kernel notices too, long before the ttl is over.
                wait_until(lease.lost.is_set, "the loss is known", 30)
            finally:
                group.heal()
            assert locks.lock("job", timeout=20).acquire().release() is True
