"""Interruption: cancelling, Ctrl-C, closing and forking leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

from fencelock.errors import AcquireCancelled, ConfigurationError, FencelockError
from fencelock.testing.conformance.actors import inside, io, nap
from fencelock.testing.conformance.expect import HANGING, fails, quick, same, that
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World

LONG = 30.0
"""A ttl in which nothing expires that somebody should have released."""
ANYWHERE = 60.0
"""Seconds for a thousand interrupts: many cost a connection."""


async def ctrl_c(world: World, what: str) -> Any:
    """Run a script that takes a lock and presses Ctrl-C half a second later."""
    return await world.script(what, name=world.name(), ttl=world.ttl(30), after=0.5, limit=15.0)


@check("interruption", needs={"inspect"}, processes="one")
async def check_ctrl_c_while_waiting(world: World) -> None:
    """Ctrl-C ends a wait at once and leaves no waiter."""
    report = await ctrl_c(world, "interrupt_wait")
    that(report["raised"] in {"KeyboardInterrupt", "CancelledError"}, f"the wait raised {report['raised']!r}")
    same(report["waiters"], 0, "the number of waiters afterwards")
    same(report["free"], True, "the lock is free after its holder's release")


@check("interruption", needs={"inspect"}, processes="one")
async def check_ctrl_c_in_a_block(world: World) -> None:
    """Ctrl-C inside a block releases the lock and travels on."""
    report = await ctrl_c(world, "interrupt_body")
    that(
        report["raised"] in {"KeyboardInterrupt", "CancelledError"}, f"the block raised {report['raised']!r}"
    )
    same(report["free"], True, "the lock is free afterwards")


@check(
    "interruption",
    needs={"list"},
    processes="one",
    limit=ANYWHERE + 20.0,
    bug="redis-py asyncio: cancelling acquire() leaves keys behind",
)
async def check_interrupted_at_any_point(world: World) -> None:
    """An interrupt (Ctrl-C, or cancelling) at any point of `with lock` leaves no holder and no waiter."""
    if world.flavour == "asyncio":
        await cancelled_anywhere(world, held=False)
        await cancelled_anywhere(world, held=True)
        return
    report = await world.script(
        "interrupt_everywhere", prefix=world.name("/"), ttl=world.ttl(LONG), within=8.0, limit=ANYWHERE
    )
    that(report["places"] > 20, f"only {report['places']} places were interrupted")
    same(report["left"], {}, "what is left, by the place that was interrupted")


async def cancelled_anywhere(world: World, *, held: bool) -> None:
    """Cancel an acquire after more and more steps of the loop; nothing may be left of it."""
    client = world.client()
    name = world.name()
    holder = await client.lock(name).acquire(timeout=5) if held else None
    for steps in range(40):
        task = asyncio.ensure_future(client.lock(name, ttl=world.ttl(30)).acquire(timeout=20))
        for _ in range(steps):
            await asyncio.sleep(0)
        if steps % 4 == 3:  # backends that work on threads need time, not steps
            await asyncio.sleep(0.001 * steps)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            lease = await task
            await lease.release()
        del task
    if holder is not None:
        await world.queued(name, 0)
        same(await holder.verify(), True, "verify() of the holder")
        same(await holder.release(), True, "release() of the holder")
    await world.free(name)
    lease = await quick(client.lock(name).acquire(timeout=5), 3.0, "acquire after cancellations")
    await lease.release()


@check("interruption")
async def check_body_error_releases(world: World) -> None:
    """A block whose body raises releases the lock, and the error travels on as it is."""
    name = world.name()
    mistake = LookupError("from the body")

    async def work() -> None:
        async with inside(world.locks.lock(name)):
            raise mistake

    error = await fails(LookupError, world(work), "the block")
    that(error is mistake, "another error came out of the block")
    await world.free(name)


@check("fork", processes="one", limit=60.0)
async def check_fork(world: World) -> None:
    """A forked child does not hold, renew or release its parent's lease, and can take its own."""
    ttl = world.kept
    held, other = world.name("held"), world.name("other")
    report = await world.script("fork", held=held, other=other, ttl=ttl, limit=15 + 6 * ttl)
    child = report["child"]
    that("failed" not in child, f"the child failed: {child}")
    same(child["held"], False, "is_held() of the parent's lease in the child")
    same(child["remaining"], 0.0, "remaining() of the parent's lease in the child")
    that(
        child.get("check") in {"LeaseLost", "NotHeld"}, f"check() in the child raised {child.get('check')!r}"
    )
    same(child["released"], False, "release() of the parent's lease in the child")
    same(child["own"]["held"], True, "the child's own lease is renewed")
    that(child["own"]["owner"] != report["owner"], "parent and child share an owner")
    same(report["at once"], {"held": True, "verified": True}, "the parent's lease after the child ended")
    same(report["later"], {"held": True, "verified": True}, "the parent's lease two ttls later")
    if world.guarantees.scope != "process":  # else the child has a world of its own
        that(report["token"] > child["own"]["token"], "the parent's later grant has the smaller token")
    same(report["released"], True, "release() in the parent")


