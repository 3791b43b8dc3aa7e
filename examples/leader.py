"""A singleton consumer with hot standbys: three hosts, one reads the orders, and no order is lost or doubled.

`run` is the whole life of a host: it stands by, consumes while it leads, is cancelled when the lead is
lost, and stands by again. What is done is written down with the fencing token of the lease, so a leader
that was overtaken without noticing cannot write any more. Each host has a client of its own, as it
would on a machine of its own. First an operator takes the lead away, then a host hands over for a deploy.
"""

from __future__ import annotations

import asyncio
import os
import tempfile

from fencelock import AsyncClient, AsyncLease, release_on_exit
from fencelock.fencing import Gate

ORDERS = [f"order {number}" for number in range(9)]
gate = Gate()
done: list[tuple[str, str]] = []


async def host(url: str, name: str) -> str:
    async with AsyncClient(url, client_name=name) as locks:
        election = locks.election("orders", ttl=10, metadata={"dashboard": f"http://{name}:8000"})

        async def consume(lease: AsyncLease) -> str:
            while len(done) < len(ORDERS):
                with gate.turn("orders", lease.token):  # refuses whoever was overtaken
                    done.append((name, ORDERS[len(done)]))
                if len(done) == 3:
                    await locks.force_release("orders")
                    await asyncio.sleep(60)  # cancelled, as soon as the loss is known
                if len(done) == 6:
                    await election.resign()
                await asyncio.sleep(0.15)
            return f"{name} leads, and all is done"

        return await election.run(consume, margin=2)


async def watch(url: str) -> None:
    async with AsyncClient(url) as locks:
        async for leader in locks.election("orders").observe():
            if leader is not None:
                print(f"{leader.client} leads, see {leader.metadata['dashboard']}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        watcher = asyncio.create_task(watch(url))
        for line in await asyncio.gather(*(host(url, name) for name in ("north", "south", "west"))):
            print(line)
        watcher.cancel()
        await asyncio.wait([watcher])
    print(f"{len(done)} orders, each once, by {len({who for who, _ in done})} hosts")
    assert [order for _, order in done] == ORDERS


if __name__ == "__main__":
    release_on_exit()  # SIGTERM releases what is held
    asyncio.run(main())
