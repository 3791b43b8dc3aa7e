"""One watcher for each backend: it asks while anybody looks, however many they are. All run in `lookout.py`.

It is asleep at first, without a connection. The first browser, or a scrape of /metrics, wakes it; when nobody
has looked for `IDLE` seconds it closes its client and sleeps again. Between two polls it rests for the
interval, or for four times as long as the poll took, whichever is longer: at most a fifth of its time is
spent asking.

A backend that does not answer is *trouble*, in one line, on the frames that go on meanwhile; what was last
seen stays. It is asked again with pauses that grow to `LONGEST` seconds. Watchers do not wait for each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from fencelock.aio import AsyncClient
from fencelock.dashboard.hub import Hub, frame
from fencelock.dashboard.picture import Picture, to_json
from fencelock.dashboard.rounds import Rounds, one_line
from fencelock.errors import FencelockError, Unsupported
from fencelock.state import Entry

__all__ = ["Broken", "Watcher"]

IDLE = 30.0
SHARE = 4.0
"""So much longer than a poll is the rest after it, at least."""
UNHURRIED = 5.0
"""Seconds between two polls while only scrapes look."""
LONGEST = 5.0
NEVER = 10.0
"""Seconds between two questions to a backend that cannot list at all."""
PATIENCE = 8.0
"""Seconds that a scrape waits for a first look."""

log = logging.getLogger("fencelock.dashboard")


class Broken(NamedTuple):
    """What became of an order to break."""

    entries: Sequence[Entry]
    error: str | None


class Watcher:
    """Looks at one backend for everybody."""

    def __init__(
        self,
        id_: str,
        open_client: Callable[[], AsyncClient],
        *,
        interval: float,
        hub: Hub,
        ids: Iterator[int],
        now: Callable[[], float],
        jobs: Any = None,
    ) -> None:
        self.id = id_
        self.trouble: str | None = None
        self.rounds = Rounds(id_, hub, now, lambda: self.trouble is not None, jobs)
        self._open = open_client
        self._interval = interval
        self._hub = hub
        self._ids = ids
        self._now = now
        self._client: AsyncClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._nudge = asyncio.Event()
        self._looked = asyncio.Event()
        self._wanted_until = 0.0
        self._failures = 0
        self._unhurried = False
        self.picture = Picture(id_, ids)

    # Who looks --------------------------------------------------------------------------

    def wake(self) -> None:
        """Somebody looks: ask, from now on."""
        self._wanted_until = self._now() + IDLE
        if self._task is None or self._task.done():
            self._looked.clear()
            self._task = asyncio.create_task(self._run(), name=f"fencelock dashboard {self.id}")
        elif self._unhurried and self._hub.listeners:
            self._nudge.set()

    async def looked(self) -> None:
        """Return once there is something to see, good or bad; not much later in any case."""
        self.wake()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._looked.wait()
        except TimeoutError:
            self.trouble = self.trouble or "the backend has not answered yet"

    async def detail(self, name: str) -> dict[str, Any] | None:
        """Return everything about one lock, as it was last seen."""
        await self.looked()
        return self.picture.detail(name)

    async def examine(self) -> bool:
        """Have the set-up examined again; `False` if that was done just now."""
        await self.looked()
        return self.rounds.examine()

    def frames(self) -> bytes:
        """Return what a browser needs to begin with; nothing before the first look."""
        if not self._looked.is_set():
            return b""
        return b"".join(self._made())

    def _made(self) -> list[bytes]:
        picture = self.picture.whole(self._now(), self.trouble)
        return [frame("picture", picture), *self.rounds.frames()]

    # Asking -----------------------------------------------------------------------------

    async def _run(self) -> None:
        while self._is_wanted():  # also by those who came while it was about to end
            await self._watch()

    async def _watch(self) -> None:
        try:
            async with self._open() as client:
                self._client = client
                async with self.rounds.over(client):
                    while self._is_wanted():
                        began = self._now()
                        await self._poll(client)
                        await self._pause(self._rest(self._now() - began))
        except Exception as error:  # noqa: BLE001 - a client that was closed badly: the next one is new
            log.error("watching %s ended: %s", self.id, one_line(error))
            await asyncio.sleep(LONGEST)
        finally:
            self._client = None
            self._looked.clear()
            self._failures, self.trouble = 0, None
            self.picture = Picture(self.id, self._ids)

    def _is_wanted(self) -> bool:
        if self._hub.listeners:
            self._wanted_until = self._now() + IDLE
        return self._now() < self._wanted_until

    def _rest(self, took: float) -> float:
        self._unhurried = not self._hub.listeners
        interval = max(self._interval, UNHURRIED) if self._unhurried else self._interval
        if self._failures:
            return min(max(LONGEST, interval), interval * float(2 ** min(self._failures - 1, 10)))
        return max(interval, SHARE * took)

    async def _pause(self, seconds: float) -> None:
        self._nudge.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._nudge.wait()
        except TimeoutError:
            pass

    async def _poll(self, client: AsyncClient) -> None:
        began = self._now()
        try:
            states = await client.list()
        except Unsupported as error:
            await self._failed(error, NEVER)
            return
        except Exception as error:  # noqa: BLE001 - a backend may be anybody's, and the others go on
            await self._failed(error, 0.0)
            return
        took = self._now() - began
        if self.trouble is not None:
            self.rounds.again()
        self._failures, self.trouble = 0, None
        change = self.picture.take(states, began + took / 2, took)
        if self._looked.is_set():
            self._send(change)
        else:
            self._first_look()

    async def _failed(self, error: Exception, rest: float) -> None:
        self._failures += 1
        if not isinstance(error, FencelockError):
            log.error("asking %s failed", self.id, exc_info=error)
        self.trouble = one_line(error)
        if self._looked.is_set():
            nothing: list[Any] = []
            fields = {"put": nothing, "gone": nothing, "renewed": nothing, "events": nothing, "point": None}
            self._send({**fields, "totals": self.picture.totals})
        else:
            self._first_look()
        if rest:
            await self._pause(rest)

    def _first_look(self) -> None:
        self._looked.set()
        for made in self._made():
            self._hub.send_made(made)

    def _send(self, change: dict[str, Any]) -> None:
        if self._hub.listeners:
            head = {"b": self.id, "at": round(self._now(), 3), "trouble": self.trouble}
            self._hub.send("change", to_json({**head, **change}))

    # Breaking ---------------------------------------------------------------------------

    async def break_(self, name: str, owners: Sequence[str]) -> Broken:
        """Break exactly these owners of a lock; say who they were."""
        broken: list[Entry] = []
        async with self._borrowed() as client:
            for owner in owners:
                self.picture.breaking(owner)
                try:
                    gone = await client.force_release(name, owner=owner)
                except FencelockError as error:
                    self.picture.spared(owner)
                    return Broken(broken, one_line(error))
                if not gone:
                    self.picture.spared(owner)
                broken += gone
        self._nudge.set()
        return Broken(broken, None)

    @asynccontextmanager
    async def _borrowed(self) -> AsyncIterator[AsyncClient]:
        if self._client is not None:
            yield self._client
        else:
            async with self._open() as client:
                yield client
