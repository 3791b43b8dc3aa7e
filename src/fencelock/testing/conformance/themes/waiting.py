"""Waiting: one deadline covers the whole call, and a turn that has come is noticed."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fencelock.errors import AcquireTimeout, FencelockError
from fencelock.testing.conformance.actors import inside, io, nap
from fencelock.testing.conformance.expect import HANGING, between, fails, quick, same, that, took
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World


async def _expect_timeout(world: World, lock: Any, timeout: float) -> AcquireTimeout:
    started = time.monotonic()
    error = await fails(AcquireTimeout, world(lock.acquire, timeout=timeout), f"acquire(timeout={timeout})")
    seconds = time.monotonic() - started
    took(timeout - 0.02, seconds, timeout + world.slack, f"the time that timeout={timeout} took")
    return error


async def _time_out(world: World, timeout: float) -> None:
    name = world.name()
    holder = await world(world.client().lock(name).acquire)
    await _expect_timeout(world, world.locks.lock(name), timeout)
    that(holder.is_held(), "the holder lost its lease to someone who gave up")
    await world(holder.release)


@check("timeouts", timing=True, bug="a timeout of 0 is ignored (pals, pottery)")
async def check_timeout_zero_tries_once(world: World) -> None:
    """`timeout=0` takes a free lock, and gives up on a held one at once."""
    name = world.name()
    lock = world.locks.lock(name)
    lease = await world(lock.acquire, timeout=0)
    await _expect_timeout(world, lock, 0)
    await world(lease.release)
    lease = await world(lock.acquire, timeout=0)
    await world(lease.release)


@check("timeouts", timing=True, bug="timeout=0.5 blocks for ever (python-redis-lock)")
async def check_timeout_of_half_a_second_is_honoured(world: World) -> None:
    """A fraction of a second is a fraction of a second."""
    await _time_out(world, 0.5)


@check("timeouts", timing=True, bug="timeout=1 takes 4.2 s (kazoo)")
async def check_timeout_of_a_second_is_honoured(world: World) -> None:
    """One second is one second."""
    await _time_out(world, 1.0)


@check("timeouts", timing=True)
async def check_the_timeout_of_the_lock_is_the_default(world: World) -> None:
    """`lock(timeout=…)` holds for `acquire()`, and `acquire(timeout=…)` overrides it."""
    name = world.name()
    holder = await world(world.client().lock(name).acquire)
    lock = world.locks.lock(name, timeout=world.brief)
    error = await fails(AcquireTimeout, world(lock.acquire), "acquire() with the lock's timeout")
    took(world.brief - 0.02, error.waited, world.brief + world.slack, "waited")
    await _expect_timeout(world, lock, 0)
    waiting = world.actor().start(lock.acquire, timeout=None)
    await asyncio.sleep(2 * world.brief)
    that(not waiting.done(), "timeout=None did not override the lock's timeout")
    await world(holder.release)
    lease = await quick(waiting, 5, "the acquire without a timeout")
    await world(lease.release)


@check("timeouts")
async def check_no_timeout_waits_until_its_turn_comes(world: World) -> None:
    """`timeout=None` waits as long as it takes."""
    name = world.name()
    holder = await world(world.client().lock(name).acquire)
    waiting = world.actor().start(world.locks.lock(name).acquire)
    await asyncio.sleep(2.5)
    that(not waiting.done(), "acquire without a timeout returned while the lock was held")
    await world(holder.release)
    lease = await quick(waiting, HANGING, "the waiter's turn")
    that(lease.is_held(), "the lease is over as it begins")
    await world(lease.release)


@check(
    "timeouts",
    needs={"fifo", "inspect"},
    bug="each wake-up restarts the clock, so timeout=2 takes 8 s (python-redis-lock)",
    timing=True,
)
async def check_one_deadline_covers_many_wake_ups(world: World) -> None:
    """A waiter before whom one after the other comes and goes gives up on time all the same."""
    name = world.name()
    lock = world.client().lock(name)

    async def stay_a_while() -> None:
        async with inside(lock):
            await nap(0.25)

    holder = await world(lock.acquire)
    crowd = [world.actor().start(stay_a_while) for _ in range(12)]
    await world.queued(name, 12)
    waiting = asyncio.ensure_future(_expect_timeout(world, world.locks.lock(name), 1.5))
    await world.queued(name, 13)
    await asyncio.gather(holder_releases(world, holder), waiting)
    await asyncio.gather(*crowd)


async def holder_releases(world: World, holder: Any) -> None:
    """Release on an actor of its own: the world's waits."""
    await world.actor()(holder.release)


@check("timeouts", bug="the timeout is taken for the lease's ttl (tooz on etcd3)")
async def check_the_timeout_is_not_the_ttl(world: World) -> None:
    """A lease acquired with a short timeout lives as long as its ttl says."""
    name = world.name()
    ttl = world.ttl(5)
    lease = await world(world.locks.lock(name, ttl=ttl, renew=False).acquire, timeout=world.brief)
    between(ttl - world.slack - 0.5, lease.remaining(), ttl, "remaining")
    await asyncio.sleep(3 * world.brief)
    that(lease.is_held() and await world(lease.verify), "the lease ended with the timeout")
    await world.taken(name)
    await world(lease.release)


