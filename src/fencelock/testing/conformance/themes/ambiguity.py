"""Ambiguity and outages: what was done and not heard of, and what could not be asked."""

from __future__ import annotations

import time
from typing import Any

from fencelock.errors import AcquireTimeout, BackendUnavailable, LeaseLost
from fencelock.testing.conformance.actors import inside
from fencelock.testing.conformance.expect import HANGING, fails, quick, same, that, took
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World


@check(
    "ambiguity",
    timing=True,
    bug="redis-py: SET applied, reply lost, the retry loses to its own ghost for a whole ttl",
)
async def check_lost_acquire_reply_is_recognised(world: World) -> None:
    """An acquire whose reply was lost is recognised when it is retried, and granted at once."""
    name = world.name()
    client, faults = world.faulty_client()
    faults.lose_replies("acquire", calls=1)
    call = world(client.lock(name, ttl=world.ttl(30)).acquire, timeout=20)
    lease = await quick(call, 2.0 + world.slack, "acquire after a lost reply")
    same(await world(lease.verify), True, "verify()")
    await world.taken(name)
    if "inspect" in world.capabilities:
        state = await world.state(name)
        same([entry.owner for entry in state.holders], [lease.owner], "the holders")
        same(state.waiters, (), "the waiters")
    same(await world(lease.release), True, "release()")
    await world.free(name)


@check("ambiguity")
async def check_lost_acquire_replies_of_a_waiter(world: World) -> None:
    """A waiter whose replies are lost now and then keeps its place and takes no second one."""
    name = world.name()
    holder = await world(world.locks.lock(name).acquire, timeout=5)
    client, faults = world.faulty_client()
    faults.lose_replies("acquire", calls=2)
    call = world.actor().start(client.lock(name).acquire, timeout=20)
    await world.queued(name, 1)
    await world(holder.release)
    lease = await quick(call, HANGING, "the waiter's acquire")
    if "inspect" in world.capabilities:
        state = await world.state(name)
        same([entry.owner for entry in state.holders], [lease.owner], "the holders")
        same(state.waiters, (), "the waiters")
    await world(lease.release)
    await world.free(name)


@check("ambiguity")
async def check_try_whose_reply_is_lost(world: World) -> None:
    """A try whose reply was lost raises BackendUnavailable, and leaves no orphan."""
    name = world.name()
    client, faults = world.faulty_client()
    faults.lose_replies("acquire", calls=1)
    await fails(BackendUnavailable, world(client.lock(name, ttl=world.ttl(30)).try_acquire), "try_acquire")
    await world.free(name)


@check("ambiguity")
async def check_orphan_of_a_cut_acquire(world: World) -> None:
    """A grant that nobody heard of, by a client that is cut off, ends with its ttl."""
    ttl = world.ttl(0.8)
    name = world.name()
    client, faults = world.faulty_client()
    faults.cut()
    faults.lose_replies("acquire")
    await fails(BackendUnavailable, world(client.lock(name, ttl=ttl).acquire, timeout=0.5), "acquire")
    lease = await world(world.locks.lock(name).acquire, timeout=world.gone(ttl))
    faults.heal()
    same(await world(lease.verify), True, "verify() of the successor")
    await world(lease.release)


@check("ambiguity", bug="redis-py: one connection error during release and the lock can never be released")
async def check_release_whose_request_is_lost(world: World) -> None:
    """A release that did not arrive says so, and can be tried again; the lock is free soon."""
    name = world.name()
    client, faults = world.faulty_client()
    lease = await world(client.lock(name, ttl=world.ttl(30)).acquire, timeout=5)
    faults.lose_requests("release", calls=1)
    await fails(BackendUnavailable, world(lease.release), "release()")
    same(lease.is_held(), False, "is_held() after a release that failed")
    await world(lease.release)
    await world.free(name)


@check("ambiguity")
async def check_release_whose_reply_is_lost(world: World) -> None:
    """A release that was done and not heard of may be repeated, and spares the successor."""
    name = world.name()
    client, faults = world.faulty_client()
    lease = await world(client.lock(name, ttl=world.ttl(30)).acquire, timeout=5)
    faults.lose_replies("release", calls=1)
    await fails(BackendUnavailable, world(lease.release), "release()")
    successor = await world(world.locks.lock(name).acquire, timeout=5)
    await world(lease.release)
    same(await world(successor.verify), True, "verify() of the successor")
    same(await world(successor.release), True, "release() of the successor")
    await world.free(name)


@check("ambiguity")
async def check_failed_release_is_made_up_for(world: World) -> None:
    """A release that failed is made up for in the background, long before the ttl is over."""
    name = world.name()
    client, faults = world.faulty_client()
    lease = await world(client.lock(name, ttl=world.ttl(30)).acquire, timeout=5)
    faults.lose_requests("release", "abandon", calls=1)
    await fails(BackendUnavailable, world(lease.release), "release()")
    await world.free(name, within=4.0 + world.slack)