# Closing --------------------------------------------------------------------------------


@check("clients")
async def check_close_ends_a_wait(world: World) -> None:
    """Closing a client ends the waits of its other threads or tasks with an error, and leaves nothing."""
    name = world.name()
    holder = await world(world.locks.lock(name).acquire, timeout=5)
    client = world.client()
    call = world.actor().start(client.lock(name).acquire, timeout=60)
    await world.queued(name, 1)
    await quick(world.actor()(client.close), HANGING, "close()")
    await fails(FencelockError, quick(call, HANGING, "the wait of a closed client"), "the wait")
    await world.queued(name, 0)
    same(await world(holder.release), True, "release() of the holder")
    await world.free(name)


@check("clients")
async def check_close_releases_what_is_held(world: World) -> None:
    """Closing a client releases what it holds, long before any ttl, and its leases say so."""
    names = [world.name() for _ in range(5)]
    client = world.client()
    leases = [await world(client.lock(name, ttl=world.ttl(30)).acquire, timeout=5) for name in names]
    await quick(world(client.close), HANGING, "close()")
    for name, lease in zip(names, leases, strict=True):
        same(lease.is_held(), False, "is_held() after close")
        await world.free(name)


@check("clients")
async def check_use_after_close(world: World) -> None:
    """A closed client refuses to work, with ConfigurationError; closing it again is fine."""
    client = world.client()
    lock = client.lock(world.name())
    lease = await world(lock.acquire, timeout=5)
    await world(client.close)
    await world(client.close)
    same(await world(lease.release), False, "release() after close")
    await fails(ConfigurationError, world(lock.acquire, timeout=1), "acquire after close")
    await fails(ConfigurationError, world(lock.try_acquire), "try_acquire after close")
    if "inspect" in world.capabilities:
        await fails(ConfigurationError, world(client.inspect, world.name()), "inspect after close")


@check("clients", timing=True)
async def check_closing_ends_a_wait(world: World) -> None:
    """Closing a client ends its waits at once, and they leave the queue."""
    name = world.name()
    lease = await world(world.locks.lock(name, ttl=world.ttl(30)).acquire)
    client = world.client()
    calls = [world.actor().start(client.lock(name).acquire, timeout=60) for _ in range(3)]
    await world.queued(name, 3)
    await quick(world(client.close), 1.0 + world.slack, "close() while others wait")
    for call in calls:
        error = await fails(AcquireCancelled, quick(call, 1.0 + world.slack, "acquire"), "acquire")
        same(error.name, name, "the name that the error carries")
    if "inspect" in world.capabilities:
        same(len((await world.state(name)).waiters), 0, "how many still wait")
    same(await world(lease.release), True, "release")


@check("clients")
async def check_client_that_was_never_used(world: World) -> None:
    """A client that was never used can be closed."""
    client = world.client()
    await quick(world(client.close), HANGING, "close()")


@check("clients")
async def check_one_client_for_many(world: World) -> None:
    """One client and one Lock serve many threads, or tasks; an AsyncClient refuses another loop."""
    client = world.client()
    name = world.name()
    lock = client.lock(name)
    state = {"value": 0, "inside": 0, "most": 0}

    async def work() -> None:
        for _ in range(5):
            async with inside(lock):
                state["inside"] += 1
                state["most"] = max(state["most"], state["inside"])
                value = state["value"]
                await nap(0.001)
                state["value"] = value + 1
                state["inside"] -= 1

    for call in [world.actor().start(work) for _ in range(8)]:
        await quick(call, 20.0, "one of many actors")
    same(state, {"value": 40, "inside": 0, "most": 1}, "what eight actors did in five rounds each")
    if world.flavour == "asyncio":
        await fails(ConfigurationError, asyncio.to_thread(elsewhere, lock), "acquire on another loop")
    await world.free(name)


def elsewhere(lock: Any) -> None:
    """Use a lock on an event loop of its own, on this thread."""

    async def use() -> None:
        await lock.acquire(timeout=2)

    that(threading.current_thread() is not threading.main_thread(), "this is not another thread")
    asyncio.run(use())


@check("clients")
async def check_leases_of_other_actors(world: World) -> None:
    """A lease may be released by another thread, or task, than the one that acquired it."""
    name = world.name()
    lease = await world.actor()(world.locks.lock(name).acquire, timeout=5)

    async def give_back() -> bool:
        lease.check()
        return bool(await io(lease.release()))

    same(await world.actor()(give_back), True, "release() by another")
    await world.free(name)
