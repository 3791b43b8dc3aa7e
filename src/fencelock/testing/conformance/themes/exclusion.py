"""Exclusion and identity: a lock has one holder, and each acquisition is somebody of its own."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fencelock.errors import AcquireTimeout, ConfigurationError, NotHeld
from fencelock.testing.conformance.actors import inside, io, nap
from fencelock.testing.conformance.expect import fails, quick, same, that, took
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World

__all__: list[str] = []

ACTORS = 8
ROUNDS = 25
OWNER_DIGITS = 32


async def count(world: World, locks: list[Any]) -> None:
    """Fail unless no increment is lost when each lock's actor adds to one number, step by step."""
    number = 0

    async def work(lock: Any) -> None:
        nonlocal number
        for _ in range(ROUNDS):
            async with inside(lock):
                value = number
                await nap(0.0005)
                number = value + 1

    await asyncio.gather(*(world.actor()(work, lock) for lock in locks))
    same(number, ROUNDS * len(locks), "the number after all increments")


# One holder -------------------------------------------------------------------------------------


@check("exclusion")
async def check_lock_has_one_holder(world: World) -> None:
    """While a lock is held nobody gets it, by the same client or by another; afterwards the next does."""
    name = world.name()
    others = [world.locks.lock(name), world.client().lock(name)]
    lease = await world(world.locks.lock(name).acquire, timeout=5)
    that(lease.is_held() and await world(lease.verify), "a lease that was just granted is not held")
    for lock in others:
        that(await world.actor()(lock.try_acquire) is None, "try_acquire: a second holder")
        await fails(AcquireTimeout, world.actor()(lock.acquire, timeout=world.brief), "acquire")
    that(await world(lease.release), "release() of a lease that is held said no")
    that(not lease.is_held(), "is_held() after the release")
    await fails(NotHeld, world(lease.check), "check() after the release")
    for lock in others:
        following = await world(lock.acquire, timeout=5)
        await world(following.release)


@check("exclusion")
async def check_no_increment_is_lost(world: World) -> None:
    """Actors of clients of their own add to one number in two steps, under the lock: all of it arrives."""
    name = world.name()
    clients = [world.client() for _ in range(4)]
    await count(world, [clients[n % 4].lock(name, timeout=25) for n in range(ACTORS)])


@check("exclusion", bug="redis-py asyncio: tasks share one thread-local owner")
async def check_one_lock_object_excludes_its_users(world: World) -> None:
    """Actors that share one `Lock` object exclude each other as strangers do."""
    await count(world, [world.locks.lock(world.name(), timeout=25)] * ACTORS)


@check("exclusion", needs={"shared"})
async def check_writers_exclude_each_other(world: World) -> None:
    """Writers of a read-write lock and holders of the plain lock of that name are exclusive."""
    name = world.name()
    write = world.locks.rwlock(name, timeout=25).write()
    await count(world, [write, world.client().lock(name, timeout=25)] * 3)


@check("exclusion", bug="etcd3gw, aetcd, redlock-ng: the with body runs although the lock was not acquired")
async def check_body_does_not_run_without_the_lock(world: World) -> None:
    """A block whose lock is not acquired in time raises, and nothing in it runs."""
    name, ran = world.name(), []
    lease = await world(world.client().lock(name).acquire, timeout=5)

    async def work(timeout: float) -> None:
        async with inside(world.locks.lock(name, timeout=timeout)) as mine:
            ran.append(mine)

    for timeout in (0, 0.2):
        error = await fails(AcquireTimeout, world(work, timeout), "a block whose lock is held")
        same(error.name, name, "AcquireTimeout.name")
    same(ran, [], "what ran")
    that(await world(lease.verify), "blocks that were not entered ended the holder's lease")
    await world(lease.release)


@check("exclusion")
async def check_block_releases_however_it_ends(world: World) -> None:
    """A block gives the lock back after its end, a return and an exception, which comes out unchanged."""
    name = world.name()
    lock = world.locks.lock(name, timeout=5)
    boom = RuntimeError("boom")

    async def work(how: str) -> str:
        async with inside(lock) as lease:
            that(lease.is_held(), "the lease is not held inside its block")
            if how == "raise":
                raise boom
            if how == "return":
                return "early"
            if how == "release":
                await io(lease.release())
        return "late"

    for how, result in (("end", "late"), ("return", "early"), ("release", "late")):
        same(await world(work, how), result, "what came out of the block")
        await world.free(name)
    error = await fails(RuntimeError, world(work, "raise"), "a block that raises")
    that(error is boom, "another exception came out of the block")
    await world.free(name)