@check("ambiguity")
async def check_block_whose_release_fails(world: World) -> None:
    """The body's own error travels on when the release at the end of the block fails as well."""
    name = world.name()
    client, faults = world.faulty_client()

    async def work(error: Exception | None) -> None:
        async with inside(client.lock(name, ttl=world.ttl(30))):
            faults.lose_requests("release", calls=1)
            if error is not None:
                raise error

    await fails(LookupError, world(work, LookupError("from the body")), "the block")
    await world.free(name)
    await fails(BackendUnavailable, world(work, None), "a block whose release fails")
    await world.free(name)


@check("ambiguity")
async def check_verify_without_an_answer(world: World) -> None:
    """verify() that gets no answer raises BackendUnavailable; it does not guess."""
    client, faults = world.faulty_client()
    lease = await world(client.lock(world.name(), ttl=world.ttl(30)).acquire, timeout=5)
    faults.lose_requests("renew")
    await fails(BackendUnavailable, world(lease.verify), "verify()")
    await fails(BackendUnavailable, world(lease.extend, world.ttl(60)), "extend()")
    same(lease.is_held(), True, "is_held() while the backend cannot be asked")
    faults.heal()
    same(await world(lease.verify), True, "verify()")
    await world(lease.release)


# Outages --------------------------------------------------------------------------------


@check("errors", timing=True)
async def check_backend_down_is_no_timeout(world: World) -> None:
    """An acquire without a backend raises BackendUnavailable, by its timeout, and grants nothing."""
    name = world.name()
    client, faults = world.faulty_client()
    faults.cut()
    for timeout in (0, 0.5, 10):
        started = time.monotonic()
        error: Any = await fails(BackendUnavailable, world(client.lock(name).acquire, timeout=timeout))
        that(not isinstance(error, AcquireTimeout), "backend down was taken for held by someone else")
        that(not isinstance(error, TimeoutError), "BackendUnavailable is a TimeoutError")
        took(0.0, time.monotonic() - started, timeout + 2 * world.slack, f"seconds for timeout={timeout}")
    await fails(BackendUnavailable, world(client.lock(name).try_acquire), "try_acquire")
    await world.free(name)


@check("errors")
async def check_recovers_after_an_outage(world: World) -> None:
    """After an outage the same client works again, without being made anew."""
    name = world.name()
    client, faults = world.faulty_client()
    faults.cut()
    await fails(BackendUnavailable, world(client.lock(name).try_acquire), "try_acquire")
    faults.heal()
    lease = await world(client.lock(name).acquire, timeout=5)
    same(await world(lease.release), True, "release()")


@check("errors")
async def check_waiter_rides_out_a_short_outage(world: World) -> None:
    """A waiter survives an outage of a second, and is granted afterwards."""
    name = world.name()
    holder = await world(world.locks.lock(name).acquire, timeout=5)
    client, faults = world.faulty_client()
    call = world.actor().start(client.lock(name, ttl=world.ttl(30)).acquire, timeout=20)
    await world.queued(name, 1)
    faults.lose_requests("acquire", "wait")
    await world(holder.release)
    that(not call.done() or call.exception() is None, "the wait was given up during a short outage")
    faults.heal()
    lease = await quick(call, HANGING, "acquire after the outage")
    same(await world(lease.release), True, "release()")


@check("errors", timing=True)
async def check_held_is_no_outage(world: World) -> None:
    """A lock that somebody else holds raises AcquireTimeout, with who and how long."""
    name = world.name()
    lease = await world(world.locks.lock(name).acquire, timeout=5)
    error = await fails(AcquireTimeout, world(world.client().lock(name).acquire, timeout=world.brief))
    same(error.name, name, "AcquireTimeout.name")
    took(world.brief - 0.05, error.waited, world.brief + 2 * world.slack, "AcquireTimeout.waited")
    if error.holder is not None:
        same(error.holder.owner, lease.owner, "AcquireTimeout.holder")
    that(isinstance(error, TimeoutError), "AcquireTimeout is no TimeoutError")
    await world(lease.release)


@check("errors")
async def check_outage_longer_than_the_ttl(world: World) -> None:
    """A holder that is cut off for longer than its ttl loses its lease, and can acquire again."""
    ttl = world.ttl(0.6)
    name = world.name()
    client, faults = world.faulty_client()

    async def work() -> None:
        async with inside(client.lock(name, ttl=ttl)) as lease:
            faults.cut()
            if world.flavour == "asyncio":
                await lease.lost.wait()
            else:
                that(lease.lost.wait(ttl + 2 * world.slack), "lost was not set")

    await fails(LeaseLost, world(work), "the block")
    faults.heal()
    lease = await world(client.lock(name, ttl=ttl).acquire, timeout=world.gone(ttl))
    same(await world(lease.release), True, "release()")
