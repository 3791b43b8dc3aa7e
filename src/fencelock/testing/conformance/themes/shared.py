"""Readers, writers and semaphores: who may hold together, in one queue."""

from __future__ import annotations

import asyncio
from typing import Any

from fencelock.errors import ConfigurationError
from fencelock.testing.conformance.actors import inside, nap
from fencelock.testing.conformance.expect import HANGING, fails, quick, same, that
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World


async def waits(call: asyncio.Future[Any], what: str) -> None:
    """Fail if a call that has to wait does not."""
    await asyncio.sleep(0.2)
    that(not call.done(), f"{what} did not wait")


@check("shared", needs={"shared"})
async def check_readers_hold_together(world: World) -> None:
    """Many readers hold the lock at the same time, each with a token of its own."""
    read = world.locks.rwlock(world.name()).read()
    leases = [await quick(world.actor()(read.acquire), HANGING, "a reader") for _ in range(6)]
    that(all(lease.is_held() for lease in leases), "a reader was not let in")
    same(len({lease.token for lease in leases}), 6, "the number of different tokens")
    same({lease.mode for lease in leases}, {"shared"}, "the mode of readers")
    for lease in leases:
        same(await world(lease.release), True, "release()")


@check("shared", needs={"shared"})
async def check_writer_is_alone(world: World) -> None:
    """A writer keeps readers and writers out, and readers keep a writer out."""
    rw = world.locks.rwlock(world.name())
    writer = await world(rw.write().acquire, timeout=5)
    same(writer.mode, "exclusive", "the mode of a writer")
    same(await world(rw.read().try_acquire), None, "a reader's try beside a writer")
    same(await world(rw.write().try_acquire), None, "a writer's try beside a writer")
    await world(writer.release)
    reader = await world(rw.read().acquire, timeout=5)
    same(await world(rw.write().try_acquire), None, "a writer's try beside a reader")
    await world(reader.release)
    writer = await world(rw.write().acquire, timeout=5)
    await world(writer.release)


@check("shared", needs={"shared"})
async def check_readers_and_writers_exclude(world: World) -> None:
    """Under load a writer is never beside anyone, and no update is lost."""
    rw = world.locks.rwlock(world.name())
    now = {"readers": 0, "writers": 0, "value": 0}
    wrong: list[dict[str, int]] = []

    def look() -> None:
        if now["writers"] > 1 or (now["writers"] and now["readers"]):
            wrong.append(dict(now))

    async def write() -> None:
        for _ in range(4):
            async with inside(rw.write()):
                now["writers"] += 1
                look()
                value = now["value"]
                await nap(0.002)
                now["value"] = value + 1
                now["writers"] -= 1

    async def read() -> None:
        for _ in range(4):
            async with inside(rw.read()):
                look_only = now["writers"]
                await nap(0.002)
                if look_only or now["writers"]:
                    wrong.append(dict(now))

    calls = [world.actor().start(work) for work in (write, read) * 3]
    for call in calls:
        await quick(call, 20.0, "a reader or writer")
    same(wrong, [], "moments with a writer beside somebody")
    same(now["value"], 12, "the number of updates")


@check("shared", needs={"shared", "fifo"})
async def check_writer_does_not_starve(world: World) -> None:
    """A reader that comes after a waiting writer waits behind it."""
    name = world.name()
    rw = world.locks.rwlock(name)
    first = await world(rw.read().acquire, timeout=5)
    writing = world.actor().start(rw.write().acquire, timeout=20)
    await world.queued(name, 1)
    reading = world.actor().start(rw.read().acquire, timeout=20)
    await world.queued(name, 2)
    same(await world(rw.read().try_acquire), None, "a reader's try past a waiting writer")
    await waits(writing, "the writer")
    await waits(reading, "the reader behind the writer")
    await world(first.release)
    writer = await quick(writing, HANGING, "the writer")
    await waits(reading, "the reader behind the writer")
    await world(writer.release)
    reader = await quick(reading, HANGING, "the reader")
    that(reader.token > writer.token > first.token, "tokens do not rise")
    await world(reader.release)


