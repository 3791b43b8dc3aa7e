"""Residue and abandoned leases: nothing is left of locks that nobody has any more."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

from fencelock.errors import AcquireTimeout, FencelockError
from fencelock.testing.conformance.actors import inside, io, nap
from fencelock.testing.conformance.expect import HANGING, fails, quick, same, soon, that
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World

__all__: list[str] = []

NAMES = 300
SEEN_OFF = 2.0
"""A server may be slow to see that a connection was closed; a waiter nobody withdrew stays for longer."""
LONG = 60.0
"""A ttl that no check lives to see the end of: what is free before was released."""


# Residue ----------------------------------------------------------------------------------------


@check("residue", needs={"list"}, bug="Redisson: one immortal counter per lock name, 25 million keys")
async def check_many_names_leave_nothing_listed(world: World) -> None:
    """Three hundred names that were locked once and released are not listed any more."""
    prefix = world.name("/")

    async def work(start: int) -> None:
        for number in range(start, NAMES, 4):
            async with inside(world.locks.lock(f"{prefix}job-{number}#send_email", timeout=10)):
                pass

    keep = await world(world.locks.lock(f"{prefix}keep").acquire, timeout=5)
    await asyncio.gather(*(world.actor()(work, start) for start in range(4)))
    listed = [state.name for state in await world(world.locks.list, prefix)]
    same(listed, [keep.name], "what is listed")
    await world(keep.release)
    same(await world(world.locks.list, prefix), [], "what is listed at the end")


@check(
    "residue",
    needs={"list", "inspect"},
    bug="tooz, etcd3gw, etcd3, aetcd: a lease leaked for each failed attempt",
)
async def check_attempts_that_fail_leave_nothing(world: World) -> None:
    """Tries and waits that ended without the lock leave neither a waiter nor a holder."""
    name = world.name()
    lease = await world(world.client().lock(name).acquire, timeout=5)
    lock = world.locks.lock(name, ttl=world.ttl(LONG))
    for _ in range(10):
        same(await world(lock.try_acquire), None, "try_acquire")
    calls = [fails(AcquireTimeout, world.actor()(lock.acquire, timeout=1.0)) for _ in range(8)]
    await asyncio.gather(*calls)
    await world.settled(world.locks)

    async def nobody_waits() -> bool:
        return not (await world.state(name)).waiters

    await soon(nobody_waits, SEEN_OFF, "nobody waits any more")
    (state,) = await world(world.locks.list, name)
    same([holder.owner for holder in state.holders], [lease.owner], "the holders")
    same(state.waiters, (), "the waiters")
    await world(lease.release)
    same(await world(world.locks.list, name), [], "what is listed after the release")


@check("residue", needs={"list", "shared", "permit"})
async def check_other_modes_leave_nothing_listed(world: World) -> None:
    """Read-write locks, semaphores and multi-locks that were released are not listed any more."""
    prefix, client = world.name("/"), world.locks
    for number in range(15):
        name = f"{prefix}{number}"
        rw = client.rwlock(f"{name}-rw")
        many = client.multi([f"{name}-a", f"{name}-b"])
        for lock in (rw.read(), rw.write(), client.semaphore(f"{name}-s", 2), many):
            lease = await world(lock.acquire, timeout=5)
            await world(lease.release)
    same(await world(client.list, prefix), [], "what is listed")


@check("residue", needs={"list"})
async def check_expired_leases_are_not_listed(world: World) -> None:
    """Holders whose lease ran out, and who never came back, are not listed any more."""
    prefix, ttl = world.name("/"), world.ttl(0.5)
    leases = [
        await world(world.locks.lock(f"{prefix}{number}", ttl=ttl, renew=False).acquire, timeout=5)
        for number in range(5)
    ]

    async def is_empty() -> bool:
        return not await world(world.locks.list, prefix)

    await soon(is_empty, world.gone(ttl), "expired leases are not listed")
    that(not any(lease.is_held() for lease in leases), "a lease is held though it has expired")


@check("residue")
async def check_closed_clients_leave_nothing(world: World) -> None:
    """Closing a client releases what it still holds and ends what it waits for."""
    held, awaited = world.name(), world.name()
    client = world.client()
    leases = [await world(client.lock(held, ttl=world.ttl(LONG)).acquire, timeout=5)]
    other = await world(world.locks.lock(awaited).acquire, timeout=5)
    call = world.actor().start(client.lock(awaited, ttl=world.ttl(LONG)).acquire, timeout=LONG)
    await world.queued(awaited, 1)
    await quick(world(client.close), HANGING, "close()")
    await fails(FencelockError, quick(call, HANGING, "the wait of a closed client"), "acquire")
    that(not leases[0].is_held(), "a lease of a closed client is held")
    await world.free(held)
    await world(other.release)
    await world.free(awaited)


# Abandoned leases -------------------------------------------------------------------------------


async def drop(leases: list[Any]) -> None:
    """Let go of the only references to leases."""
    await asyncio.sleep(0.05)  # until then the loop, or an actor, has what the last call returned
    leases.clear()
    gc.collect()


async def entered(world: World, lock: Any) -> Any:
    """Acquire a lease and begin its block, which nothing will end."""
    lease = await io(lock.acquire(timeout=5))
    await io(lease.__enter__() if world.flavour == "blocking" else lease.__aenter__())
    return lease


async def collected(world: World, name: str) -> None:
    """Fail unless a lock whose lease is garbage is free long before its ttl is over."""

    async def is_free() -> bool:
        gc.collect()
        lease = await world(world.locks.lock(name).try_acquire)
        return lease is not None and bool(await world(lease.release))

    await soon(is_free, 3 + world.slack, f"{name!r}, whose lease is garbage, is free")


@check("abandoned", limit=40.0)
async def check_dropped_leases_end_with_their_ttl(world: World) -> None:
    """A lease that `acquire()` gave and its caller dropped keeps others out until its ttl is over."""
    name, ttl = world.name(), world.kept
    began = time.monotonic()
    leases = [await world(world.client().lock(name, ttl=ttl).acquire, timeout=5)]
    await drop(leases)
    await world.taken(name)
    other = await world(world.locks.lock(name).acquire, timeout=world.gone(ttl))
    that(time.monotonic() - began >= 0.9 * ttl, "a dropped lease ended before its ttl was over")
    await world(other.release)


@check("abandoned")
async def check_garbage_leases_of_blocks_are_released(world: World) -> None:
    """A lease whose block nothing can end any more is released, long before its ttl."""
    name = world.name()
    client = world.client()
    lease = await world(entered, world, client.lock(name, ttl=world.ttl(LONG)))
    await world.taken(name)
    del lease
    await collected(world, name)


@check("abandoned")
async def check_leases_in_a_cycle_are_released(world: World) -> None:
    """A lease that only a reference cycle keeps is released when the cycle is collected."""
    name = world.name()
    client = world.client()

    async def work() -> None:
        cycle: list[Any] = [await entered(world, client.lock(name, ttl=world.ttl(LONG)))]
        cycle.append(cycle)

    await world.actor()(work)
    await collected(world, name)


@check("abandoned")
async def check_leases_of_ended_actors_are_released(world: World) -> None:
    """A thread or task that ends without releasing leaves nothing locked, also after an error."""
    client = world.client()
    names = [world.name(), world.name()]

    async def work(name: str, *, fail: bool) -> None:
        lease = await entered(world, client.lock(name, ttl=world.ttl(LONG)))
        that(lease.is_held(), "a lease that was just granted is not held")
        if fail:
            raise KeyError(name)

    for name, fail in zip(names, (False, True), strict=True):
        actor = world.actor()
        call = actor.start(work, name, fail=fail)
        await asyncio.wait([call])
        same(call.exception() is not None, fail, "the actor failed")
        if fail:
            call.exception().__traceback__ = None  # type: ignore[union-attr]  # its frames have the lease
        actor.stop()
        del actor, call
        await collected(world, name)


@check("abandoned")
async def check_garbage_leases_are_not_renewed(world: World) -> None:
    """A lease that is garbage is not renewed, though its client goes on renewing others."""
    name, ttl = world.name(), world.kept
    client, faults = world.faulty_client()
    keep = await world(client.lock(world.name(), ttl=ttl).acquire, timeout=5)
    leases = [await world(client.lock(name, ttl=ttl).acquire, timeout=5)]
    faults.lose_requests("abandon", "release")  # all that can free it now is that nobody renews it
    await drop(leases)
    mine = await quick(
        world(world.locks.lock(name).acquire, timeout=world.gone(ttl) + 1),
        world.gone(ttl) + 2,
        "the lock of a lease that is garbage",
    )
    that(keep.is_held() and await world(keep.verify), "the client does not renew what is still held")
    faults.heal()
    await world(mine.release)
    await world(keep.release)


@check("abandoned")
async def check_leases_that_are_kept_are_not_abandoned(world: World) -> None:
    """A lease outlives its `Lock` object, its client variable and the actor that took it."""
    name, ttl = world.name(), world.kept
    actor = world.actor()

    async def work() -> Any:
        return await io(world.locks.lock(name, ttl=ttl).acquire(timeout=5))

    lease = await actor(work)
    actor.stop()
    gc.collect()
    await world(nap, 2 * ttl)
    gc.collect()
    that(lease.is_held() and await world(lease.verify), "a lease that is kept was released")
    await world.taken(name)
    that(await world(lease.release), "the lease was lost before its release")


@check("abandoned")
async def check_garbage_entries_give_back_their_share(world: World) -> None:
    """Of a reentrant lock that was entered twice, a garbage entry gives back its own share only."""
    name = world.name()
    lock = world.client().lock(name, ttl=world.ttl(LONG), reentrant=True)
    outer = await world(lock.acquire, timeout=5)
    inner = [await world(lock.acquire, timeout=5)]
    same(inner[0].token, outer.token, "the token of the second entry")
    await drop(inner)
    await world(nap, 0.3)
    that(outer.is_held() and await world(outer.verify), "a garbage entry released the other entry's share")
    await world.taken(name)
    that(await world(outer.release), "the lease was lost before its release")
    await world.free(name)
