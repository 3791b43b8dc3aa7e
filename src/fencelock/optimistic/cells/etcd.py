"""A register on etcd: one key, whose mod revision is the version. A write is one transaction.

The revision belongs to the whole cluster and never falls, so a key that was deleted and made again does not
have an old version again.
"""

from __future__ import annotations

from fencelock.backends.etcd import rpc_pb2 as pb
from fencelock.backends.etcd.address import Address
from fencelock.backends.etcd.connection import Etcd
from fencelock.backends.etcd.failures import BACKEND
from fencelock.backends.etcd.methods import RANGE, TXN
from fencelock.optimistic.cells import Cell, Value, place, unknown
from fencelock.runtime.asyncio import AsyncioRuntime
from fencelock.runtime.blocking import BlockingRuntime

__all__ = ["EtcdCell"]


class EtcdCell(Cell):
    """One register on etcd."""

    def __init__(self, address: Address, name: str, *, is_async: bool) -> None:
        self._name = name
        self._key = f"{address.prefix}-registers/{place(name)}".encode()
        self._etcd = Etcd(AsyncioRuntime() if is_async else BlockingRuntime(), address)

    async def read(self, deadline: float) -> Value:
        answer = await self._etcd.call(RANGE, pb.RangeRequest(key=self._key), deadline)
        if not answer.kvs:
            return Value(None, 0)
        return Value(answer.kvs[0].value, answer.kvs[0].mod_revision)

    async def set(self, value: bytes, version: int, deadline: float) -> Value | None:
        request = pb.TxnRequest()
        request.compare.add(
            key=self._key, result=pb.Compare.EQUAL, target=pb.Compare.MOD, mod_revision=version
        )
        request.success.add().request_put.CopyFrom(pb.PutRequest(key=self._key, value=value))
        answer, again = await self._etcd.call_counted(TXN, request, deadline)
        if answer.succeeded:
            return Value(value, answer.header.revision)
        if again:
            raise unknown(BACKEND, self._name)
        return None

    async def close(self, deadline: float) -> None:
        await self._etcd.close()

    def drop(self) -> None:
        self._etcd.drop()
