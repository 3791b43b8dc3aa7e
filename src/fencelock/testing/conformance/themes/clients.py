"""Clients: apart by namespace, and gone without a trace when closed."""

from __future__ import annotations

import threading
from typing import Any

from fencelock.errors import FencelockError
from fencelock.testing.conformance.actors import inside, io
from fencelock.testing.conformance.expect import fails, refused, same, soon, that
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World


@check("clients")
async def check_a_client_is_a_context_manager(world: World) -> None:
    """`with Client(…)` closes the client, also when the body raises."""
    name = world.name()
    client = world.client()

    leases: list[Any] = []

    async def body() -> None:
        async with inside(client) as entered:
            that(entered is client, "the block does not give the client")
            leases.append(await io(client.lock(name, ttl=world.ttl(60)).acquire()))
            raise LookupError

    await fails(LookupError, world(body), "the block")
    same(leases[0].is_held(), False, "is_held() after the block")
    await world.free(name)


@check("clients")
async def check_namespaces_are_apart(world: World) -> None:
    """The same name in another namespace is another lock, and is not listed here."""
    name = world.name()
    clients = [world.client(namespace=f"{world.prefix}{text}") for text in ("a", "b", "A", "a/b", "a ")]
    leases = []
    for client in (world.locks, *clients):
        lease = await world(client.lock(name).try_acquire)
        that(lease is not None, "the name is taken in another namespace")
        leases.append(lease)
    same(await world(world.client(namespace=f"{world.prefix}a").lock(name).try_acquire), None, "the same one")
    if "list" in world.capabilities:
        listed = [state.name for state in await world(clients[0].list, name)]
        same(listed, [name], "what one namespace lists")
    for lease in leases:
        same(await world(lease.release), True, "release")


@check("clients")
async def check_namespace_and_name_do_not_run_together(world: World) -> None:
    """Namespace `x` with name `y:z` and namespace `x:y` with name `z` are different locks."""
    base = world.prefix + "ns"
    leases = []
    for mark in ":/.-_|%} {":
        for namespace, name in ((f"{base}{mark}b", world.own("c")), (base, world.own(f"b{mark}c"))):
            lease = await world(world.client(namespace=namespace).lock(name).try_acquire)
            that(lease is not None, f"{name!r} in {namespace!r} is refused")
            leases.append(lease)
    for lease in leases:
        await world(lease.release)


@check("clients")
async def check_a_namespace_may_be_in_the_url(world: World) -> None:
    """`?namespace=` in the URL and `namespace=` in the call mean the same."""
    url = world.target.url if world.target.namespace is None else None
    name = world.name()
    namespace = world.prefix + "in the url"
    by_call = world.client(namespace=namespace)
    lease = await world(by_call.lock(name).acquire)
    if url is not None:
        mark = "&" if "?" in url else "?"
        by_url = type(by_call)(f"{url}{mark}namespace={namespace.replace(' ', '+')}")
        try:
            same(await world(by_url.lock(name).try_acquire), None, "the lock by way of the URL")
        finally:
            await world(by_url.close)
    same(await world(lease.release), True, "release")


@check("clients", alone=True)
async def check_closing_ends_all_threads_and_tasks(world: World) -> None:
    """A client that held, waited and lost leaves no thread and no task when it is closed."""
    before = set(threading.enumerate())
    client = world.client()
    ttl = world.ttl(0.5)
    kept = await world(client.lock(world.name(), ttl=ttl).acquire)
    lost = await world(client.lock(world.name(), ttl=ttl, renew=False).acquire)
    waiting = world.actor().start(client.lock(kept.name).acquire)
    await soon(lambda: not lost.is_held(), world.gone(ttl), "a lease is lost")
    await world(client.close)
    await fails(FencelockError, waiting, "the wait")

    def left() -> list[str]:
        return [t.name for t in set(threading.enumerate()) - before if not t.name.startswith("conform-")]

    await soon(lambda: not left(), 3, f"threads are left: {left()}")
    refused(FencelockError, kept.check)
