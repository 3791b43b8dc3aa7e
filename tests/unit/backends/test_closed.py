"""A backend that is closed under a waiter's feet: its wait ends, and nothing else happens.

The client may be closed by another thread between two steps of a request, or while a process stood still.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fencelock.backends import backend_from_url
from fencelock.backends.base import Backend, Busy, Origin, Request
from fencelock.runtime.asyncio import AsyncioRuntime
from fencelock.runtime.blocking import BlockingRuntime, run

URLS: dict[str, Callable[[Path], str]] = {
    "memory": lambda folder: "memory://closed-under-a-waiter",
    "sqlite": lambda folder: f"sqlite://{folder}/locks.db",
}


def request(owner: str) -> Request:
    return Request(owner * 32, "name", "exclusive", 1, 30.0, Origin("test", "here", 1), None)


async def wait_on_what_was_closed(backend: Backend) -> None:
    now = backend.runtime.now
    await backend.acquire(request("a"), wait=True, deadline=now() + 5)
    waiter = request("b")
    assert isinstance(await backend.acquire(waiter, wait=True, deadline=now() + 5), Busy)
    await backend.abandon(request("a"), deadline=now() + 5)
    await backend.abandon(request("b"), deadline=now() + 5)
    await backend.close()
    assert await backend.wait(waiter, now() + 30) is None


@pytest.mark.parametrize("scheme", URLS)
def test_a_wait_after_the_end_returns_at_once(scheme: str, tmp_path: Path) -> None:
    began = time.monotonic()
    backend = backend_from_url(URLS[scheme](tmp_path))
    backend.open(BlockingRuntime(), "", lambda owner, reason: None)
    run(wait_on_what_was_closed(backend))
    assert time.monotonic() - began < 25


@pytest.mark.parametrize("scheme", URLS)
def test_a_wait_after_the_end_returns_at_once_under_asyncio(scheme: str, tmp_path: Path) -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        runtime.check()
        backend = backend_from_url(URLS[scheme](tmp_path))
        backend.open(runtime, "", lambda owner, reason: None)
        await wait_on_what_was_closed(backend)
        runtime.close()

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 25
