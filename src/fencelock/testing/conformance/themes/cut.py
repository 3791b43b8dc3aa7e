"""Waits that are cut short: what had begun is undone, whatever had happened by then.

A task is cancelled. A thread cannot be, so where the asyncio flavour cancels, the blocking
flavour closes the client under the thread that waits.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from fencelock.errors import BackendError, BackendUnavailable, FencelockError
from fencelock.testing.conformance.actors import io
from fencelock.testing.conformance.expect import HANGING, fails, quick, same, that
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World


async def _stop(world: World, client: Any, call: asyncio.Future[Any]) -> None:
    """End a call that is under way: cancel it, or close the client it is made with."""
    if world.flavour == "asyncio":
        call.cancel()
        await fails(asyncio.CancelledError, call, "the cancelled call")
    else:
        await world(client.close)
        await fails(FencelockError, quick(call, HANGING, "the call on a closed client"), "the call")


def _begin(world: World, call: Any, *args: Any, **options: Any) -> asyncio.Future[Any]:
    if world.flavour == "asyncio":
        task: asyncio.Future[Any] = asyncio.ensure_future(call(*args, **options))
        return task
    return world.actor().start(call, *args, **options)


@check("interruption", timing=True, bug="a waiter that was cancelled stays in the queue")
async def check_a_wait_that_is_cut_short_leaves_no_waiter(world: World) -> None:
    """A wait that is cancelled, or whose client is closed, leaves the queue at once."""
    name = world.name()
    holder = await world(world.locks.lock(name, ttl=world.ttl(60)).acquire)
    client = world.client()
    waiting = _begin(world, client.lock(name, ttl=world.ttl(60)).acquire)
    await world.queued(name, 1)
    behind = world.actor().start(world.locks.lock(name, ttl=world.ttl(60)).acquire)
    await world.queued(name, 2)
    await _stop(world, client, waiting)
    await world.queued(name, 1)
    await world(holder.release)
    lease = await quick(behind, 1 + world.slack, "the turn of the one behind")
    await world(lease.release)
    await world.free(name)


@check("interruption", timing=True)
async def check_a_wait_cut_short_just_before_a_release(world: World) -> None:
    """When the one before gives up and the holder releases right then, the one behind has its turn."""
    for _ in range(5):
        name = world.name()
        holder = await world(world.locks.lock(name, ttl=world.ttl(60)).acquire)
        client = world.client()
        waiting = _begin(world, client.lock(name, ttl=world.ttl(60)).acquire)
        await world.queued(name, 1)
        behind = world.actor().start(world.locks.lock(name, ttl=world.ttl(60)).acquire)
        await world.queued(name, 2)
        await _stop(world, client, waiting)
        await world(holder.release)
        lease = await quick(behind, 1 + world.slack, "the turn of the one behind")
        await world(lease.release)


@check("interruption", bug="cancelling acquire() leaves keys behind: 12 of 200 attempts (redis-py asyncio)")
async def check_an_acquire_cut_short_anywhere_leaves_nothing(world: World) -> None:
    """An acquire of a free lock that is cut short at any moment leaves no holder."""
    client = world.client()
    name = world.name()
    for step in range(60):
        lock = client.lock(f"{name}/{step}", ttl=world.ttl(60))
        if world.flavour == "asyncio":
            await _cancel_after(lock, steps=step % 30, seconds=0.0 if step < 30 else random.random() * 0.01)
        else:
            client = await _close_during(world, client, lock)
    await asyncio.sleep(0)
    for step in range(60):
        await world.free(f"{name}/{step}")


async def _cancel_after(lock: Any, *, steps: int, seconds: float) -> None:
    task = asyncio.ensure_future(lock.acquire())
    for _ in range(steps):
        await asyncio.sleep(0)
    if seconds:
        await asyncio.sleep(seconds)
    task.cancel()
    try:
        lease = await task
    except asyncio.CancelledError:
        return
    await lease.release()


async def _close_during(world: World, client: Any, lock: Any) -> Any:
    call = world.actor().start(lock.acquire)
    await asyncio.sleep(random.random() * 0.002)
    await world(client.close)
    try:
        await call
    except FencelockError:
        pass
    return world.client()


@check("interruption")
async def check_a_wait_cut_short_anywhere_leaves_nothing(world: World) -> None:
    """A wait that is cut short around the moment its turn comes leaves neither waiter nor holder."""
    name = world.name()
    for turn in range(20):
        held = f"{name}/{turn}"
        holder = await world(world.locks.lock(held, ttl=world.ttl(60)).acquire)
        client = world.client()
        waiting = _begin(world, client.lock(held, ttl=world.ttl(60)).acquire)
        await world.queued(held, 1)
        releasing = world.actor().start(holder.release)
        for _ in range(turn % 7):
            await asyncio.sleep(0)
        if world.flavour == "asyncio":
            waiting.cancel()
        else:
            await world(client.close)
        await releasing
        await _end(waiting)
        await world.free(held)
        await world(client.close)


async def _end(waiting: asyncio.Future[Any]) -> None:
    try:
        lease = await waiting
    except (asyncio.CancelledError, FencelockError):
        return
    await io(lease.release())


@check("interruption")
async def check_a_reply_in_flight_is_not_forgotten(world: World) -> None:
    """An acquire that is cut short while its reply is on the way leaves nothing."""
    client, faults = world.faulty_client()
    name = world.name()
    faults.delay_replies("acquire", seconds=0.5, calls=1)
    call = _begin(world, client.lock(name, ttl=world.ttl(60)).acquire)
    await asyncio.sleep(0.2)
    if world.flavour == "asyncio":
        call.cancel()
        await fails(asyncio.CancelledError, call, "the cancelled acquire")
    else:
        await world(client.close)
        await _end(call)
    await world.free(name)


@check("multi")
async def check_multi_cut_short_leaves_nothing(world: World) -> None:
    """A multi-lock that is cancelled, or whose client is closed, half-way holds nothing."""
    names = sorted(world.name(text) for text in "abc")
    holder = await world(world.locks.lock(names[2]).acquire)
    client = world.client()
    multi = client.multi(names, ttl=world.ttl(60))
    waiting = asyncio.ensure_future(
        multi.acquire() if world.flavour == "asyncio" else world.actor()(multi.acquire)
    )
    await world.queued(names[2], 1)
    if world.flavour == "asyncio":
        waiting.cancel()
    else:
        await world(client.close)
    await asyncio.wait({waiting}, timeout=8)
    that(waiting.done(), "the acquire did not end")
    await asyncio.gather(waiting, return_exceptions=True)
    await world(holder.release)
    for name in names:
        await world.free(name)


@check("ambiguity")
async def check_what_cannot_be_cleaned_up_now_is_cleaned_up_later(world: World) -> None:
    """When the clean-up of a failed acquire fails as well, it is done in the background."""
    client, faults = world.faulty_client()
    name = world.name()
    faults.lose_replies("acquire", calls=1)
    faults.lose_requests("abandon", calls=2)
    await fails(BackendUnavailable, world(client.lock(name, ttl=world.ttl(60)).try_acquire), "try_acquire")
    await world.free(name, 4.0)


@check("ambiguity", bug="redis-py: a late release frees the successor's lock")
async def check_a_late_clean_up_spares_the_successor(world: World) -> None:
    """A release that is repeated when another holds already, at last, frees nobody's lock."""
    client, faults = world.faulty_client()
    name = world.name()
    lease = await world(client.lock(name, ttl=world.ttl(60)).acquire)
    faults.lose_requests("abandon")
    faults.lose_replies("release", calls=1)
    await fails(BackendError, world(lease.release), "release")
    successor = await world(world.locks.lock(name).acquire, timeout=4)
    faults.heal()
    await world(lease.release)
    await asyncio.sleep(1.5)
    that(successor.is_held() and await world(successor.verify), "the successor's lease is gone")
    same(await world(successor.release), True, "release by the successor")
