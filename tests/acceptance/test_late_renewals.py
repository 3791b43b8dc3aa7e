"""A renewal that arrives after the expiry revives nothing, though nobody has asked for the lock since."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.servers import start

import fencelock
from fencelock.backends.base import Origin, Outcome, Renewal, Request

TTL = 0.3
SERVERS = {"redis": "redis", "postgresql": "postgres", "mysql": "mariadb"}


@pytest.fixture(params=["memory", "sqlite", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param not in SERVERS:
        yield {"memory": "memory://", "sqlite": f"sqlite://{tmp_path}/locks.db"}[request.param]
        return
    with start(SERVERS[request.param]) as group:
        yield f"{request.param}://{group.url.partition('://')[2]}"


def test_what_has_expired_is_lost_to_a_renewal_that_comes_late(url: str) -> None:
    """The backend is asked by hand: a client would clean up behind itself, and never ask too late."""
    with fencelock.Client(url) as locks:
        locks.lock("other").acquire().release()  # connected, and the schema is there
        backend = locks._session.backend
        request = Request("f" * 32, "job", "exclusive", 1, TTL, Origin("late", "host", 1), None)
        grant = step(backend, "acquire", request, wait=False)
        assert step(backend, "renew", [Renewal(request, grant.token, TTL, True)]) == [Outcome.RENEWED]
        time.sleep(3 * TTL)  # by the server's clock it has expired
        for extend in (False, True):
            outcome = step(backend, "renew", [Renewal(request, grant.token, TTL, extend)])
            assert outcome == [Outcome.LOST]
        assert locks.inspect("job").holders == ()


def step(backend: Any, name: str, *args: Any, **options: Any) -> Any:
    """Take one step of a blocking backend."""
    steps = getattr(backend, name)(*args, deadline=backend.runtime.now() + 10, **options)
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a blocking step does not wait")
