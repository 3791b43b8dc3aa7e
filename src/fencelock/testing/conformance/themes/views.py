"""What is seen: metadata as it was given, and looking that changes nothing."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fencelock.testing.conformance.expect import same, soon, that
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World

METADATA: tuple[Any, ...] = (
    {"job": 42, "tags": ["a", "ü", "🔒"], "nested": {"x": None, "y": [1.5, True, -3]}},
    "plain",
    0,
    False,
    [],
    {},
    'quotes " and \\ and \n',
    "x" * 4094,
)


@check("looking", needs={"inspect"})
async def check_metadata_comes_back_as_it_was(world: World) -> None:
    """Whatever JSON can carry comes back equal, up to 4 KiB."""
    for metadata in METADATA:
        name = world.name()
        lease = await world(world.locks.lock(name, metadata=metadata).acquire)
        (entry,) = (await world.state(name)).holders
        same(entry.metadata, metadata, "metadata")
        same(type(entry.metadata), type(metadata), "the type of the metadata")
        await world(lease.release)
    lease = await world(world.locks.lock(name).acquire)
    (entry,) = (await world.state(name)).holders
    same(entry.metadata, None, "metadata that was not given")
    await world(lease.release)


@check("looking", needs={"inspect"})
async def check_looking_changes_nothing(world: World) -> None:
    """Neither `inspect` nor `list` renews, breaks or leaves anything."""
    name = world.name()
    ttl = world.ttl(0.8)
    lease = await world(world.locks.lock(name, ttl=ttl, renew=False).acquire)
    started = time.monotonic()
    while time.monotonic() - started < ttl + 0.2:
        await world.state(name)
        await asyncio.sleep(0.05)
    same(lease.is_held(), False, "is_held() after the ttl")
    await world.free(name, world.gone(ttl))


@check("looking", needs={"force_release"})
async def check_a_broken_holder_may_come_back(world: World) -> None:
    """The lock object of a holder that was broken works as before, with a larger token."""
    lock = world.locks.lock(world.name(), ttl=world.ttl(1))
    lease = await world(lock.acquire)
    await world(world.client().force_release, lock.name)
    await soon(lambda: not lease.is_held(), world.ttl(1) + world.slack, "the holder knows of it")
    again = await world(lock.acquire, timeout=5)
    that(again.token > lease.token, f"token {again.token} follows {lease.token}")
    same(await world(again.release), True, "release")
