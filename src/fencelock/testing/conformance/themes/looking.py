"""Looking: who holds, who waits, and breaking a lock; and what a backend says of itself."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from typing import Any

from fencelock.errors import AcquireTimeout, FencelockError, LeaseLost
from fencelock.guarantees import VALUES
from fencelock.testing.conformance.actors import inside
from fencelock.testing.conformance.expect import HANGING, between, fails, quick, refused, same, soon, that
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.target import Target
from fencelock.testing.conformance.world import World


@check("looking", needs={"inspect"})
async def check_inspect_shows_the_holder(world: World) -> None:
    """inspect shows the holder: owner, token, mode, client, host, pid, since, expires_in, metadata."""
    name = world.name()
    client = world.client(client_name="conformance")
    metadata = {"job": 7, "tags": ["a", "ü"], "nothing": None}
    lease = await world(client.lock(name, ttl=world.ttl(30), metadata=metadata).acquire, timeout=5)
    state = await world.state(name)
    same(state.name, name, "LockState.name")
    same(len(state.holders), 1, "the number of holders")
    entry = state.holders[0]
    same(entry.owner, lease.owner, "owner")
    same(entry.token, lease.token, "token")
    same(entry.mode, lease.mode, "mode")
    same(entry.client, "conformance", "client")
    same(entry.pid, os.getpid(), "pid")
    that(entry.host, "host is empty")
    between(lease.ttl - 10, entry.expires_in, lease.ttl + 0.5, "expires_in")
    between(time.time() - 3600, entry.since, time.time() + 3600, "since")
    same(entry.metadata, metadata, "metadata")
    same(state.waiters, (), "the waiters")
    await world(lease.release)
    that((await world.state(name)).is_free, "inspect shows somebody after the release")


@check("looking", needs={"inspect", "fifo"})
async def check_inspect_shows_waiters_in_order(world: World) -> None:
    """inspect shows the waiters in the order in which they will be served, with their metadata."""
    name = world.name()
    lease = await world(world.locks.lock(name).acquire, timeout=5)
    calls = []
    for number in range(3):
        lock = world.locks.lock(name, metadata=number)
        calls.append(world.actor().start(lock.acquire, timeout=30))
        await world.queued(name, number + 1)
    state = await world.state(name)
    same([entry.owner for entry in state.holders], [lease.owner], "the holders")
    same([entry.metadata for entry in state.waiters], [0, 1, 2], "the metadata of the waiters")
    same({entry.mode for entry in state.waiters}, {"exclusive"}, "the mode of the waiters")
    same({entry.pid for entry in state.waiters}, {os.getpid()}, "the pid of the waiters")
    owners = [entry.owner for entry in state.waiters]
    same(len({*owners, lease.owner}), 4, "the number of different owners")
    for call, owner in zip(calls, owners, strict=True):
        await world(lease.release)
        lease = await quick(call, HANGING, "the next waiter")
        same(lease.owner, owner, "who was served")
    await world(lease.release)


@check("looking", needs={"inspect"})
async def check_unknown_name_is_free(world: World) -> None:
    """A name that nobody ever used is free, and looking at it does not change that."""
    name = world.name()
    for _ in range(2):
        state = await world.state(name)
        same((state.name, state.holders, state.waiters), (name, (), ()), "the state of an unknown name")
    if "list" in world.capabilities:
        same(await world(world.locks.list, name), [], "list of an unknown name")


@check("looking", needs={"inspect", "shared"})
async def check_inspect_shows_all_readers(world: World) -> None:
    """inspect shows every reader that holds the lock."""
    name = world.name()
    read = world.locks.rwlock(name).read()
    leases = [await world(read.acquire, timeout=5) for _ in range(3)]
    state = await world.state(name)
    same({entry.owner for entry in state.holders}, {lease.owner for lease in leases}, "the holders")
    same({entry.mode for entry in state.holders}, {"shared"}, "their mode")
    for lease in leases:
        await world(lease.release)


@check("looking", needs={"list"})
async def check_list_by_prefix(world: World) -> None:
    """list gives the locks whose name begins with the prefix, sorted, and only live ones."""
    base = world.name("/")
    held = [f"{base}b", f"{base}a/x", f"{base}a", f"{base}%_*?["]
    leases = [await world(world.locks.lock(name).acquire, timeout=5) for name in held]
    gone = await world(world.locks.lock(f"{base}released").acquire, timeout=5)
    await world(gone.release)

    async def names(prefix: str) -> list[str]:
        return [state.name for state in await world(world.locks.list, prefix)]

    same(await names(base), sorted(held), "list")
    same(await names(f"{base}a"), [f"{base}a", f"{base}a/x"], "list with a longer prefix")
    same(await names(f"{base}%"), [f"{base}%_*?["], "list with a prefix of special characters")
    same(await names(f"{base}_"), [], "list with a prefix that is a pattern elsewhere")
    same(await names(f"{base}*"), [], "list with a prefix that is a pattern elsewhere")
    that(set(held) <= set(await names("")), "list without a prefix does not show all")
    states = {state.name: state for state in await world(world.locks.list, base)}
    for lease in leases:
        same(states[lease.name].holders[0].owner, lease.owner, "the holder that list shows")
        await world(lease.release)
    same(await names(base), [], "list after the releases")


@check("looking", needs={"list"})
async def check_list_shows_no_expired_lock(world: World) -> None:
    """A lock whose holder died is listed no longer than it is held."""
    ttl = world.ttl(0.8)
    name = world.name()
    client, faults = world.faulty_client()
    lease = await world(client.lock(name, ttl=ttl).acquire, timeout=5)
    faults.cut()

    async def gone() -> bool:
        return not await world(world.locks.list, name)

    await soon(gone, world.gone(ttl), "an expired lock is not listed")
    that(not lease.is_held(), "a lease whose lock is not listed says that it is held")


# Breaking -------------------------------------------------------------------------------


@check("looking", needs={"force_release"})
async def check_force_release_breaks_the_holder(world: World) -> None:
    """force_release says whom it broke; the holder learns of it within a ttl, a waiter gets the lock."""
    ttl = world.kept
    name = world.name()
    lease = await world(world.locks.lock(name, ttl=ttl).acquire, timeout=5)
    call = world.actor().start(world.client().lock(name).acquire, timeout=20)
    await world.queued(name, 1)
    broken = await world(world.client().force_release, name)
    same([(entry.owner, entry.token) for entry in broken], [(lease.owner, lease.token)], "who was broken")
    successor = await quick(call, HANGING, "the waiter")
    that(successor.token > lease.token, "the successor has no larger token")
    await soon(lease.lost.is_set, ttl + world.slack, "the broken holder learns of it")
    same(lease.is_held(), False, "is_held() of the broken lease")
    that(refused(LeaseLost, lease.check).reason, "LeaseLost has no reason")
    same(await world(lease.release), False, "release() of the broken lease")
    same(await world(successor.verify), True, "verify() of the successor")
    await world(successor.release)


@check("loss", needs={"force_release"})
async def check_force_release_reaches_the_block(world: World) -> None:
    """A block whose lock was broken raises LeaseLost; under asyncio its body is cancelled."""
    ttl = world.kept
    name = world.name()
    begun = asyncio.Event()

    async def work() -> None:
        async with inside(world.locks.lock(name, ttl=ttl)) as lease:
            world._loop.call_soon_threadsafe(begun.set)
            if world.flavour == "asyncio":
                await asyncio.sleep(60)
            that(lease.lost.wait(ttl + 2 * world.slack), "lost was not set")

    call = world.actor().start(work)
    await begun.wait()
    await world(world.client().force_release, name)
    await fails(LeaseLost, quick(call, ttl + 3 * world.slack, "the block"), "the block")


@check("loss", needs={"force_release"})
async def check_verify_notices_a_broken_lock(world: World) -> None:
    """verify() notices at once that the lock was broken, though the next renewal is far away."""
    name = world.name()
    lease = await world(world.locks.lock(name, ttl=world.ttl(30)).acquire, timeout=5)
    await world(world.client().force_release, name)
    same(await world(lease.verify), False, "verify() after force_release")
    refused(LeaseLost, lease.check)
    same(lease.lost.is_set(), True, "lost")


@check("looking", needs={"force_release", "inspect", "fifo"})
async def check_force_release_of_a_waiter(world: World) -> None:
    """force_release(owner=waiter) removes that waiter's place and nobody else's."""
    name = world.name()
    lease = await world(world.locks.lock(name).acquire, timeout=5)
    # It would stand in line again if it went on waiting, so it is one that waits no more.
    mortal = world.mortal()
    dying = mortal.start(name, ttl=world.ttl(30.0), timeout=60)
    dying.add_done_callback(lambda call: call.cancelled() or call.exception())
    await world.queued(name, 1)
    call = world.actor().start(world.locks.lock(name).acquire, timeout=30)
    await world.queued(name, 2)
    mortal.die()
    first, second = (await world.state(name)).waiters
    broken = await world(world.locks.force_release, name, owner=first.owner)
    same([entry.owner for entry in broken], [first.owner], "who was removed")
    state = await world.state(name)
    same([entry.owner for entry in state.holders], [lease.owner], "the holders")
    same([entry.owner for entry in state.waiters], [second.owner], "the waiters")
    same(await world(lease.verify), True, "verify() of the holder")
    await world(lease.release)
    await world((await quick(call, HANGING, "the other waiter")).release)


@check("looking", needs={"force_release"})
async def check_force_release_of_nothing(world: World) -> None:
    """force_release of a free lock, or of an owner that is not there, breaks nobody."""
    name = world.name()
    same(tuple(await world(world.locks.force_release, name)), (), "force_release of a free lock")
    lease = await world(world.locks.lock(name).acquire, timeout=5)
    broken = await world(world.locks.force_release, name, owner="nobody")
    same(tuple(broken), (), "force_release of an unknown owner")
    same(await world(lease.verify), True, "verify() of the holder")
    await world(lease.release)


@check("looking", needs={"force_release", "shared"})
async def check_force_release_of_one_reader(world: World) -> None:
    """force_release(owner=…) breaks one reader and leaves the others."""
    name = world.name()
    read = world.locks.rwlock(name).read()
    one, two = [await world(read.acquire, timeout=5) for _ in range(2)]
    broken = await world(world.locks.force_release, name, owner=one.owner)
    same([entry.owner for entry in broken], [one.owner], "who was broken")
    same(await world(one.verify), False, "verify() of the broken reader")
    same(await world(two.verify), True, "verify() of the other reader")
    await world(two.release)


# Words ----------------------------------------------------------------------------------


@check("guarantees")
async def check_guarantees_are_well_formed(world: World) -> None:
    """The guarantees are data with the agreed values, and agree with what is declared."""
    guarantees: Any = world.locks.guarantees
    for field, allowed in VALUES.items():
        that(getattr(guarantees, field) in allowed, f"{field} is {getattr(guarantees, field)!r}")
    that(guarantees.min_ttl > 0, f"min_ttl is {guarantees.min_ttl}")
    same(guarantees.fairness == "fifo", "fifo" in world.capabilities, "fairness says what 'fifo' declares")
    that(all(isinstance(caveat, str) and caveat for caveat in guarantees.caveats), "a caveat is empty")
    that("exclusive" in world.capabilities, "a backend without locks")
    same(set(guarantees.as_dict()) >= {*VALUES, "min_ttl", "caveats"}, True, "as_dict()")


@check("words")
async def check_repr_shows_no_password(world: World) -> None:
    """What is printed names the lock, and never the password of the URL."""
    name = world.name()
    lock = world.locks.lock(name)
    lease = await world(lock.acquire, timeout=5)
    error = await fails(AcquireTimeout, world(lock.acquire, timeout=world.brief))
    url = world.target.url or ""
    password = url.partition("://")[2].rpartition("@")[0].partition(":")[2]
    for thing in (world.locks, lock, lease, error, world.target.backend()):
        for text in (repr(thing), str(thing)):
            # The word itself may stand there: users and databases are often called like their password.
            that(not password or f":{password}@" not in text, f"a {type(thing).__name__} shows the password")
    if password:
        secret = f"s{secrets.token_hex(8)}"
        changed = url.replace(f":{password}@", f":{secret}@", 1)
        stranger = Target(changed).client(world.flavour)  # which is never used
        for text in (repr(stranger), str(stranger), repr(stranger._session.backend)):
            that(secret not in text, "a client shows the password")
        await world(stranger.close)
    for thing in (lock, lease, error):
        that(name in str(thing), f"{thing!s} does not name the lock")
    await world(lease.release)


@check("words")
async def check_messages_say_what_happened(world: World) -> None:
    """The errors of a lease name the lock and the reason."""
    ttl = world.ttl(0.4)
    name = world.name()
    lease = await world(world.locks.lock(name, ttl=ttl, renew=False).acquire, timeout=5)
    await soon(lambda: not lease.is_held(), ttl + world.slack, "the end of the lease")
    error: FencelockError = refused(LeaseLost, lease.check)
    that(name in str(error) and str(lease.token) in str(error), f"{error} lacks the name or the token")
    await world.free(name, within=world.gone(ttl))
