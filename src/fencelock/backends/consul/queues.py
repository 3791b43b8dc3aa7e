"""The queue of a name in Consul: each step is one transaction that writes and reads.

The order is that of the indexes at which the keys were made, which are the tokens as well: Consul counts
them up with every change to anything, and never back. A key keeps that index when its session changes, so a
request moves to another session, by unlocking and locking in one transaction, without losing its place. The
unlocking fails if the key has died meanwhile: it stays dead.

Found on 1.8.7, and relied on: locking a key again for the session that has it changes nothing; putting what
is there already does not raise its index; a transaction has at most 64 operations; a key that is read by
its whole name as a tree may be missing, while one that is read as a key may not.
"""

from __future__ import annotations

import base64
import os.path
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote

from fencelock.backends.consul.connection import MOST_OPERATIONS, Consul, Refused, kv
from fencelock.backends.consul.failures import BACKEND, NO_RIGHT
from fencelock.backends.consul.guard import guard
from fencelock.backends.consul.keys import Keys
from fencelock.backends.consul.rollcall import Roll
from fencelock.backends.consul.sessions import WAITING, Sessions, class_of
from fencelock.backends.consul.waiting import Watcher
from fencelock.backends.ordered.places import Eye, Place, Queue, Record
from fencelock.backends.ordered.store import SessionGone, Store
from fencelock.backends.ordered.tenures import Tenure
from fencelock.core.ports import Request
from fencelock.errors import BackendUnavailable
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime

__all__ = ["ConsulStore"]

FEW = 4 * MOST_OPERATIONS
"""So many keys are asked for one by one; for more, all keys are listed."""
NEAR = 20
"""So many before a request are watched for signs of life: right behind any that is dead there is somebody."""
DOUBT = 30.0
"""Seconds for which a step that was given up may still be done."""
MOVES = 3
"""So often a move is tried when the record is in another session than we know."""


class Moment(NamedTuple):
    """When a queue was read: the index of the log, and the one at which each key was changed last."""

    latest: int
    keys: dict[str, int]