@check("shared", needs={"shared", "fifo"})
async def check_order_among_modes(world: World) -> None:
    """Readers and writers are served in the order in which they came, readers side by side."""
    name = world.name()
    rw = world.locks.rwlock(name)
    first = await world(rw.write().acquire, timeout=5)
    calls = []
    for mode in (rw.read(), rw.read(), rw.write(), rw.read()):
        calls.append(world.actor().start(mode.acquire, timeout=30))
        await world.queued(name, len(calls))
    await world(first.release)
    readers = [await quick(call, HANGING, "one of two readers at the head") for call in calls[:2]]
    await waits(calls[2], "the writer behind two readers")
    await world(readers[0].release)
    await waits(calls[2], "the writer behind one reader")
    await world(readers[1].release)
    writer = await quick(calls[2], HANGING, "the writer")
    await waits(calls[3], "the reader behind the writer")
    await world(writer.release)
    last = await quick(calls[3], HANGING, "the last reader")
    await world(last.release)
    tokens = [readers[0].token, readers[1].token, writer.token, last.token]
    same(max(tokens[:2]) < tokens[2] < tokens[3], True, f"tokens {tokens} rise with the order")


@check("shared", needs={"shared", "fifo"})
async def check_reader_moves_up_when_a_writer_gives_up(world: World) -> None:
    """Readers behind a writer that gives up are let in beside the readers that hold."""
    name = world.name()
    rw = world.locks.rwlock(name)
    first = await world(rw.read().acquire, timeout=5)
    writing = world.actor().start(rw.write().acquire, timeout=1.0)
    await world.queued(name, 1)
    reading = world.actor().start(rw.read().acquire, timeout=20)
    await fails(TimeoutError, writing, "the writer")
    reader = await quick(reading, HANGING, "the reader behind a writer that gave up")
    same(first.is_held(), True, "is_held() of the first reader")
    await world(first.release)
    await world(reader.release)


@check(
    "shared",
    needs={"shared"},
    bug="DistributedLock: a crashed reader blocks writers as long as any other reader renews",
)
async def check_crashed_reader_blocks_no_writer(world: World) -> None:
    """A reader that died does not keep a writer out for longer because another reader renews."""
    ttl = world.kept
    name = world.name()
    mortal = world.mortal()
    await mortal.acquire(name, mode="shared", ttl=ttl)
    rw = world.locks.rwlock(name, ttl=ttl)
    reader = await world(rw.read().acquire, timeout=5)
    mortal.die()
    await asyncio.sleep(world.gone(ttl) - world.slack)
    same(reader.is_held(), True, "is_held() of the reader that lives")
    await world(reader.release)
    writer = await quick(
        world(rw.write().acquire), 1.0 + world.slack, "a writer after the last living reader"
    )
    await world(writer.release)


# Semaphores -----------------------------------------------------------------------------


@check("permits", needs={"permit"})
async def check_semaphore_limit(world: World) -> None:
    """A semaphore has as many holders as its limit says and no more."""
    semaphore = world.locks.semaphore(world.name(), 3)
    leases = [await world(semaphore.acquire, timeout=5) for _ in range(3)]
    same({lease.mode for lease in leases}, {"permit"}, "the mode of permits")
    same(len({lease.token for lease in leases}), 3, "the number of different tokens")
    same(await world(semaphore.try_acquire), None, "a try beyond the limit")
    await world(leases.pop(1).release)
    leases.append(await quick(world(semaphore.acquire), HANGING, "acquire after one was freed"))
    same(await world(semaphore.try_acquire), None, "a try beyond the limit")
    for lease in leases:
        same(await world(lease.release), True, "release()")


