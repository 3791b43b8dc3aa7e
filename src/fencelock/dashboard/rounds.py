"""What is looked at less often than locks: the set-up itself, jobs, and schedules.

The doctor comes when somebody begins to look, then every five minutes, and when somebody asks for it, but not
more often than once in ten seconds, for all browsers together. Jobs and schedules are read every few seconds,
and only sent when they differ. Where there is no permission, no table or no such thing, they are left out;
that never disturbs the locks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fencelock.aio import AsyncClient
from fencelock.backends import hide_password
from fencelock.backends.checkup import Checkup, examine, quantiles
from fencelock.dashboard.hub import Hub, frame
from fencelock.dashboard.picture import to_json
from fencelock.errors import ConfigurationError, FencelockError, Unsupported
from fencelock.findings import worst
from fencelock.promise import promise

__all__ = ["Rounds", "one_line"]

EXAMINE = 300.0
AT_MOST = 10.0
"""Seconds between two examinations, whoever asks."""
LONGEST = 30.0
JOBS = 2.0
SCHEDULES = 5.0
ROWS = 200
RUNS = 20
MANY = 200
"""So many schedules are shown."""
NEWS = ("running", "dead", "pending", "cancelled")
"""Those are shown, in this order. What is done is only counted."""
BULKY = {"payload", "progress"}
"""Of a job these are not shown: they may be large, and nobody said that they are for all to see."""

log = logging.getLogger("fencelock.dashboard")


class Rounds:
    """The slower looks at one backend."""

    def __init__(
        self,
        backend: str,
        hub: Hub,
        now: Callable[[], float],
        has_trouble: Callable[[], bool],
        jobs: Any = None,
    ) -> None:
        self.checkup: dict[str, Any] | None = None
        self._backend = backend
        self._hub = hub
        self._now = now
        self._has_trouble = has_trouble
        self._table = jobs
        self._jobs: dict[str, Any] = {"counts": None, "rows": [], "error": None}
        self._source = None if jobs is None else _source(jobs)
        self._schedules: list[dict[str, Any]] | None = None
        self._has_jobs = False
        self._examined = -EXAMINE
        self._is_due = False
        self._examining: asyncio.Task[None] | None = None
        self._client: AsyncClient | None = None

    def frames(self) -> list[bytes]:
        """Return what a browser needs to begin with."""
        found = [frame("checkup", to_json(self.checkup))] if self.checkup else []
        if self._has_jobs:
            found.append(frame("jobs", to_json(self._told())))
        return found

    @asynccontextmanager
    async def over(self, client: AsyncClient) -> AsyncIterator[None]:
        """Make the rounds for as long as the block lasts."""
        self._client = client
        tasks = [asyncio.create_task(work) for work in (self._regularly(), self._look_at_schedules(client))]
        if self._table is not None:
            tasks.append(asyncio.create_task(self._look_at_jobs()))
        try:
            yield
        finally:
            self._client = None
            tasks += [self._examining] if self._examining else []
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._has_jobs = False

    # The doctor -------------------------------------------------------------------------

    def examine(self) -> bool:
        """Have the set-up examined again; `False` if that was done just now."""
        if self._client is None or self._now() - self._examined < AT_MOST:
            return False
        self._examined = self._now()
        self._examining = asyncio.create_task(self._examine(self._client))
        return True

    def again(self) -> None:
        """Know that things have changed: the backend was away, and is back."""
        self._is_due = True

    async def _regularly(self) -> None:
        while True:
            if self._is_due or self._now() - self._examined >= EXAMINE:
                self._is_due = not self.examine()
            await asyncio.sleep(0.5)

    async def _examine(self, client: AsyncClient) -> None:
        backend = client._session.backend
        try:
            async with asyncio.timeout(LONGEST):
                checkup = await examine(backend)
            told = _told_of(checkup, works=bool(checkup.trips) and not self._has_trouble())
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what there is to say
            because = one_line(error)
            told = {
                "findings": [],
                "guarantees": client.guarantees.as_dict(),
                "promise": promise(client.guarantees, because),
                "trips": None,
                "clocks": [],
                "error": because,
            }
        self.checkup = {"b": self._backend, "at": round(self._now(), 3), **told}
        self._hub.send("checkup", to_json(self.checkup))

    # Jobs and schedules -----------------------------------------------------------------

    async def _look_at_jobs(self) -> None:
        while True:
            try:
                counts, rows = await asyncio.to_thread(self._read_jobs)
                self._say(jobs={"counts": counts, "rows": rows, "error": None})
            except Exception as error:  # noqa: BLE001 - any driver's; the locks go on
                self._say(jobs={**self._jobs, "error": one_line(error)})
            await asyncio.sleep(JOBS)

    def _read_jobs(self) -> tuple[dict[str, int], list[dict[str, Any]]]:
        counts, states = self._table.counts(), list[Any]()
        for status in NEWS:
            if counts.get(status) and len(states) < ROWS:
                states += self._table.ls(status=status, limit=ROWS - len(states))
        fields = [state.as_dict() for state in states]
        return counts, [{key: _plain(one[key]) for key in one if key not in BULKY} for one in fields]

    async def _look_at_schedules(self, client: AsyncClient) -> None:
        from fencelock.schedule import AsyncSchedule

        try:
            book = AsyncSchedule(client)
        except FencelockError:
            return  # this backend keeps none
        try:
            while await self._read_schedules(book):
                await asyncio.sleep(SCHEDULES)
        finally:
            await asyncio.shield(book.close())

    async def _read_schedules(self, book: Any) -> bool:
        """Read them; say whether to go on."""
        try:
            found = [
                {"name": name, "runs": [run.as_dict() for run in (await book.history(name))[:RUNS]]}
                for name in (await book.names())[:MANY]
            ]
        except (ConfigurationError, Unsupported):
            return False
        except Exception as error:  # noqa: BLE001 - the locks of this backend say what is wrong with it
            log.debug("no schedules of %s: %s", self._backend, one_line(error))
            return True
        if found or self._schedules:
            self._say(schedules=found)
        return True

    def _say(self, **news: Any) -> None:
        before = self._has_jobs, self._jobs, self._schedules
        self._jobs = news.get("jobs", self._jobs)
        self._schedules = news.get("schedules", self._schedules)
        self._has_jobs = True
        if (True, self._jobs, self._schedules) != before:
            self._hub.send("jobs", to_json(self._told()))

    def _told(self) -> dict[str, Any]:
        head = {"b": self._backend, "at": round(self._now(), 3)}
        return {**head, "source": self._source, **self._jobs, "schedules": self._schedules}


def _told_of(checkup: Checkup, *, works: bool) -> dict[str, Any]:
    because = ""
    if not works and worst(checkup.findings) == "critical":
        because = f"{checkup.findings[0].subject}: {checkup.findings[0].detail}"
    fields = ("severity", "subject", "detail", "advice", "setting")
    return {
        "findings": [{key: getattr(finding, key) for key in fields} for finding in checkup.findings],
        "guarantees": checkup.guarantees.as_dict(),
        "promise": promise(checkup.guarantees, because),
        "trips": quantiles(checkup.trips) if checkup.trips else None,
        "clocks": [
            {"server": each.server, "offset": each.offset, "uncertainty": each.uncertainty}
            for each in checkup.clocks
        ],
        "error": None,
    }


def _source(table: Any) -> str:
    """Return which table of which database it is, without user and password."""
    url = table.engine.url.set(username=None, password=None, query={})
    return f"{table.name} in {url.render_as_string(hide_password=True)}"


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def one_line(error: BaseException) -> str:
    """Return an error as it may be shown: one line, without passwords."""
    said = hide_password(" ".join(str(error).split())) or type(error).__name__
    return said if len(said) <= 500 else said[:499] + "…"
