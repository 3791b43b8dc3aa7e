"""What people write by hand with grpcio on etcd: two transactions on a lease that is kept; nothing else.

Settings: one channel, kept; messages are put together beforehand, so that what is left is grpcio's own cost.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import Any

from bench.peers import AsyncMake, Make
from bench.peers import etcd_calls as calls
from bench.peers.etcd_raw import LEASE

__all__ = ["asynchronous", "blocking"]


class Section:
    def __init__(self, txn: Any, name: str, lease: int) -> None:
        key, owner = f"grpcio/{name}".encode(), os.urandom(8).hex().encode()
        self.txn = txn
        self.take, self.give = calls.take(key, owner, lease), calls.give(key, owner)

    def __enter__(self) -> None:
        _must(self.txn(self.take))

    def __exit__(self, *_: object) -> None:
        _must(self.txn(self.give))


class AsyncSection(Section):
    async def __aenter__(self) -> None:
        _must(await self.txn(self.take))

    async def __aexit__(self, *_: object) -> None:
        _must(await self.txn(self.give))


def _must(answer: bytes) -> None:
    if not calls.is_done(answer):
        raise RuntimeError("the key was there already, or gone")


@contextmanager
def blocking(url: str) -> Iterator[Make]:
    host, port = calls.place_of(url)
    with import_module("grpc").insecure_channel(f"{host}:{port}") as channel:
        txn, lease = channel.unary_unary(calls.TXN), calls.new_id()
        channel.unary_unary(calls.GRANT)(calls.grant(lease, LEASE))
        yield lambda name: Section(txn, name, lease)
        channel.unary_unary(calls.REVOKE)(calls.named(lease))


@asynccontextmanager
async def asynchronous(url: str, tasks: int) -> AsyncIterator[AsyncMake]:
    host, port = calls.place_of(url)
    async with import_module("grpc.aio").insecure_channel(f"{host}:{port}") as channel:
        txn, lease = channel.unary_unary(calls.TXN), calls.new_id()
        await channel.unary_unary(calls.GRANT)(calls.grant(lease, LEASE))
        yield lambda name: AsyncSection(txn, name, lease)
        await channel.unary_unary(calls.REVOKE)(calls.named(lease))
