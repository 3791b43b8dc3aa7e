"""Words and declarations: one word for each idea, in both flavours, and what is promised is said."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import fencelock
from fencelock.core.ports import CAPABILITIES
from fencelock.state import Entry, LockState
from fencelock.testing.conformance.declared import expect_undeclared
from fencelock.testing.conformance.expect import same, that
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World

LEASE = (
    "name", "token", "owner", "mode", "ttl", "remaining", "is_held", "check", "verify", "lost", "extend",
    "release",
)  # fmt: skip
ENTRY = {"owner", "token", "mode", "client", "host", "pid", "since", "expires_in", "metadata"}
CLIENT = {
    "lock", "rwlock", "semaphore", "multi", "election", "inspect", "list", "force_release", "guarantees",
    "close",
}  # fmt: skip


@check("words")
async def check_one_word_for_each_idea(world: World) -> None:
    """Client, lease, state and errors use the words of the contract, the same in both flavours."""
    for kind in (fencelock.Client, fencelock.AsyncClient):
        same(CLIENT - set(dir(kind)), set(), f"what {kind.__name__} lacks")
    lease = await world(world.locks.lock(world.name()).acquire)
    for word in LEASE:
        that(hasattr(lease, word), f"a lease has no {word!r}")
    await world(lease.release)
    same(ENTRY - {field.name for field in fields(Entry)}, set(), "what an entry lacks")
    same({field.name for field in fields(LockState)}, {"name", "holders", "waiters"}, "a state's fields")


@check("words")
async def check_both_flavours_take_the_same_arguments(world: World) -> None:
    """Every call of `Client` has the arguments of the same call of `AsyncClient`."""
    pairs = [
        (fencelock.Client, fencelock.AsyncClient),
        (fencelock.Lock, fencelock.AsyncLock),
        (fencelock.Lease, fencelock.AsyncLease),
        (fencelock.Election, fencelock.AsyncElection),
        (fencelock.MultiLock, fencelock.AsyncMultiLock),
        (fencelock.MultiLease, fencelock.AsyncMultiLease),
    ]
    for blocking, asynchronous in pairs:
        names = {name for name in dir(blocking) if not name.startswith("_")}
        same(
            names ^ {name for name in dir(asynchronous) if not name.startswith("_")}, set(), "the difference"
        )
        for name in sorted(names):
            one, other = getattr(blocking, name), getattr(asynchronous, name)
            if inspect.isfunction(one):
                same(_arguments(one), _arguments(other), f"the arguments of {blocking.__name__}.{name}")


def _arguments(function: Any) -> list[tuple[str, Any, str]]:
    parameters = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.kind, repr(parameter.default)) for parameter in parameters]


@check("guarantees")
async def check_what_is_not_declared_is_refused(world: World) -> None:
    """Capabilities are known words; a lock is always among them; the rest raises `Unsupported`."""
    same(world.capabilities - CAPABILITIES, frozenset(), "capabilities that nobody knows")
    that("exclusive" in world.capabilities, "a backend without exclusive locks")
    same(world.guarantees.fairness == "fifo", "fifo" in world.capabilities, "whether fairness is as declared")
    await expect_undeclared(world, CAPABILITIES - world.capabilities)
