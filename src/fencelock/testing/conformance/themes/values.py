"""Values: a wrong one is refused before anything is sent, in one line that names it."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from fencelock.errors import AcquireTimeout, ConfigurationError
from fencelock.testing.conformance.expect import between, fails, refused, same, that, took
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World

NO_DURATIONS: tuple[Any, ...] = (-1, -0.001, math.nan, "5", True, [1], timedelta(seconds=-1))


def _refuse(what: str, values: tuple[Any, ...], make: Callable[[Any], Any]) -> None:
    for value in values:
        try:
            make(value)
        except ConfigurationError as error:
            that(what in str(error), f"the message does not name {what}: {error}")
            that("\n" not in str(error), f"the message has more than one line: {error}")
        else:
            raise AssertionError(f"{what}={value!r} was not refused")


@check("values")
async def check_bad_ttls_are_refused(world: World) -> None:
    """A ttl that is negative, NaN, infinite, `None` or no number is a `ConfigurationError`."""
    name = world.name()
    bad = (*NO_DURATIONS, None, math.inf)
    _refuse("ttl", bad, lambda ttl: world.locks.lock(name, ttl=ttl))
    _refuse("ttl", bad, lambda ttl: world.locks.election(name, ttl=ttl))


@check("values")
async def check_a_ttl_below_the_minimum_names_the_minimum(world: World) -> None:
    """A ttl below what the backend can do is refused, and the message names the minimum."""
    minimum, _ = await world.limits()
    error = refused(ConfigurationError, world.locks.lock, world.name(), ttl=minimum / 2)
    that(f"{minimum:g}" in str(error), f"the message does not name the minimum {minimum:g}: {error}")
    refused(ConfigurationError, world.locks.lock, world.name(), ttl=0)
    name = world.name()
    lease = await world(world.locks.lock(name, ttl=world.kept).acquire)
    await fails(ConfigurationError, world(lease.extend, minimum / 2), "extend below the minimum")
    that(lease.is_held(), "the lease is gone after an extension that was refused")
    await world(lease.release)
    world.locks.lock(name, ttl=minimum)


@check("values")
async def check_a_ttl_above_the_maximum_names_the_maximum(world: World) -> None:
    """The longest ttl is kept, by the backend too; a longer one is refused, and nothing is queued."""
    name, (_, maximum) = world.name(), await world.limits()
    lock = world.locks.lock(name, ttl=maximum)
    lease = await world(lock.acquire, timeout=5)
    between(maximum - 10, lease.remaining(), maximum, "remaining() of the longest lease")
    that(lease.is_held() and await world(lease.verify), "the longest lease is not held")
    await world.taken(name)
    longer = maximum * 1.001
    error = refused(ConfigurationError, world.locks.lock, name, ttl=longer)
    that(f"{maximum:g}" in str(error), f"the message does not name the maximum {maximum:g}: {error}")
    await fails(ConfigurationError, world(lease.extend, longer), "extend above the maximum")
    await world(lease.extend, maximum)
    that(lease.is_held() and await world(lease.verify), "the lease is gone after extensions to the maximum")
    same(await world(lease.release), True, "release")
    await world.free(name)


@check("values")
async def check_bad_timeouts_are_refused(world: World) -> None:
    """A timeout that is negative, NaN or no number is a `ConfigurationError`, early or late."""
    lock = world.locks.lock(world.name())
    _refuse("timeout", NO_DURATIONS, lambda timeout: world.locks.lock(lock.name, timeout=timeout))
    for timeout in NO_DURATIONS:
        await fails(ConfigurationError, world(lock.acquire, timeout=timeout), f"acquire(timeout={timeout!r})")
    await world.free(lock.name)


@check("values", needs={"permit"})
async def check_bad_limits_are_refused(world: World) -> None:
    """A limit that is not a whole number from 1 on is a `ConfigurationError`."""
    bad = (0, -1, 1.5, "2", True, None, math.inf)
    _refuse("limit", bad, lambda limit: world.locks.semaphore(world.name(), limit))


@check("values")
async def check_bad_metadata_is_refused(world: World) -> None:
    """Metadata that JSON cannot carry, or of more than 4 KiB, is a `ConfigurationError`."""
    circle: list[Any] = []
    circle.append(circle)
    bad = ({1, 2}, b"x", object(), math.nan, circle, {(1, 2): 3}, "x" * 4095)
    _refuse("metadata", bad, lambda metadata: world.locks.lock(world.name(), metadata=metadata))


@check("values")
async def check_other_bad_values_are_refused(world: World) -> None:
    """`max_hold`, `on_lost`, a namespace, a client name, a target: each is refused by name."""
    name = world.name()
    _refuse("max_hold", (*NO_DURATIONS, 0), lambda value: world.locks.lock(name, max_hold=value))
    _refuse("on_lost", ("f", 5), lambda value: world.locks.lock(name, on_lost=value))
    _refuse("namespace", ("a\0b", "x" * 513), lambda value: world.client(namespace=value))
    _refuse("client_name", ("", "a\0b", "x" * 513), lambda value: world.client(client_name=value))
    for url in ("nowhere://x", "nothing", ""):
        kind = type(world.locks)
        if url:
            refused(ConfigurationError, kind, url)
    refused(ConfigurationError, type(world.locks), 5)


@check("values", timing=True)
async def check_durations_may_be_timedeltas(world: World) -> None:
    """`ttl`, `timeout`, `max_hold` and `extend` take a `timedelta` for seconds."""
    name = world.name()
    ttl = world.ttl(20)
    lock = world.locks.lock(
        name,
        ttl=timedelta(seconds=ttl),
        timeout=timedelta(seconds=world.brief),
        max_hold=timedelta(hours=1),
    )
    lease = await world(lock.acquire)
    same(lease.ttl, ttl, "lease.ttl")
    error = await fails(AcquireTimeout, world(lock.acquire), "acquire of a held lock")
    took(world.brief - 0.02, error.waited, world.brief + world.slack, "waited")
    longer = world.ttl(40)
    await world(lease.extend, timedelta(seconds=longer))
    between(0.75 * longer, lease.remaining(), longer, "remaining after extend")
    await world(lease.release)