@check("exclusion")
async def check_lock_is_a_decorator(world: World) -> None:
    """A decorated function runs under the lock, every time; values and exceptions pass through."""
    name = world.name()
    seen: list[Any] = []
    boom = KeyError("boom")

    def body(first: int, *, second: int) -> int:
        seen.append(busy)
        if second < 0:
            raise boom
        return first + second

    async def coroutine(first: int, *, second: int) -> int:
        """Add."""
        that(await io(world.locks.lock(name).try_acquire()) is None, "the lock is free inside")
        return body(first, second=second)

    def plain(first: int, *, second: int) -> int:
        """Add."""
        that(world.locks.lock(name).try_acquire() is None, "the lock is free inside")
        return body(first, second=second)

    busy = False
    function: Any = plain if world.flavour == "blocking" else coroutine
    decorated = world.locks.lock(name, timeout=world.brief)(function)
    same((decorated.__name__, decorated.__doc__), (function.__name__, "Add."), "name and docstring")
    for number in range(3):
        same(await world(decorated, number, second=1), number + 1, "what the function returned")
    error = await fails(KeyError, world(decorated, 1, second=-1), "a function that raises")
    that(error is boom, "another exception came out")
    await world.free(name)
    lease, busy = await world(world.client().lock(name).acquire, timeout=5), True
    await fails(AcquireTimeout, world(decorated, 1, second=1), "a call while the lock is held")
    same(seen, [False] * 4, "the calls of the function")
    await world(lease.release)


@check("exclusion")
async def check_decorator_refuses_the_other_flavour(world: World) -> None:
    """Decorating a coroutine function with a blocking lock, or the other way round, is refused at once."""

    async def coroutine() -> None: ...

    def plain() -> None: ...

    lock = world.locks.lock(world.name())

    async def decorate(function: Any) -> Any:
        return lock(function)

    wrong = coroutine if world.flavour == "blocking" else plain
    await fails(ConfigurationError, world(decorate, wrong), "decorating")


# Identity ---------------------------------------------------------------------------------------


