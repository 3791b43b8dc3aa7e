"""Crowds: streams of readers, many candidates, and several deaths at once."""

from __future__ import annotations

import asyncio
from typing import Any

from fencelock.testing.conformance.actors import inside, nap
from fencelock.testing.conformance.expect import quick, same
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World


@check("shared", needs={"shared", "fifo"})
async def check_a_writer_gets_through_a_stream_of_readers(world: World) -> None:
    """Readers that come and go without a gap do not keep a writer out."""
    name = world.name()
    stop = asyncio.Event()

    async def read() -> None:
        lock = world.locks.rwlock(name).read()
        while not stop.is_set():
            async with inside(lock):
                await nap(0.03)

    readers = [world.actor().start(read) for _ in range(4)]
    await asyncio.sleep(0.1)
    try:
        lease = await world(world.client().rwlock(name).write().acquire, timeout=5)
        await world(lease.release)
    finally:
        stop.set()
    await asyncio.gather(*readers)


@check("election")
async def check_only_one_leads_at_a_time(world: World) -> None:
    """Five candidates take turns; never do two lead at once."""
    name = world.name()
    leading: list[int] = []
    terms = 0

    async def campaign(candidate: Any) -> None:
        nonlocal terms
        for _ in range(3):
            async with inside(candidate.lead()) as lease:
                leading.append(lease.token)
                await nap(0.003)
                same(leading, [lease.token], "who leads")
                leading.clear()
                terms += 1

    clients = [world.locks, world.client()]
    candidates = [clients[number % 2].election(name) for number in range(5)]
    await asyncio.gather(*(world.actor()(campaign, candidate) for candidate in candidates))
    same(terms, 15, "the number of terms")


@check("election")
async def check_resign_ends_a_term_by_hand(world: World) -> None:
    """`resign()` releases what `lead()` was acquired for, and does nothing without a term."""
    name = world.name()
    election = world.locks.election(name, ttl=world.ttl(60))
    await world(election.resign)
    lease = await world(election.lead().acquire)
    await world(election.resign)
    same(lease.is_held(), False, "is_held() after resign()")
    await world.free(name)


@check("fifo", needs={"fifo", "inspect"})
async def check_the_line_moves_on_when_holder_and_waiter_die(world: World) -> None:
    """Holder and first waiter are killed together: the second waiter gets the lock."""
    name = world.name()
    ttl = world.kept
    holder, waiter = world.mortal(), world.mortal()
    await holder.acquire(name, ttl=ttl)
    waiter.start(name, ttl=ttl)
    await world.queued(name, 1)
    waiting = world.actor().start(world.locks.lock(name).acquire)
    await world.queued(name, 2)
    holder.die()
    waiter.die()
    lease = await quick(waiting, 2 * world.gone(ttl), "the turn of the one who lives")
    await world(lease.release)