@check("permits", needs={"permit"})
async def check_semaphore_under_load(world: World) -> None:
    """With many contenders the limit is reached and never passed."""
    semaphore = world.locks.semaphore(world.name(), 2)
    inside_now: set[int] = set()
    most = [0]

    async def work(number: int) -> None:
        for _ in range(3):
            async with inside(semaphore):
                inside_now.add(number)
                most.append(len(inside_now))
                await nap(0.02)
                inside_now.discard(number)

    for call in [world.actor().start(work, number) for number in range(6)]:
        await quick(call, 20.0, "one of six contenders")
    same(max(most), 2, "the largest number of holders")


@check("permits", needs={"permit"})
async def check_differing_limits_are_refused(world: World) -> None:
    """While a semaphore is in use another limit is refused; once it is free it is accepted."""
    name = world.name()
    lease = await world(world.locks.semaphore(name, 2).acquire, timeout=5)
    other = world.client().semaphore(name, 3)
    await fails(ConfigurationError, world(other.acquire, timeout=2), "acquire with another limit")
    await fails(ConfigurationError, world(other.try_acquire), "try_acquire with another limit")
    same(await world(lease.verify), True, "verify() of the holder")
    await world(lease.release)
    await world.free(name)
    lease = await world(other.acquire, timeout=5)
    await world(lease.release)


@check("permits", needs={"permit", "fifo"})
async def check_permits_go_one_by_one(world: World) -> None:
    """Each permit that is freed lets in one waiter, in order."""
    name = world.name()
    semaphore = world.locks.semaphore(name, 2)
    leases = [await world(semaphore.acquire, timeout=5) for _ in range(2)]
    calls = []
    for _ in range(3):
        calls.append(world.actor().start(semaphore.acquire, timeout=30))
        await world.queued(name, len(calls))
    for number, call in enumerate(calls):
        await world(leases.pop(0).release)
        leases.append(await quick(call, HANGING, f"waiter {number}"))
        for later in calls[number + 1 :]:
            await waits(later, "a waiter beyond the limit")
    for lease in leases:
        await world(lease.release)


@check("permits", needs={"permit"})
async def check_crashed_permit_comes_back(world: World) -> None:
    """A permit whose holder stopped renewing is available again, though the others renew."""
    ttl = world.kept
    name = world.name()
    semaphore = world.locks.semaphore(name, 2, ttl=ttl)
    client, faults = world.faulty_client()
    crashed = await world(client.semaphore(name, 2, ttl=ttl).acquire, timeout=5)
    kept = await world(semaphore.acquire, timeout=5)
    faults.cut()
    within = world.gone(ttl)
    lease = await quick(world(semaphore.acquire, timeout=within), within, "the permit of the dead")
    same(crashed.is_held(), False, "is_held() of the one that was cut off")
    same(kept.is_held(), True, "is_held() of the one that renews")
    await world(lease.release)
    await world(kept.release)


@check("permits", needs={"shared", "permit", "fifo"})
async def check_all_modes_in_one_queue(world: World) -> None:
    """A lock, a semaphore and readers of one name exclude each other and stand in one queue."""
    name = world.name()
    locks = world.locks
    first = await world(locks.semaphore(name, 2).acquire, timeout=5)
    same(await world(locks.lock(name).try_acquire), None, "a lock's try beside a permit")
    same(await world(locks.rwlock(name).read().try_acquire), None, "a reader's try beside a permit")
    calls = []
    for lock in (locks.lock(name), locks.rwlock(name).read(), locks.semaphore(name, 2)):
        calls.append(world.actor().start(lock.acquire, timeout=30))
        await world.queued(name, len(calls))
    lease = first
    for call, mode in zip(calls, ("exclusive", "shared", "permit"), strict=True):
        await waits(call, f"the waiter in mode {mode}")
        await world(lease.release)
        lease = await quick(call, HANGING, f"the waiter in mode {mode}")
        same(lease.mode, mode, "lease.mode")
    await world(lease.release)