@check("identity")
async def check_owner_is_random_for_each_acquisition(world: World) -> None:
    """Every acquisition has an owner of 32 hexadecimal digits that no other has."""
    lock = world.locks.lock(world.name())
    owners = []
    for number in range(20):
        actor = world if number % 2 else world.actor()
        lease = await actor(lock.acquire, timeout=5)
        owners.append(lease.owner)
        await actor(lease.release)
    for owner in owners:
        that(isinstance(owner, str) and len(owner) == OWNER_DIGITS, f"{owner!r} has not 32 digits")
        that(set(owner) <= set("0123456789abcdef"), f"{owner!r} is not hexadecimal")
    same(len(set(owners)), 20, "the number of different owners")
    alike = [place for place in range(OWNER_DIGITS) if len({owner[place] for owner in owners}) == 1]
    that(len(alike) <= OWNER_DIGITS // 8, f"the owners have much in common: {owners[:3]}")


@check("identity", bug="pottery: a second acquire(blocking=False) on a held object destroys its ownership")
async def check_second_try_does_not_disturb_the_first(world: World) -> None:
    """Trying again on the object whose lock is held gives `None`, and the holder keeps its lease."""
    name = world.name()
    lock = world.locks.lock(name)
    lease = await world(lock.acquire, timeout=5)
    owner, token = lease.owner, lease.token
    for actor in (world, world.actor()):
        that(await actor(lock.try_acquire) is None, "the lock was granted twice")
        await fails(AcquireTimeout, actor(lock.acquire, timeout=world.brief), "acquire")
    same((lease.owner, lease.token), (owner, token), "owner and token")
    that(lease.is_held() and await world(lease.verify), "the lease is gone")
    await world.taken(name)
    that(await world(lease.release), "the lease was lost before its release")
    await world.free(name)


@check("identity", bug="redis-py asyncio: tasks share one owner, a late release frees the successor's lock")
async def check_late_release_frees_nobody_else(world: World) -> None:
    """Releasing a lease that has expired, through a shared `Lock`, leaves the successor's alone."""
    name, ttl = world.name(), world.ttl(0.5)
    lock = world.locks.lock(name, ttl=ttl, renew=False)
    first, second = world.actor(), world.actor()
    old = await first(lock.acquire, timeout=5)
    new = await second(world.locks.lock(name, ttl=world.ttl(30)).acquire, timeout=world.gone(ttl))
    that(old.owner != new.owner, "two acquisitions have one owner")
    that(not old.is_held(), "the old lease is held though it has expired")
    that(not await first(old.release), "the late release said that the lock was held")
    that(not await first(old.release), "the second late release said that the lock was held")
    that(new.is_held() and await second(new.verify), "the late release freed the successor's lock")
    await world.taken(name)
    that(await second(new.release), "the successor's lease was lost")


@check("identity", bug="redis-py asyncio: tasks share one thread-local owner, a late release frees another's")
async def check_blocks_of_a_shared_lock_find_their_own_lease(world: World) -> None:
    """Actors inside and outside of blocks of one `Lock` object each release their own lease."""
    lock = world.locks.lock(world.name(), timeout=20)
    owners: list[str] = []

    async def work() -> None:
        for _ in range(5):
            async with inside(lock) as lease:
                owners.append(lease.owner)
                await nap(0.001)
                that(lease.is_held(), "somebody else released this lease")
            that(not lease.is_held(), "the block left its lease held")

    await asyncio.gather(*(world.actor()(work) for _ in range(6)))
    same(len(set(owners)), 30, "the number of owners")


@check("identity")
async def check_release_counts_once(world: World) -> None:
    """Releasing twice is no error, says no the second time, and does not touch the next holder."""
    lock = world.locks.lock(world.name())
    first = await world(lock.acquire, timeout=5)
    that(await world(first.release), "the first release said no")
    second = await world.actor()(lock.acquire, timeout=5)
    for actor in (world, world.actor()):
        that(not await actor(first.release), "releasing again said yes")
    that(second.is_held() and await world(second.verify), "releasing again freed the next holder's lock")
    that(await world.actor()(second.release), "a lease released by another actor was not held")


@check("identity", needs={"permit"})
async def check_one_actor_may_hold_several_permits(world: World) -> None:
    """Identity is by acquisition: one actor takes all permits of a semaphore, each a lease of its own."""
    lock = world.locks.semaphore(world.name(), 3)
    leases = [await world(lock.try_acquire) for _ in range(3)]
    that(None not in leases, "one actor did not get all permits")
    same(await world(lock.try_acquire), None, "a fourth permit of three")
    same(len({lease.owner for lease in leases}), 3, "the number of owners")
    that(await world(leases[1].release), "the lease was not held")
    that(leases[0].is_held() and await world(leases[2].verify), "one release ended several leases")
    again = await world(lock.acquire, timeout=5)
    for lease in (leases[0], leases[2], again):
        await world(lease.release)


# Re-entry ---------------------------------------------------------------------------------------


@check("identity", timing=True)
async def check_locks_are_not_reentrant_by_default(world: World) -> None:
    """A holder that acquires its lock again waits for itself, and its timeout ends that."""
    name = world.name()

    async def work() -> float:
        async with inside(world.locks.lock(name, timeout=5)) as lease:
            started = time.monotonic()
            await fails(AcquireTimeout, acquire_again(0.3), "acquire inside the block")
            that(lease.is_held(), "the holder's lease is gone")
            return time.monotonic() - started

    async def acquire_again(timeout: float) -> Any:
        return await io(world.locks.lock(name).acquire(timeout=timeout))

    took(0.29, await world(work), 0.3 + world.slack, "a timeout of 0.3")
    await world.free(name)


@check("identity")
async def check_reentrant_locks_can_be_entered_again(world: World) -> None:
    """A reentrant lock is free for its own thread or task, until each entry was released."""
    name = world.name()
    lock = world.locks.lock(name, reentrant=True, timeout=1)

    async def work() -> None:
        async with inside(lock):
            async with inside(lock), inside(world.locks.lock(name, reentrant=True, timeout=1)):
                pass
            again = await io(lock.try_acquire())
            that(again is not None, "try_acquire of the own lock")
            that(await io(again.release()), "the release of an entry said no")
            that(not await io(again.release()), "an entry was released twice")

    await world(work)
    await world.free(name)


@check("identity")
async def check_reentry_is_for_the_same_actor_only(world: World) -> None:
    """Another thread or task, and another client, does not enter a reentrant lock that is held."""
    name = world.name()
    lock = world.locks.lock(name, reentrant=True)
    holder = world.actor()
    lease = await holder(lock.acquire, timeout=5)
    that(await world.actor()(lock.try_acquire) is None, "another actor entered")
    stranger = world.client().lock(name, reentrant=True)
    that(await holder(stranger.try_acquire) is None, "another client entered")
    call = world.actor().start(lock.acquire, timeout=10)
    await world.queued(name, 1)
    again = await quick(holder(lock.acquire, timeout=5), 2 + world.slack, "re-entry while another waits")
    await holder(lease.release)
    that(not call.done(), "the waiter got a lock that is still entered once")
    await holder(again.release)
    mine = await quick(call, 3 + world.slack, "the turn of the waiter")
    await world(mine.release)


@check("identity")
async def check_entries_are_released_in_any_order(world: World) -> None:
    """The lock is free when the last of its entries was released, whichever that is."""
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        name = world.name()
        lock = world.locks.lock(name, reentrant=True)
        leases = [await world(lock.acquire, timeout=5) for _ in range(3)]
        for place in order:
            that(leases[place].is_held(), f"entry {place} ended before its release")
            await world.taken(name)
            that(await world(leases[place].release), f"the release of entry {place} said no")
            that(not leases[place].is_held(), f"entry {place} is held after its release")
        await world.free(name)
