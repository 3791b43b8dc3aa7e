"""A client process of a soak: it uses locks in every way there is, well and badly, and looks at itself.

A few lanes (threads, or tasks) take one turn after another, with a pause in between that keeps the machine's
load small. Most turns use names that nobody ever uses again; some meet others at a few names. Clients are
opened and closed, or dropped; leases are left to expire, or dropped; acquires time out, or are cancelled.

The runner sends words to the process's socket: `lull` parks the lanes, `go` lets them work again,
`sample` asks for figures, `stop` ends it in good order. What the client tells goes to the runner's socket.

Clients of Redis, PostgreSQL, MariaDB and ZooKeeper remember something of the names they used last, up to a
bound. That of Redis is 20,000, which an hour of this does not reach: it would look like a leak. So all bounds
are small here, and what is soaked includes that they are kept.

`plant` makes it leak on purpose, in the ways that `PLANTS` lists: the verdict must see each of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from chaos.files import open_files
from chaos.ways import Asyncio, Blocking, Way
from fencelock import AcquireTimeout, AsyncClient, Client, FencelockError
from fencelock.backends.mysql import places
from fencelock.backends.ordered import queues
from fencelock.backends.postgres import records
from fencelock.backends.redis import keys

__all__ = ["PLANTS", "run"]

HOT = 4
"""Names that everybody wants."""
LIMIT = 2
SECTION = 0.01
NAMES = 200
"""Places that a client remembers."""
PARKED = 0.02
LAST_MOMENT = 3.0
TURNS = {
    "fresh": 40, "hot": 12, "hasty": 10, "read": 6, "permit": 6, "multi": 5, "elect": 3, "look": 3,
    "renewed": 2, "expired": 2, "dropped": 4, "cancelled": 4, "reopened": 3,
}  # fmt: skip
"""How often each turn is taken."""


class Churn:
    """What the lanes of one process share."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.name: str = config["client"]
        self.url: str = config["url"]
        self.ttl: float = config["ttl"]
        self.pause: float = config["pause"]
        self.folder = Path(config["folder"])
        self.asyncio: bool = config["flavour"] == "asyncio"
        self.way: Way = Asyncio() if self.asyncio else Blocking()
        self.lanes: int = config["lanes"]
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stopping = self.lull = False
        self.gathered: set[int] = set()
        self.parked: set[int] = set()
        self.counts: Counter[str] = Counter()
        self.kept: list[Any] = []
        """What a planted leak keeps."""
        self.locks = self.client()
        self._mail = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._mail.bind(str(self.folder / self.name))

    def client(self) -> Any:
        return (AsyncClient if self.asyncio else Client)(self.url, client_name=self.name)

    # The lanes -----------------------------------------------------------------------------

    async def lane(self, number: int) -> None:
        """Take one turn after another."""
        if self.asyncio:
            self.loop = asyncio.get_running_loop()
        dice = random.Random(f"{self.config['seed']}/{self.name}/{number}")
        turns = {turn: TURNS[turn] for turn in self.config["turns"] or TURNS}
        if not self.asyncio:
            turns.pop("cancelled", None)
        while not self.stopping:
            if self.lull:
                await self.park(number, dice)
                continue
            (turn,) = dice.choices([*turns], [*turns.values()])
            await self.take(turn, dice)
            await self.way.sleep(dice.expovariate(1 / self.pause))

    async def park(self, number: int, dice: random.Random) -> None:
        """Rest until the lull is over, once all lanes have met."""
        self.gathered.add(number)
        while self.lull and not self.stopping and len(self.gathered) < self.lanes:
            await self.way.sleep(PARKED)
        await self.take("meet", dice)
        self.parked.add(number)
        while self.lull and not self.stopping:
            await self.way.sleep(PARKED)
        self.parked.discard(number)
        self.gathered.discard(number)

    async def take(self, turn: str, dice: random.Random) -> None:
        for plant in self.config["plant"]:
            PLANTS[plant](self)
        try:
            await getattr(self, turn)(dice)
            self.counts[turn] += 1
        except AcquireTimeout:
            self.counts["timeout"] += 1
        except FencelockError as error:  # a fault: part of the day
            self.counts[type(error).__name__] += 1

    def new_name(self, dice: random.Random) -> str:
        return f"{self.config['seed']}/{self.name}/{os.getpid()}/{dice.getrandbits(64):x}"

    def hot_name(self, dice: random.Random) -> str:
        return f"hot-{dice.randrange(HOT)}"

    async def hold(self, lock: Any, seconds: float, timeout: float) -> None:
        """Take a lock, wait, give it back."""
        lease = await self.way.call(partial(lock.acquire, timeout=timeout))
        self.counts["grants"] += 1
        try:
            await self.way.sleep(seconds)
        finally:
            await self.way.call(lease.release)

    # The turns -----------------------------------------------------------------------------

    @property
    def patience(self) -> float:
        return 4 * self.ttl + 2

    async def meet(self, dice: random.Random) -> None:
        """Wait for each other: a fault may have ended what a client only has again when it waits."""
        await self.hold(self.locks.lock(f"{self.name}/meet", ttl=self.ttl), 0.1, self.patience)

    async def fresh(self, dice: random.Random) -> None:
        await self.hold(self.locks.lock(self.new_name(dice), ttl=self.ttl), SECTION, self.patience)

    async def hot(self, dice: random.Random) -> None:
        lock = self.locks.lock(self.hot_name(dice), ttl=self.ttl)
        await self.hold(lock, dice.expovariate(1 / SECTION), self.patience)

    async def hasty(self, dice: random.Random) -> None:
        """Give up soon: at once, or while waiting."""
        lock = self.locks.lock(self.hot_name(dice), ttl=self.ttl)
        await self.hold(lock, self.ttl / 4, dice.choice([0.0, dice.uniform(0, self.ttl / 4)]))

    async def read(self, dice: random.Random) -> None:
        both = self.locks.rwlock(f"rw-{self.hot_name(dice)}", ttl=self.ttl)
        await self.hold(dice.choice([both.read, both.read, both.write])(), SECTION, self.patience)

    async def permit(self, dice: random.Random) -> None:
        await self.hold(self.locks.semaphore("permits", LIMIT, ttl=self.ttl), SECTION, self.patience)

    async def multi(self, dice: random.Random) -> None:
        names = [self.hot_name(dice), self.new_name(dice)]
        await self.hold(self.locks.multi(names, ttl=self.ttl), SECTION, self.patience)

    async def elect(self, dice: random.Random) -> None:
        election = self.locks.election("leader", ttl=self.ttl)
        self.counts["grants"] += await self.way.call(election.run, self.lead())

    def lead(self) -> Callable[[Any], Any]:
        async def lead_on(lease: Any) -> int:
            await asyncio.sleep(SECTION)
            return 1

        return lead_on if self.asyncio else lambda lease: 1

    async def look(self, dice: random.Random) -> None:
        await self.way.call(self.locks.inspect, self.hot_name(dice))

    async def renewed(self, dice: random.Random) -> None:
        lock = self.locks.lock(self.new_name(dice), ttl=self.ttl)
        await self.hold(lock, 1.5 * self.ttl, self.patience)

    async def expired(self, dice: random.Random) -> None:
        lock = self.locks.lock(self.new_name(dice), ttl=self.ttl, renew=False)
        await self.hold(lock, 1.2 * self.ttl, self.patience)

    async def dropped(self, dice: random.Random) -> None:
        """Lose the lease, as a thread or a task that dies does."""
        lock = self.locks.lock(self.new_name(dice), ttl=self.ttl)
        await self.way.call(partial(lock.acquire, timeout=self.patience))
        self.counts["grants"] += 1

    async def cancelled(self, dice: random.Random) -> None:
        """Cancel an acquire, wherever it stands (asyncio only)."""
        lock = self.locks.lock(self.hot_name(dice), ttl=self.ttl)
        asking = asyncio.create_task(self.hold(lock, self.ttl / 4, self.patience))
        await asyncio.sleep(dice.expovariate(1 / SECTION))
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError, FencelockError):
            await asking

    async def reopened(self, dice: random.Random) -> None:
        """Open another client, use it, and close it."""
        locks = self.client()
        try:
            await self.hold(locks.lock(self.new_name(dice), ttl=self.ttl), SECTION, self.patience)
        finally:
            if self.asyncio or dice.random() < 0.7:  # a blocking one that is dropped closes itself
                await self.way.call(locks.close)

    # Figures -------------------------------------------------------------------------------

    def figures(self, *, exact: bool) -> dict[str, float]:
        """What this process looks like now; where that must be exact, without garbage."""
        values: dict[str, float] = {}
        if exact:
            gc.collect()
            values["objects"] = len(gc.get_objects())
        values["rss"] = resident()
        values["blocks"] = sys.getallocatedblocks()
        values["threads"] = threading.active_count()
        values["files"], values["sockets"] = open_files()
        if self.asyncio:
            values["tasks"] = len(asyncio.all_tasks(self.loop)) if self.loop else 0
        return values

    def tell(self, **fields: Any) -> None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mail:
            mail.sendto(json.dumps({"client": self.name, **fields}).encode(), str(self.folder / "runner"))

    def listen(self) -> None:
        """Take words from the runner until it says stop; runs on a thread of its own."""
        while not self.stopping:
            word = json.loads(self._mail.recv(4096))
            if word["do"] == "stop":
                self.stopping = True
            elif word["do"] in {"lull", "go"}:
                self.lull = word["do"] == "lull"
            elif word["do"] == "parked":
                resting = self.lull and len(self.parked) == self.lanes
                self.tell(did="parked", number=word["number"], parked=resting)
            else:
                values = self.figures(exact=word["exact"])
                self.tell(did="sample", number=word["number"], values=values, counts=dict(self.counts))

    async def finish(self) -> None:
        """Close, and tell what is left."""
        await self.way.call(self.locks.close)
        del self.locks
        gc.collect()
        ends = time.monotonic() + LAST_MOMENT
        while any(self.leftovers().values()) and time.monotonic() < ends:  # told to end, but perhaps not yet
            await self.way.sleep(0.05)
        self.tell(did="stop", values=self.leftovers(), counts=dict(self.counts))

    def leftovers(self) -> dict[str, float]:
        """What is there besides the main thread, the listener, and their mail."""
        left: dict[str, float] = {"sockets": open_files()[1] - 1 - self.way.sockets}
        left["threads"] = threading.active_count() - 1 - self.listener.is_alive()
        if self.asyncio:
            left["tasks"] = len(asyncio.all_tasks(self.loop)) - 1
        return left

    def run(self) -> None:
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        self.tell(did="start")
        self.way.run(self.lane, self.lanes, self.finish)


def resident() -> float:
    """The resident memory of this process in KiB."""
    text = Path("/proc/self/status").read_text()
    return float(text.partition("VmRSS:")[2].split()[0])


def _leave_a_thread(churn: Churn) -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()


PLANTS: dict[str, Callable[[Churn], None]] = {
    "list": lambda churn: churn.kept.extend([object()] for _ in range(200)),
    "thread": _leave_a_thread,
    "socket": lambda churn: churn.kept.append(socket.socket()),
}
"""Leaks, one more at each turn."""


def run(config: dict[str, Any]) -> None:
    """Work until told to stop."""
    keys.CACHED = records.REMEMBERED = places.CACHED = queues.REMEMBERED = NAMES
    Churn(config).run()