@check("errors", timing=True)
async def check_acquire_timeout_says_who_holds(world: World) -> None:
    """`AcquireTimeout` is a `TimeoutError` with name, waited and, where it is known, the holder."""
    name = world.name()
    holder = await world(world.client(client_name="the-holder").lock(name).acquire)
    error = await fails(AcquireTimeout, world(world.locks.lock(name).acquire, timeout=world.brief))
    that(isinstance(error, TimeoutError), "AcquireTimeout is not a TimeoutError")
    that(isinstance(error, FencelockError), "AcquireTimeout is not a FencelockError")
    same(error.name, name, "AcquireTimeout.name")
    took(world.brief - 0.02, error.waited, world.brief + world.slack, "AcquireTimeout.waited")
    if error.holder is not None:
        same(error.holder.owner, holder.owner, "AcquireTimeout.holder.owner")
        same(error.holder.client, "the-holder", "AcquireTimeout.holder.client")
        same(error.holder.token, holder.token, "AcquireTimeout.holder.token")
    await world(holder.release)


@check("timeouts", timing=True)
async def check_try_acquire_never_waits(world: World) -> None:
    """`try_acquire` gives a lease or `None`, at once, whatever the lock's timeout."""
    name = world.name()
    lock = world.locks.lock(name, timeout=20)
    lease = await world(lock.try_acquire)
    that(lease is not None and lease.is_held(), "try_acquire of a free lock gave no lease")
    started = time.monotonic()
    for _ in range(5):
        same(await world(lock.try_acquire), None, "try_acquire of a held lock")
    took(0, time.monotonic() - started, 5 * world.slack, "the time of five tries")
    await world(lease.release)


@check(
    "residue", needs={"inspect"}, bug="a lease leaked for each failed attempt (tooz, etcd3gw, etcd3, aetcd)"
)
async def check_failed_attempts_leave_nothing(world: World) -> None:
    """A hundred tries and fifty timeouts leave one holder and no waiter."""
    name = world.name()
    holder = await world(world.client().lock(name).acquire)
    lock = world.locks.lock(name)
    for _ in range(100):
        same(await world(lock.try_acquire), None, "try_acquire of a held lock")
    await world.settled(world.locks)
    same((await world.state(name)).waiters, (), "the waiters after a hundred tries")
    crowd = [world.actor() for _ in range(10)]  # more than a pool has connections

    async def give_up() -> None:
        for _ in range(5):
            try:
                await io(lock.acquire(timeout=world.brief))
            except AcquireTimeout:
                continue
            raise AssertionError("acquired a lock that is held")

    await asyncio.gather(*(actor(give_up) for actor in crowd))
    await world.settled(world.locks)
    state = await world.state(name)
    same([entry.owner for entry in state.holders], [holder.owner], "the holders")
    same(state.waiters, (), "the waiters")
    await world(holder.release)
    await world.free(name)


@check(
    "exclusion", bug="the `with` body runs although the lock was not acquired (etcd3gw, aetcd, redlock-ng)"
)
async def check_the_body_does_not_run_without_the_lock(world: World) -> None:
    """A `with` block whose lock is not acquired in time raises, and its body does not run."""
    name = world.name()
    holder = await world(world.client().lock(name).acquire)
    ran = []

    async def body() -> None:
        async with inside(world.locks.lock(name, timeout=world.brief)):
            ran.append(1)

    await fails(AcquireTimeout, world(body), "the with block")
    same(ran, [], "what the body did")
    await world(holder.release)


@check("wakeup", timing=True)
async def check_a_waiter_is_woken_by_a_release(world: World) -> None:
    """A release is noticed at once where the backend pushes, and soon where it polls."""
    name = world.name()
    locks = [world.locks.lock(name), world.client().lock(name)]
    waits = []
    holder = await world(locks[0].acquire)
    for turn in range(6):
        waiting = world.actor().start(locks[(turn + 1) % 2].acquire, timeout=20)
        await world.queued(name, 1)
        released = time.monotonic()
        await world(holder.release)
        holder = await waiting
        waits.append(time.monotonic() - released)
    await world(holder.release)
    bound = 0.3 if world.guarantees.wakeup == "push" else 2.0
    took(0, sorted(waits)[2], bound, "the typical time from release to grant")


@check("wakeup")
async def check_no_wake_up_is_lost_in_a_crowd(world: World) -> None:
    """Thirty waiters of several clients are all served, one after the other."""
    name = world.name()
    locks = [world.client().lock(name) for _ in range(3)]
    served = []

    async def once(lock: Any) -> None:
        async with inside(lock) as lease:
            served.append(lease.token)

    holder = await world(locks[0].acquire)
    crowd = [world.actor().start(once, locks[number % 3]) for number in range(30)]
    await world.queued(name, 30)
    await world(holder.release)
    await asyncio.gather(*crowd)
    same(len(set(served)), 30, "the number of grants")


@check("wakeup", timing=True)
async def check_an_expired_holder_is_noticed_without_a_push(world: World) -> None:
    """A holder that dies tells nobody: the bounded poll finds out all the same."""
    name = world.name()
    ttl = world.ttl(1.0)
    mortal = world.mortal()
    await mortal.acquire(name, ttl=ttl)
    waiting = world.actor().start(world.locks.lock(name).acquire)
    await world.queued(name, 1)
    mortal.die()
    lease = await quick(waiting, world.gone(ttl), "the lock of a dead holder")
    await world(lease.release)
