"""The queue of a name in etcd: each step is one transaction that writes and reads.

The order is that of the keys' create revisions, which are the tokens as well: etcd counts them up with every
change to anything, and never back. A key keeps its create revision when it is put again, so a request
moves to another lease without losing its place; and each move compares it first, so a key that has
died meanwhile stays dead.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fencelock.backends.etcd import rpc_pb2 as pb
from fencelock.backends.etcd.connection import Etcd, LeaseGone
from fencelock.backends.etcd.guard import guard
from fencelock.backends.etcd.keys import Keys, end_of
from fencelock.backends.etcd.methods import (
    DELETE,
    GRANT,
    KEEP_ALIVE,
    RANGE,
    REVOKE,
    TIME_TO_LIVE,
    TXN,
)
from fencelock.backends.etcd.waiting import Watcher
from fencelock.backends.ordered.places import Eye, Place, Queue, Record
from fencelock.backends.ordered.store import SessionGone, Store
from fencelock.backends.ordered.tenures import Tenure
from fencelock.core.ports import Request
from fencelock.errors import BackendUnavailable, FencelockError
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime

__all__ = ["EtcdStore"]

FEW = 64
"""So many keys are asked for one by one, in one transaction; for more, the lease is asked for its keys."""
PAGE = 5_000
SLACK = 0.25
"""Seconds that a lease is longer than its ttl at least; whole seconds make it one for most."""


class EtcdStore(Store):
    """Queues in etcd."""

    waiting = 3.0
    stays = False
    """A leader that stood still for so long ends such a lease when it comes back, though it was renewed
    meanwhile (etcd before 3.4.31 and 3.5.13): whoever waits in it only has to stand in line again."""

    def __init__(self, runtime: Runtime, etcd: Etcd, keys: Keys) -> None:
        self._etcd = etcd
        self._keys = keys
        self._watcher = Watcher(runtime, etcd)
        self._grants: dict[float, int] = {}
        """Leases that were asked for and not answered, by class: asked for again by the same id."""
        self._has_begun = False
        """Whether there was a lease ever: without one no key was written."""

    # Leases -----------------------------------------------------------------------------------

    def class_of(self, ttl: float) -> float:
        return float(math.ceil(ttl + SLACK))

    async def begin(self, class_: float, deadline: float) -> Tenure:
        ident = self._grants.setdefault(class_, secrets.randbits(62) + 1)
        sent = clock.now()
        request = pb.LeaseGrantRequest(TTL=int(class_), ID=ident)
        try:
            answer = await self._etcd.call(GRANT, request, deadline)
        except BackendUnavailable as error:
            if "lease already exists" not in error.detail:
                raise
            sent = clock.now()
            answer = await self._keep_alive(ident, deadline)
        del self._grants[class_]
        self._has_begun = True
        return Tenure(class_, ident, answer.TTL, sent)

    async def keep(self, tenure: Tenure, deadline: float) -> bool:
        sent = clock.now()
        answer = await self._keep_alive(tenure.ident, deadline)
        if answer.TTL <= 0:
            return False
        tenure.heard(sent)
        return True

    async def _keep_alive(self, ident: int, deadline: float) -> Any:
        return await self._etcd.call(KEEP_ALIVE, pb.LeaseKeepAliveRequest(ID=ident), deadline)

    async def end(self, tenure: Tenure, deadline: float) -> None:
        await self._revoke(tenure.ident, deadline)

    async def _revoke(self, ident: int, deadline: float) -> None:
        with suppress(LeaseGone):
            await self._etcd.call(REVOKE, pb.LeaseRevokeRequest(ID=ident), deadline)

    # Requests ---------------------------------------------------------------------------------

    async def enter(self, place: Place, tenure: Tenure, value: bytes, deadline: float) -> Queue:
        place.key = self._keys.of(place.request)
        return await self._write(place, 0, tenure, value, deadline)

    async def move(self, place: Place, tenure: Tenure, value: bytes, deadline: float) -> Queue:
        return await self._write(place, place.token, tenure, value, deadline)

    async def _write(self, place: Place, was: int, tenure: Tenure, value: bytes, deadline: float) -> Queue:
        """Put the key into the lease if its create revision is the one it was; read the queue in any case."""
        key = place.key
        prefix = self._keys.queue(place.request.name)
        whole = pb.RequestOp(request_range=pb.RangeRequest(key=prefix, range_end=end_of(prefix)))
        request = pb.TxnRequest(
            compare=[pb.Compare(target=pb.Compare.CREATE, key=key, create_revision=was)],
            success=[
                pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=tenure.ident)),
                whole,
            ],
            failure=[whole],
        )
        try:
            answer = await self._etcd.call(TXN, request, deadline, place.request.owner)
        except LeaseGone as error:
            raise SessionGone(tenure) from error
        return self._queue(answer.responses[-1].response_range.kvs, answer.header.revision)

    async def look(self, name: str, deadline: float) -> Queue:
        prefix = self._keys.queue(name)
        request = pb.RangeRequest(key=prefix, range_end=end_of(prefix))
        answer = await self._etcd.call(RANGE, request, deadline)
        return self._queue(answer.kvs, answer.header.revision)

    def _queue(self, found: Sequence[Any], revision: int) -> Queue:
        records = [record for pair in found if (record := self._record(pair)) is not None]
        records.sort(key=_token)
        return Queue(records, revision)

    def _record(self, pair: Any) -> Record | None:
        parts = self._keys.parts(pair.key)
        if parts is None:
            return None
        return Record(
            pair.key, parts.owner, pair.create_revision, parts.mode, parts.limit, pair.lease, pair.value
        )

    async def leave(self, request: Request, place: Place | None, deadline: float) -> bool:
        if not self._has_begun:
            return False
        key = place.key if place is not None else None
        if key is None:
            await self._etcd.settle(request.owner, deadline)  # what was interrupted may be under way
        message = pb.DeleteRangeRequest(key=key or self._keys.of(request))
        answer, again = await self._etcd.call_counted(DELETE, message, deadline)
        return answer.deleted > 0 or (again and key is not None)

    async def remove(self, records: Sequence[Record], deadline: float) -> Sequence[Record]:
        removed = []
        for record in records:
            request = pb.TxnRequest(
                compare=[pb.Compare(target=pb.Compare.CREATE, key=record.key, create_revision=record.token)],
                success=[pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=record.key))],
            )
            if (await self._etcd.call(TXN, request, deadline)).succeeded:
                removed.append(record)
        return removed

    async def present(self, places: Sequence[Place], deadline: float) -> set[str]:
        if len(places) <= FEW:
            ops = [
                pb.RequestOp(request_range=pb.RangeRequest(key=place.key, keys_only=True)) for place in places
            ]
            answer = await self._etcd.call(TXN, pb.TxnRequest(success=ops), deadline)
            return {
                place.request.owner
                for place, one in zip(places, answer.responses, strict=True)
                if [pair.create_revision for pair in one.response_range.kvs] == [place.token]
            }
        keys: set[bytes] = set()
        for ident in {place.tenure.ident for place in places if place.tenure is not None}:
            keys.update(await self._keys_in(ident, deadline))
        return {place.request.owner for place in places if place.key in keys}

    async def _keys_in(self, ident: int, deadline: float) -> Sequence[bytes]:
        request = pb.LeaseTimeToLiveRequest(ID=ident, keys=True)
        return (await self._etcd.call(TIME_TO_LIVE, request, deadline)).keys  # type: ignore[no-any-return]

    async def sweep(self, tenure: Tenure, is_wanted: Callable[[str], bool], deadline: float) -> None:
        for key in await self._keys_in(tenure.ident, deadline):
            parts = self._keys.parts(key)
            if parts is not None and not is_wanted(parts.owner):
                await self._etcd.call(DELETE, pb.DeleteRangeRequest(key=key), deadline)

    # Looking ----------------------------------------------------------------------------------

    async def scan(self, prefix: str, deadline: float) -> dict[str, Sequence[Record]]:
        begin = self._keys.beginning(prefix)
        end = end_of(begin)
        found: dict[str, list[Record]] = {}
        revision = 0
        while True:  # page by page, all of one moment
            request = pb.RangeRequest(key=begin, range_end=end, limit=PAGE, revision=revision)
            answer = await self._etcd.call(RANGE, request, deadline)
            revision = revision or answer.header.revision
            for pair in answer.kvs:
                record, parts = self._record(pair), self._keys.parts(pair.key)
                if record is not None and parts is not None:
                    found.setdefault(parts.name, []).append(record)
            if not answer.more:
                break
            begin = answer.kvs[-1].key + b"\0"
        for records in found.values():
            records.sort(key=_token)
        return dict(found)

    async def left(self, sessions: Sequence[Any], deadline: float) -> dict[Any, float]:
        left: dict[Any, float] = {}
        for ident in sessions:
            answer = await self._etcd.call(TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=ident), deadline)
            left[ident] = max(0.0, float(answer.TTL))
        return left

    # Watching ---------------------------------------------------------------------------------

    async def watch(
        self, place: Place, records: Sequence[Record], moves: bool, moment: Any, deadline: float
    ) -> None:
        await self._watcher.watch(place, [(record.key, b"") for record in records], moves, moment, deadline)

    async def follow(self, eye: Eye, name: str, deadline: float) -> Queue:
        queue = await self.look(name, deadline)
        prefix = self._keys.queue(name)
        await self._watcher.watch(eye, [(prefix, end_of(prefix))], True, queue.moment, deadline)
        return queue

    def unwatch(self, eye: Eye) -> None:
        self._watcher.unwatch(eye)

    def guard(self, place: Place, transaction: Any) -> None:
        guard(transaction, place.key, place.token)

    async def close(self, deadline: float) -> None:
        self._watcher.end()
        with suppress(FencelockError):
            for ident in self._grants.values() if self._etcd.was_reached else ():
                await self._revoke(ident, deadline)
        await self._etcd.close()
        await self._watcher.close()

    def drop(self) -> None:
        self._etcd.drop()


def _token(record: Record) -> int:
    return record.token
