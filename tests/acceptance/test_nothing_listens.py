"""Where nothing listens, a try says so within a couple of seconds, on every store. So does closing."""

from __future__ import annotations

import asyncio
import time

import pytest
from tools.servers import ports

from fencelock import AsyncClient, BackendUnavailable, Client

URLS = [
    "redis://{}",
    "valkey://{}",
    "redis+sentinel://{}/main",
    "redis+cluster://{}",
    "redlock://{},{},{}",
    "postgresql://u:p@{}/d",
    "postgresql+advisory://u:p@{}/d",
    "mysql://u:p@{}/d",
    "mysql+getlock://u:p@{}/d",
    "zookeeper://{}",
    "zookeeper://{},{},{}",
    "etcd://{}",
    "etcd://{},{},{}",
    "consul://{}",
]
LIMIT = 5.0
"""Seconds for both: a try has two for an answer, and the rest is for a busy machine."""


def blocking(url: str) -> None:
    with Client(url) as locks:
        locks.lock("job").acquire(timeout=0)


async def tasks(url: str) -> None:
    async with AsyncClient(url) as locks:
        await locks.lock("job").acquire(timeout=0)


@pytest.mark.parametrize("flavour", ["blocking", "asyncio"])
@pytest.mark.parametrize("form", URLS)
def test_a_try_and_closing(form: str, flavour: str) -> None:
    taken = [ports.take() for _ in range(form.count("{}"))]
    try:
        url = form.format(*(f"127.0.0.1:{port}" for port in taken))
        began = time.monotonic()
        with pytest.raises(BackendUnavailable, match=r"(?i)connection refused"):
            blocking(url) if flavour == "blocking" else asyncio.run(tasks(url))
        assert time.monotonic() - began < LIMIT
    finally:
        for port in taken:
            ports.give_back(port)
