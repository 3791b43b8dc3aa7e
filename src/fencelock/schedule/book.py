"""The book: the records of a namespace's schedules, on a shelf, changed under a fence.

A change reads the record, makes the new one (which refuses an older token), and writes it if nobody has
written since; otherwise it begins again. A write whose answer was lost is looked for before it is given up.
Beside the records there is one page with the names of all schedules.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from fencelock.errors import BackendUnavailable
from fencelock.schedule.records import Record, Run, decoded, encoded
from fencelock.schedule.shelves.base import Page, Shelf, page_id

__all__ = ["Book"]

TRIES = 20
"""Only the holder of the lock and those it has overtaken write: nobody is in the way for long."""


class Book:
    """The records of all schedules of a namespace."""

    def __init__(self, shelf: Shelf, namespace: str, wall: Callable[[], float]) -> None:
        self.shelf = shelf
        self._namespace = namespace
        self._wall = wall

    async def read(self, name: str) -> tuple[Record | None, float | None]:
        """Return a schedule's record, and the store's time."""
        page = await self.shelf.read(self._key(name))
        return self._decoded(page), page.now

    async def open(self, name: str, before: int | None = None) -> tuple[Record, float | None]:
        """Return a schedule's record, made if there is none.

        A new one begins now, by the store's clock: what came before it was never due. Not so if `before` is
        given, which is the cursor then.
        """
        record, now = await self.read(name)
        if record is not None:
            return record, now
        await self._add_name(name)
        cursor = int(self._wall() if now is None else now) if before is None else before
        await self.shelf.write(self._key(name), encoded(Record(name, cursor)), 0)  # or another's was quicker
        record, now = await self.read(name)
        if record is None:
            raise BackendUnavailable(backend=self.shelf.where, detail=f"the record of {name!r} vanished")
        return record, now

    async def change(self, name: str, make: Callable[[Record, float | None], Record]) -> Record:
        """Replace a record by what `make(record, now)` returns. Raises what that raises."""
        key = self._key(name)
        for _ in range(TRIES):
            page = await self.shelf.read(key)
            old = self._decoded(page)
            if old is None:
                await self.open(name)
                continue
            new = make(old, page.now)
            if new == old or await self._is_written(key, new, page.version):
                return new
        raise BackendUnavailable(
            backend=self.shelf.where, detail=f"the record of {name!r} changes all the time"
        )

    async def names(self) -> list[str]:
        """Return the names of all schedules."""
        page = await self.shelf.read(self._index)
        return sorted(json.loads(page.text)) if page.text is not None else []

    async def history(self, name: str) -> list[Run]:
        """Return the last runs of a schedule, newest first."""
        record, _ = await self.read(name)
        return list(record.runs) if record is not None else []

    async def _is_written(self, key: str, new: Record, version: int) -> bool:
        try:
            return await self.shelf.write(key, encoded(new), version)
        except BackendUnavailable:
            if self._decoded(await self.shelf.read(key)) == new:
                return True  # only its answer was lost
            raise

    async def _add_name(self, name: str) -> None:
        for _ in range(TRIES):
            page = await self.shelf.read(self._index)
            names = set(json.loads(page.text)) if page.text is not None else set()
            if name in names:
                return
            if await self.shelf.write(self._index, json.dumps(sorted({*names, name})), page.version):
                return

    def _decoded(self, page: Page) -> Record | None:
        return decoded(page.text, self.shelf.where) if page.text is not None else None

    def _key(self, name: str) -> str:
        return page_id(self._namespace, "record", name)

    @property
    def _index(self) -> str:
        return page_id(self._namespace, "index", "")
