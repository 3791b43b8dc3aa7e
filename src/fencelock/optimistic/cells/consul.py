"""A register on Consul: one key, whose modify index is the version. A write is one transaction.

The index belongs to the whole log and never falls, so a key that was deleted and made again does not have an
old version again.
"""

from __future__ import annotations

import base64

from fencelock.backends.consul.address import Address
from fencelock.backends.consul.connection import Consul, Refused, kv
from fencelock.backends.consul.failures import BACKEND, no_consul, refused
from fencelock.optimistic.cells import Cell, Value, place, unknown
from fencelock.runtime.asyncio import AsyncioRuntime
from fencelock.runtime.blocking import BlockingRuntime

__all__ = ["ConsulCell"]

STALE = "index is stale"


class ConsulCell(Cell):
    """One register on Consul."""

    def __init__(self, address: Address, name: str, *, is_async: bool) -> None:
        self._name = name
        self._key = f"{address.prefix}-registers/{place(name)}"
        self._consul = Consul(AsyncioRuntime() if is_async else BlockingRuntime(), address)

    async def read(self, deadline: float) -> Value:
        found, _ = await self._consul.read(f"/v1/kv/{self._key}?consistent", deadline)
        if not found:
            return Value(None, 0)
        try:
            return Value(base64.b64decode(found[0]["Value"] or ""), int(found[0]["ModifyIndex"]))
        except (KeyError, TypeError, ValueError) as error:
            raise no_consul(self._consul.address.label) from error

    async def set(self, value: bytes, version: int, deadline: float) -> Value | None:
        try:
            done = await self._consul.transact([kv("cas", self._key, value=value, index=version)], deadline)
        except Refused as error:
            if STALE not in error.what:
                raise refused(self._consul.address.label, error.what) from error
            if error.again:
                raise unknown(BACKEND, self._name) from error
            return None
        return Value(value, int(done[0]["ModifyIndex"]))

    async def close(self, deadline: float) -> None:
        await self._consul.close()

    def drop(self) -> None:
        self._consul.drop()
