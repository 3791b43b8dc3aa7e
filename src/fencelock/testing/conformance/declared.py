"""What a backend does not declare must raise `Unsupported`; it must not half work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fencelock.errors import Unsupported
from fencelock.testing.conformance.expect import fails, refused, same

if TYPE_CHECKING:
    from fencelock.testing.conformance.world import World

__all__ = ["expect_undeclared"]


async def expect_undeclared(world: World, capabilities: Iterable[str]) -> str:
    """Use capabilities that are not declared; fail unless each is refused. Returns what was shown."""
    for capability in sorted(capabilities):
        await _expect_refused(world, capability)
    return f"not declared, and refused as it must be: {', '.join(sorted(capabilities))}"


async def _expect_refused(world: World, capability: str) -> None:
    client: Any = world.locks
    name = world.name()
    if capability == "fifo":  # an order cannot be asked for, only promised
        same(world.guarantees.fairness, "none", "guarantees.fairness without the capability 'fifo'")
        return
    if capability == "exclusive":
        error = refused(Unsupported, client.lock, name)
    elif capability == "shared":
        error = refused(Unsupported, client.rwlock, name)
    elif capability == "permit":
        error = refused(Unsupported, client.semaphore, name, 2)
    elif capability == "list":
        error = await fails(Unsupported, world(client.list))
    else:
        error = await fails(Unsupported, world(getattr(client, capability), name))
    same(error.capability, capability, "Unsupported.capability")