class ConsulStore(Store):
    """Queues in Consul."""

    waiting = WAITING
    trust = 0.0
    """Whoever waits looks each time: that is how the dead are found who stand before it."""
    early = stays = False
    """Whoever stands among those who wait and gives no sign of life is removed: no place for a holder."""

    def __init__(self, runtime: Runtime, consul: Consul, keys: Keys) -> None:
        self._consul = consul
        self._keys = keys
        self._watcher = Watcher(runtime, consul)
        self._roll = Roll()
        self._sessions = Sessions(consul, keys, self._roll)
        self._mine: set[str] = set()
        """The keys of this client's own requests."""
        self._may_read = False

    # Sessions ---------------------------------------------------------------------------------

    def class_of(self, ttl: float) -> float:
        return class_of(ttl)

    async def begin(self, class_: float, deadline: float) -> Tenure:
        return await self._sessions.begin(class_, deadline)

    async def keep(self, tenure: Tenure, deadline: float) -> bool:
        return await self._sessions.keep(tenure, deadline)

    async def end(self, tenure: Tenure, deadline: float) -> None:
        await self._sessions.end(tenure.ident, deadline)

    # Requests ---------------------------------------------------------------------------------

    async def enter(self, place: Place, tenure: Tenure, value: bytes, deadline: float) -> Queue:
        request = place.request
        key = self._keys.of(request)
        self._mine.add(key)
        tree = kv("get-tree", self._keys.queue(request.name))
        try:
            results = await self._consul.transact(
                [kv("lock", key, session=tenure.ident, value=value), tree], deadline, key
            )
        except Refused as error:
            _check_session(error, tenure)
            return await self.look(request.name, deadline)  # an earlier try made it, in another session
        queue = self._queue(results[1:])
        if queue.find(request.owner) is None:  # it was just put: what may not be read is left out in silence
            raise BackendUnavailable(
                backend=BACKEND, detail=f"{self._consul.address.label}: {NO_RIGHT}", transient=False
            )
        return queue

    async def move(self, place: Place, tenure: Tenure, value: bytes, deadline: float) -> Queue:
        request = place.request
        key = self._keys.of(request)
        tree = kv("get-tree", self._keys.queue(request.name))
        old = place.tenure.ident if place.tenure is not None else tenure.ident
        for _ in range(MOVES):
            if old != tenure.ident:
                move = [
                    kv("unlock", key, session=old, value=value),
                    kv("lock", key, session=tenure.ident, value=value),
                ]
                if tenure.class_ == self.waiting:
                    move.append(self._sessions.sign(tenure.ident))
                try:
                    results = await self._consul.transact([*move, tree], deadline, key)
                    return self._queue(results[len(move) :])
                except Refused as error:
                    _check_session(error, tenure)
            queue = await self.look(request.name, deadline)
            position = queue.find(request.owner)
            if position is None:
                self._gone(key)
                return queue
            old = queue.records[position].session
            if old == tenure.ident:
                return queue
        raise BackendUnavailable(backend=BACKEND, detail="a record moves faster than it can be followed")

    async def look(self, name: str, deadline: float) -> Queue:
        queue = await self._look(name, deadline)
        silent = [record for record in queue.records if self._roll.is_silent(record.session, record.token)]
        if not silent:
            return queue
        for record in silent:
            unmoved = kv("delete-cas", record.key, index=queue.moment.keys[record.key])
            with suppress(Refused):
                await self._consul.transact([unmoved], deadline)
        return await self._look(name, deadline)

    async def _look(self, name: str, deadline: float) -> Queue:
        return self._queue(*await self._tree(self._keys.queue(name), deadline))

    async def _tree(self, prefix: str, deadline: float) -> tuple[list[Any], int]:
        """Return all keys that begin so.

        Consul leaves out in silence what a token may not read, but refuses to show a single key: a client
        asks for one, once, before it believes that there is nothing.
        """
        found = await self._consul.read(f"/v1/kv/{quote(prefix)}?recurse&consistent", deadline)
        if not found[0] and not self._may_read:
            await self._consul.ask("GET", f"/v1/kv/{quote(self._keys.beginning(''))}", deadline)
        self._may_read = True
        return found

    def _queue(self, found: Sequence[dict[str, Any]], index: int = 0) -> Queue:
        records = [record for one in found if (record := self._record(one)) is not None]
        records.sort(key=_token)
        if self._sessions.waits:
            self._roll.note(self._before_ours(records), clock.now())
        changed = {one["Key"]: one["ModifyIndex"] for one in found}
        return Queue(records, Moment(index or max(changed.values(), default=0), changed))

    def _before_ours(self, records: Sequence[Record]) -> dict[str, int]:
        """Return the sessions of others right before requests of this client, and their newest tokens."""
        before: dict[str, int] = {}
        for position, record in enumerate(records):
            if record.key in self._mine:
                near = records[max(0, position - NEAR) : position]
                before.update((other.session, other.token) for other in near if other.key not in self._mine)
        return before

    def _record(self, found: dict[str, Any]) -> Record | None:
        parts = self._keys.parts(found["Key"])
        session = found.get("Session")
        if parts is None or session is None:
            return None
        value = base64.b64decode(found["Value"] or "")
        return Record(
            found["Key"], parts.owner, found["CreateIndex"], parts.mode, parts.limit, session, value
        )

    async def leave(self, request: Request, place: Place | None, deadline: float) -> bool:
        key = place.key if place is not None else None
        path = key or self._keys.of(request)
        if key is None and path not in self._mine:
            return False  # it was never sent, or has left
        await self._consul.settle(path, deadline)
        try:
            await self._consul.transact([kv("get", path), kv("delete", path)], deadline)
            there = True
        except Refused as error:
            there = error.again and key is not None
        self._gone(path)
        return there

    def _gone(self, key: str) -> None:
        self._mine.discard(key)
        self._watcher.left(key)

    async def remove(self, records: Sequence[Record], deadline: float) -> Sequence[Record]:
        removed = []
        for record in records:
            with suppress(Refused):
                await self._consul.transact([kv("get", record.key), kv("delete", record.key)], deadline)
                removed.append(record)
                self._gone(record.key)
        return removed

    async def present(self, places: Sequence[Place], deadline: float) -> set[str]:
        there = await (self._listed if len(places) > FEW else self._found)(places, deadline)
        for place in places:
            if place.request.owner not in there:
                self._gone(place.key)
        return there

    async def _found(self, places: Sequence[Place], deadline: float) -> set[str]:
        there: set[str] = set()
        tokens = {place.key: place.token for place in places}
        owners = {place.key: place.request.owner for place in places}
        for start in range(0, len(places), MOST_OPERATIONS):
            reads = [kv("get-tree", place.key) for place in places[start : start + MOST_OPERATIONS]]
            for one in await self._consul.transact(reads, deadline):
                if tokens.get(one["Key"]) == one["CreateIndex"]:
                    there.add(owners[one["Key"]])
        return there

    async def _listed(self, places: Sequence[Place], deadline: float) -> set[str]:
        common = os.path.commonprefix([place.key for place in places])  # noqa: RUF071 (by letters is meant)
        keys, _ = await self._consul.read(f"/v1/kv/{quote(common)}?keys&consistent", deadline)
        there = set(keys)
        return {place.request.owner for place in places if place.key in there}

    async def sweep(self, tenure: Tenure, is_wanted: Callable[[str], bool], deadline: float) -> None:
        """Consul does not list the keys of a session: only those are looked for that were given up."""
        doubts, now = self._consul.doubts, clock.now()
        ghosts = []
        for key, since in list(doubts.items()):
            parts = self._keys.parts(key)
            if parts is not None and not is_wanted(parts.owner):
                ghosts.append(key)
            elif now - since > DOUBT:
                del doubts[key]
        for start in range(0, len(ghosts), MOST_OPERATIONS):
            some = ghosts[start : start + MOST_OPERATIONS]
            await self._consul.transact([kv("delete", key) for key in some], deadline)
            for key in some:
                if now - doubts[key] > DOUBT:
                    del doubts[key]

    # Looking ----------------------------------------------------------------------------------

    async def scan(self, prefix: str, deadline: float) -> dict[str, Sequence[Record]]:
        found: dict[str, list[Record]] = {}
        for one in (await self._tree(self._keys.beginning(prefix), deadline))[0]:
            record, parts = self._record(one), self._keys.parts(one["Key"])
            if record is not None and parts is not None:
                found.setdefault(parts.name, []).append(record)
        for records in found.values():
            records.sort(key=_token)
        return dict(found)

    async def left(self, sessions: Sequence[Any], deadline: float) -> dict[Any, float]:
        return {}  # Consul does not tell

    # Watching ---------------------------------------------------------------------------------

    async def watch(
        self, place: Place, records: Sequence[Record], moves: bool, moment: Any, deadline: float
    ) -> None:
        keys = [record.key for record in records]
        if len(keys) == 1 and not moves and keys[0] in self._mine:
            self._watcher.watch_near(place, keys[0])
            if keys[0] not in self._mine:
                place.wake(gone=True)
            return
        index = moment.keys[keys[0]] if len(keys) == 1 else moment.latest
        prefix = self._keys.queue(place.request.name)
        self._watcher.watch(place, prefix, keys, moves, index)

    async def follow(self, eye: Eye, name: str, deadline: float) -> Queue:
        queue = await self.look(name, deadline)
        self._watcher.watch(eye, self._keys.queue(name), (), True, queue.moment.latest)
        return queue

    def unwatch(self, eye: Eye) -> None:
        self._watcher.unwatch(eye)

    def guard(self, place: Place, transaction: Any) -> None:
        assert place.tenure is not None
        guard(transaction, place.key, place.tenure.ident)

    async def close(self, deadline: float) -> None:
        self._watcher.end()
        with suppress(BackendUnavailable):
            await self._sessions.end_unclaimed(deadline)
        await self._consul.close()
        await self._watcher.close()

    def drop(self) -> None:
        self._consul.drop()


def _check_session(error: Refused, tenure: Tenure) -> None:
    if "invalid session" in error.what and str(tenure.ident) in error.what:
        raise SessionGone(tenure) from error


def _token(record: Record) -> int:
    return record.token
