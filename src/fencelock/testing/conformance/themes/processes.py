"""Other processes: exclusion, tokens, order and loss across them, and their sudden death."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from fencelock.errors import BackendUnavailable
from fencelock.testing import faults
from fencelock.testing.conformance.expect import HANGING, fails, quick, same, that
from fencelock.testing.conformance.peers import PeerError
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World


@check("exclusion", processes="many")
async def check_processes_exclude_each_other(world: World) -> None:
    """What one process holds another does not get, in either direction."""
    name = world.name()
    one, two = world.peer(), world.peer()
    terms = {"name": name, "ttl": world.ttl(30)}
    await one("acquire", **terms, timeout=5)
    error = await fails(PeerError, two("acquire", **terms, timeout=3 * world.brief), "the other")
    if error.kind == BackendUnavailable.__name__:
        raise error
    same(error.kind, "AcquireTimeout", "the error in the other process")
    same(await world(world.locks.lock(name).try_acquire), None, "a try in this process")
    waiting = two.start("acquire", **terms, timeout=20)
    await world.queued(name, 1)
    same(await one("release", name=name), True, "release() in the first process")
    await quick(waiting, HANGING, "acquire in the second process")
    await world.taken(name)
    same(await two("release", name=name), True, "release() in the second process")
    await world.free(name)


@check("exclusion", processes="many", limit=60.0)
async def check_processes_lose_no_update(world: World) -> None:
    """Two processes that count in one file lose no update, and no token is given twice."""
    name = world.name()
    rounds = 40
    with tempfile.TemporaryDirectory(prefix="fencelock-") as folder:
        file = Path(folder) / "number"
        file.write_text("0")
        calls = [
            world.peer().start("count", name=name, path=str(file), rounds=rounds, ttl=world.ttl(30))
            for _ in range(2)
        ]
        tokens = [await quick(call, 45.0, "counting") for call in calls]
        same(int(file.read_text()), 2 * rounds, "the number in the file")
    for own in tokens:
        same(own, sorted(own), "the tokens of one process, which rise")
    same(len({*tokens[0], *tokens[1]}), 2 * rounds, "the number of different tokens")


@check("tokens", processes="many")
async def check_tokens_rise_across_processes(world: World) -> None:
    """Tokens rise from process to process, also after the death of all that had one."""
    name = world.name()
    ttl = world.ttl(1.0)
    tokens = []
    for turn in range(2):
        peer = world.peer()
        tokens.append((await peer("acquire", name=name, ttl=ttl, timeout=world.gone(ttl)))["token"])
        if turn == 0:
            await peer("release", name=name)
        peer.kill()
    lease = await world(world.locks.lock(name).acquire, timeout=world.gone(ttl))
    tokens.append(lease.token)
    await world(lease.release)
    same(tokens, sorted(set(tokens)), "the tokens, which rise")


@check("loss", processes="many")
async def check_killed_holder(world: World) -> None:
    """The lock of a process that was killed is available again in time, with a larger token."""
    ttl = world.kept
    name = world.name()
    peer = world.peer()
    token = (await peer("acquire", name=name, ttl=ttl, timeout=5))["token"]
    waiting = world.actor().start(world.locks.lock(name).acquire, timeout=60)
    await world.queued(name, 1)
    that(not waiting.done(), "the lock was given to two")
    peer.kill()
    lease = await quick(waiting, world.gone(ttl), "acquire after the death of the holder")
    that(lease.token > token, f"token {lease.token} after {token}")
    await world(lease.release)


@check("residue", processes="many")
async def check_killed_holder_leaves_nothing(world: World) -> None:
    """Of a process that was killed while it held locks nothing is left after their ttl."""
    ttl = world.ttl(1.0)
    names = [world.name() for _ in range(5)]
    peer = world.peer()
    for name in names:
        await peer("acquire", name=name, ttl=ttl, timeout=5)
    peer.kill()
    deadline = time.monotonic() + world.gone(ttl)
    for name in names:
        await world.free(name, within=max(0.1, deadline - time.monotonic()))


@check(
    "fifo",
    processes="many",
    needs={"fifo"},
    bug="Redisson: dead waiters block everyone, live ones are evicted from the queue",
)
async def check_killed_waiter(world: World) -> None:
    """A waiter that was killed delays those behind it by a few seconds, never by its ttl."""
    name = world.name()
    holder = await world(world.locks.lock(name).acquire, timeout=5)
    peer = world.peer()
    peer.start("acquire", name=name, ttl=world.ttl(60), timeout=60)
    await world.queued(name, 1)
    waiting = world.actor().start(world.client().lock(name, ttl=world.ttl(60)).acquire, timeout=60)
    await world.queued(name, 2)
    peer.kill()
    await world(holder.release)
    lease = await quick(waiting, HANGING, "the waiter behind a dead one")  # its ttl is longer
    await world(lease.release)
    await world.free(name, within=5.0)


@check("fifo", processes="many", needs={"fifo"})
async def check_order_across_processes(world: World) -> None:
    """Waiters of different processes are served in the order in which they came."""
    name = world.name()
    holder = await world(world.locks.lock(name).acquire, timeout=5)
    peers = [world.peer() for _ in range(3)]
    calls = []
    for peer in peers:
        calls.append(peer.start("acquire", name=name, ttl=world.ttl(30), timeout=30))
        await world.queued(name, len(calls))
    await world(holder.release)
    tokens = []
    for number, (peer, call) in enumerate(zip(peers, calls, strict=True)):
        tokens.append((await quick(call, HANGING, f"waiter {number}"))["token"])
        that(not any(later.done() for later in calls[number + 1 :]), "somebody came before its turn")
        same(await peer("release", name=name), True, "release()")
    same(tokens, sorted(set(tokens)), "the tokens in the order of arrival")


@check("loss", processes="many", bug="kazoo: is_acquired stays true after the session was lost")
async def check_paused_past_the_ttl(world: World) -> None:
    """A process that was stopped for longer than its ttl knows on waking that it lost its lease."""
    ttl = world.kept
    name = world.name()
    peer = world.peer()
    token = (await peer("acquire", name=name, ttl=ttl, timeout=5))["token"]
    same((await peer("look", name=name))["held"], True, "is_held() before")
    await asyncio.to_thread(faults.pause, peer.pid)
    try:
        lease = await quick(
            world(world.locks.lock(name).acquire, timeout=60), world.gone(ttl), "acquire meanwhile"
        )
        await asyncio.sleep(0.2)
    finally:
        await asyncio.to_thread(faults.resume, peer.pid)
    that(lease.token > token, f"token {lease.token} after {token}")
    same(
        await peer("look", name=name),
        {"held": False, "remaining": 0.0, "check": "LeaseLost"},
        "what the lease says of itself on waking",
    )
    same(await peer("release", name=name), False, "release() on waking")
    same(await world(lease.verify), True, "verify() of the successor")
    await world(lease.release)


@check("loss", processes="many", needs={"force_release"})
async def check_loss_reaches_another_process(world: World) -> None:
    """A lock that is broken from another process ends the block that held it with LeaseLost."""
    ttl = world.kept
    name = world.name()
    peer = world.peer()
    # A thread cannot be interrupted: its block ends by itself, after the loss is known.
    stay = 30.0 if world.flavour == "asyncio" else ttl + 2.0
    block = peer.start("block", name=name, seconds=stay, ttl=ttl)
    deadline = time.monotonic() + 10.0
    while not await world(world.locks.force_release, name):
        that(time.monotonic() < deadline, "the other process never held the lock")
        await asyncio.sleep(0.05)
    raised = await quick(block, ttl + 10.0, "the block in the other process")
    same(raised, "LeaseLost", "what the block raised")
