"""A register on ZooKeeper: one znode, whose data version and one is the version.

Nothing is sent twice: a connection that is lost while a write is under way leaves it unknown.

NOT promised: ZooKeeper counts from 0 again for a znode that was deleted and made again. Registers are never
deleted here; whoever deletes one by hand must know that nobody has a version of it.
"""

from __future__ import annotations

from typing import Any

from kazoo.exceptions import (  # type: ignore[import-untyped]
    BadVersionError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)

from fencelock.backends.zookeeper.address import Address
from fencelock.backends.zookeeper.ensemble import Ensemble
from fencelock.backends.zookeeper.failures import BACKEND
from fencelock.backends.zookeeper.results import AsyncResults, BlockingResults
from fencelock.backends.zookeeper.sessions import Session
from fencelock.errors import BackendError
from fencelock.optimistic.cells import Cell, Value, place, unknown
from fencelock.runtime.asyncio import AsyncioRuntime
from fencelock.runtime.blocking import BlockingRuntime

__all__ = ["ZooKeeperCell"]

ROOT = "/fencelock-registers"
SESSION = 10.0
"""Seconds. Nothing hangs on it: a longer one only outlives a longer outage."""


class ZooKeeperCell(Cell):
    """One register on ZooKeeper."""

    def __init__(self, address: Address, name: str, *, is_async: bool) -> None:
        self._name = name
        self._path = f"{ROOT}/{place(name)}"
        results = AsyncResults() if is_async else BlockingResults()
        self._ensemble = Ensemble(address, AsyncioRuntime() if is_async else BlockingRuntime(), results)

    async def read(self, deadline: float) -> Value:
        while True:
            session = await self._session(deadline)
            synced = session.client.sync_async(self._path)  # or a member that lags would answer
            answer = session.client.get_async(self._path)
            try:
                await self._ensemble.result(session, synced, deadline)
                value, stat = await self._ensemble.result(session, answer, deadline)
                return Value(value, stat.version + 1)
            except NoNodeError:
                return Value(None, 0)
            except ConnectionLoss:
                await self._ensemble.pause(session, deadline)
            except SessionExpiredError:
                self._ensemble.sessions.pop(session.ident, None)
                await self._ensemble.pause(session, deadline)

    async def set(self, value: bytes, version: int, deadline: float) -> Value | None:
        session = await self._session(deadline)
        client = session.client
        while True:
            try:
                if version == 0:
                    await self._ensemble.result(session, client.create_async(self._path, value), deadline)
                    return Value(value, 1)
                answer = client.set_async(self._path, value, version - 1)
                stat: Any = await self._ensemble.result(session, answer, deadline)
                return Value(value, stat.version + 1)
            except NodeExistsError:
                return None
            except NoNodeError:
                if version:
                    return None
                await self._make_root(session, deadline)
            except (ConnectionLoss, SessionExpiredError) as error:
                raise unknown(BACKEND, self._name) from error
            except BackendError as error:
                if isinstance(error.__cause__, BadVersionError):
                    return None
                raise

    async def _make_root(self, session: Session, deadline: float) -> None:
        try:
            await self._ensemble.result(session, session.client.create_async(ROOT, b""), deadline)
        except NodeExistsError:
            return

    async def _session(self, deadline: float) -> Session:
        for session in list(self._ensemble.sessions.values()):
            if not session.is_over:
                return session
            self._ensemble.sessions.pop(session.ident, None)
        session = await self._ensemble.begin(SESSION, deadline)
        await self._ensemble.check_chroot(session, deadline)
        return session

    async def close(self, deadline: float) -> None:
        await self._ensemble.close(deadline)

    def drop(self) -> None:
        self._ensemble.drop()
