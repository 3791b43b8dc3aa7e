"""Pages on etcd, Consul and ZooKeeper: a register of `fencelock.optimistic` each. They give no time."""

from __future__ import annotations

from collections.abc import Callable

from fencelock.optimistic.cells import Cell
from fencelock.runtime import clock
from fencelock.schedule.shelves.base import Page, Shelf

__all__ = ["RegisterShelf"]

LIMIT = 5.0
GOODBYE = 2.0


class RegisterShelf(Shelf):
    """Pages in registers, made as they are asked for."""

    def __init__(self, where: str, make: Callable[[str], Cell]) -> None:
        self.where = where
        self._make = make
        self._cells: dict[str, Cell] = {}

    async def read(self, key: str) -> Page:
        value, version = await self._cell(key).read(clock.now() + LIMIT)
        return Page(None if value is None else value.decode(), version, None)

    async def write(self, key: str, text: str, version: int) -> bool:
        return await self._cell(key).set(text.encode(), version, clock.now() + LIMIT) is not None

    def _cell(self, key: str) -> Cell:
        found = self._cells.get(key)
        # Two threads may make one each; nothing is opened before it is used, so one is simply let go.
        return found if found is not None else self._cells.setdefault(key, self._make(f"schedule:{key}"))

    async def close(self) -> None:
        cells, self._cells = self._cells, {}
        for cell in cells.values():
            await cell.close(clock.now() + GOODBYE)
