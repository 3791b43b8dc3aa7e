"""The queue of a name in ZooKeeper: ephemeral sequential znodes, and transactions to move them.

A request's znode is made in one session and, when it has to wait, put into another: a transaction deletes the
one and makes the other, with the same number, so that the place is kept and never held twice. When its
turn has come, a transaction makes sure that the waiting znode is still there and makes the one that
holds; the waiting one stays until the release, so that nobody behind is woken for nothing.

The token is the czxid of the first of them: the number of the transaction that made it, which the ensemble
only ever counts up. Numbers in the names begin again when a parent is deleted, so they are no tokens.

What is made and what is read go over one session, in order; so the queue that is read shows at least what
there was when the request was made, whichever member answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)

from holdfast.backends.base import Request
from holdfast.backends.ordered import SessionGone, Store
from holdfast.backends.ordered.places import Place, Queue, Record
from holdfast.backends.ordered.tenures import Tenure
from holdfast.backends.zookeeper.address import Address
from holdfast.backends.zookeeper.failures import no_answer, said, too_long
from holdfast.backends.zookeeper.names import (
    BUCKETS,
    ROOT,
    Node,
    by_place,
    hash_of,
    nodes_of,
    parent_of,
    stem,
)
from holdfast.backends.zookeeper.sessions import Results, Session
from holdfast.runtime import clock
from holdfast.runtime.base import Runtime

__all__ = ["ZooKeeperStore"]

SHORTEST = 1.0
SLACK = 1.0
BROKEN = (ConnectionLoss, ConnectionClosedError, TimeoutError)


class ZooKeeperStore(Store):
    """Queues in ZooKeeper."""

    waiting = 4.0

    def __init__(self, address: Address, namespace: str, runtime: Runtime, results: Results) -> None:
        self._address = address
        self._namespace = namespace
        self._runtime = runtime
        self._results = results
        self._sessions: dict[int, Session] = {}
        self._unsure: set[str] = set()
        """Owners whose znode may have been made without our knowing."""
        self.ended: Callable[[Tenure, str], None]

    # Sessions ---------------------------------------------------------------------------------

    def class_of(self, ttl: float) -> float:
        return max(SHORTEST, ttl) + SLACK

    async def begin(self, class_: float, deadline: float) -> Tenure:
        tenure = Tenure(class_, 0, 0.0, clock.now())
        session = Session(
            self._address.options(),
            class_,
            is_wanted=lambda: _is_wanted(tenure),
            lost=lambda: self.ended(tenure, "its ZooKeeper session has expired"),
        )
        sent = clock.now()
        if not await self._runtime.call(session.connect, max(0.0, deadline - sent)):
            await self._runtime.call(session.close)
            raise no_answer(self._address.label)
        if session.agreed < class_ - SLACK:
            agreed = session.agreed
            await self._runtime.call(session.close)
            raise too_long(self._address.label, class_ - SLACK, agreed)
        tenure.ident, tenure.length = session.ident, session.agreed
        self._sessions[tenure.ident] = session
        await self.keep(tenure, deadline)
        return tenure

    async def keep(self, tenure: Tenure, deadline: float) -> bool:
        session = self._sessions.get(tenure.ident)
        if session is None:
            return False
        sent = clock.now()
        try:
            await self._of(session.client.exists_async(ROOT), deadline)
        except SessionExpiredError:
            return False
        tenure.heard(sent)
        return True

    async def end(self, tenure: Tenure, deadline: float) -> None:
        session = self._sessions.pop(tenure.ident, None)
        if session is not None:
            await self._runtime.call(session.close)

    def _any(self) -> Any:
        for session in self._sessions.values():
            return session.client
        return None

    async def _reader(self, deadline: float) -> Any:
        """Return some client to read with."""
        client = self._any()
        if client is None:
            await self.reading(deadline)
            client = self._any()
        return client

    reading: Callable[[float], Any]
    """Begins a tenure for somebody who only looks. Set by the backend."""

    async def _of(self, answer: Any, deadline: float) -> Any:
        """Return what kazoo answers, with its failures in our words; those that mean something pass."""
        try:
            return await self._results.of(answer, deadline)
        except (NoNodeError, NodeExistsError, SessionExpiredError):
            raise
        except BROKEN as error:
            raise no_answer(self._address.label) from error
        except KazooException as error:
            raise said(self._address.label, error) from error

    # Requests ---------------------------------------------------------------------------------

    def _hash(self, name: str) -> str:
        return hash_of(self._namespace, name)

    async def enter(self, place: Place, tenure: Tenure, value: bytes, deadline: float) -> Queue:
        request = place.request
        hash_ = self._hash(request.name)
        client = self._client(tenure)
        if request.owner in self._unsure:
            queue = await self.look(request.name, deadline)
            position = queue.find(request.owner)
            if position is not None:
                return await self._filled(queue, position, deadline)
        self._unsure.add(request.owner)
        path = stem(hash_, request)
        try:
            made = client.create_async(path, value, ephemeral=True, sequence=True, include_data=True)
            children = client.get_children_async(parent_of(hash_))
            try:
                path, stat = await self._of(made, deadline)
            except NoNodeError:
                await self._make_parent(client, hash_, deadline)
                made = client.create_async(path, value, ephemeral=True, sequence=True, include_data=True)
                children = client.get_children_async(parent_of(hash_))
                path, stat = await self._of(made, deadline)
            self._unsure.discard(request.owner)
            place.key, place.token = (path,), stat.czxid
            return self._queue(hash_, await self._of(children, deadline), place, tenure)
        except SessionExpiredError as error:
            self._unsure.discard(request.owner)
            raise SessionGone(tenure) from error

    def _client(self, tenure: Tenure) -> Any:
        session = self._sessions.get(tenure.ident)
        if session is None:
            raise SessionGone(tenure)
        return session.client

    async def _make_parent(self, client: Any, hash_: str, deadline: float) -> None:
        for path in (ROOT, parent_of(hash_)):
            try:
                await self._of(client.create_async(path), deadline)
            except NodeExistsError:
                continue

    async def _filled(self, queue: Queue, position: int, deadline: float) -> Queue:
        """Find out the token and the session of a znode that was made without our knowing."""
        records = list(queue.records)
        records[position : position + 1] = await self.describe([records[position]], deadline)
        return Queue(records)

    def _queue(self, hash_: str, children: Sequence[str], place: Place, tenure: Tenure) -> Queue:
        records = _records(hash_, children)
        for position, record in enumerate(records):
            if record.owner == place.request.owner:
                records[position] = record._replace(token=place.token, session=tenure.ident)
        return Queue(records)

    async def move(self, place: Place, tenure: Tenure, value: bytes, deadline: float) -> Queue:
        hash_ = self._hash(place.request.name)
        client = self._client(tenure)
        value = json.dumps({**json.loads(value), "token": place.token}).encode()
        last = place.key[0]
        base = last.partition(".")[0]
        wait = tenure.class_ == self.waiting
        target = f"{base}.{'w' if wait else 'h'}"
        change = client.transaction()
        if wait or not last.endswith(".w"):
            for path in place.key:
                change.delete(path)
            keep: tuple[str, ...] = ()
            target = target if target not in place.key else f"{base}.i"
        else:
            change.check(last, -1)
            keep = (last,)
        change.create(target, value, ephemeral=True)
        try:
            done = change.commit_async()
            children = client.get_children_async(parent_of(hash_))
            results = await self._of(done, deadline)
            names = await self._of(children, deadline)
        except SessionExpiredError as error:
            raise SessionGone(tenure) from error
        if not any(isinstance(result, Exception) for result in results):
            place.key = (target, *keep)
        return self._queue(hash_, names, place, tenure)

    async def look(self, name: str, deadline: float) -> Queue:
        hash_ = self._hash(name)
        client = await self._reader(deadline)
        try:
            return Queue(
                _records(hash_, await self._of(client.get_children_async(parent_of(hash_)), deadline))
            )
        except NoNodeError:
            return Queue([])

    async def leave(self, request: Request, key: Any, deadline: float) -> bool:
        if key is None:
            queue = await self.look(request.name, deadline)
            position = queue.find(request.owner)
            if position is None:
                return False
            key = queue.records[position].key
        return await self._delete(key, deadline)

    async def _delete(self, paths: Sequence[str], deadline: float) -> bool:
        client = await self._reader(deadline)
        if len(paths) > 1:
            change = client.transaction()
            for path in paths:
                change.delete(path)
            results = await self._of(change.commit_async(), deadline)
            if not any(isinstance(result, Exception) for result in results):
                return True
        there = False
        for answer in [client.delete_async(path) for path in paths]:
            try:
                await self._of(answer, deadline)
                there = True
            except NoNodeError:
                continue
        return there

    async def remove(self, records: Sequence[Record], deadline: float) -> Sequence[Record]:
        return [record for record in records if await self._delete(record.key, deadline)]

    async def present(self, places: Sequence[Place], deadline: float) -> set[str]:
        client = await self._reader(deadline)
        answers = [client.exists_async(place.key[0]) for place in places]
        found = [await self._of(answer, deadline) for answer in answers]
        return {place.request.owner for place, stat in zip(places, found, strict=True) if stat is not None}

    # Looking ----------------------------------------------------------------------------------

    async def describe(self, records: Sequence[Record], deadline: float) -> Sequence[Record]:
        client = await self._reader(deadline)
        answers = [client.get_async(record.key[0]) for record in records]
        found = []
        for record, answer in zip(records, answers, strict=True):
            try:
                value, stat = await self._of(answer, deadline)
            except NoNodeError:
                continue
            try:
                token = int(json.loads(value).get("token", stat.czxid))
            except ValueError:
                token = stat.czxid
            found.append(record._replace(token=token, session=stat.ephemeralOwner, value=value))
        return found

    async def scan(self, prefix: str, deadline: float) -> dict[str, Sequence[Record]]:
        client = await self._reader(deadline)
        answers = [client.get_children_async(f"{ROOT}/{bucket}") for bucket in BUCKETS]
        hashes: dict[str, list[str]] = {}
        for answer in answers:
            try:
                for child in await self._of(answer, deadline):
                    hashes.setdefault(child.partition("-")[0], []).append(child)
            except NoNodeError:
                continue
        found: dict[str, Sequence[Record]] = {}
        for hash_, children in hashes.items():
            records = await self.describe(_records(hash_, children), deadline)
            for record in records[:1]:
                said_name = json.loads(record.value).get("name", "")
                if hash_of(self._namespace, said_name) == hash_ and said_name.startswith(prefix):
                    found[said_name] = records
        return found

    async def left(self, sessions: Sequence[Any], deadline: float) -> dict[Any, float]:
        return {}

    # Watching ---------------------------------------------------------------------------------

    async def watch(
        self, place: Place, records: Sequence[Record], moves: bool, moment: Any, deadline: float
    ) -> None:
        client = await self._reader(deadline)
        mark = place.watched = object()

        def changed(event: Any) -> None:
            if place.watched is mark:
                place.wake(gone=event.type == "DELETED")

        paths = [record.key[0] for record in records]
        answers = [client.exists_async(path, changed) for path in paths]
        if moves:
            holding = [f"{path.partition('.')[0]}.h" for path in paths]
            for answer in [client.exists_async(path, changed) for path in holding]:
                if await self._of(answer, deadline) is not None:
                    place.wake(gone=False)
        for answer in answers:
            if await self._of(answer, deadline) is None:
                place.wake(gone=True)

    def unwatch(self, place: Place) -> None:
        place.watched = None

    async def close(self, deadline: float) -> None:
        for ident in list(self._sessions):
            await self._runtime.call(self._sessions.pop(ident).close)

    def drop(self) -> None:
        self._sessions = {}


def _is_wanted(tenure: Tenure) -> bool:
    places = list(tenure.places.values())
    now = clock.now()
    return not places or any(place.deadline > now for place in places)


def _records(hash_: str, children: Sequence[str]) -> list[Record]:
    """Return the queue of one lock: one record for each owner, by number."""
    parent = parent_of(hash_)
    owners: dict[str, list[Node]] = {}
    for node in nodes_of(hash_, children):
        owners.setdefault(node.owner, []).append(node)
    records = []
    for nodes in sorted(owners.values(), key=lambda nodes: by_place(nodes[0].number)):
        nodes.sort(key=lambda node: node.state == "w")  # the one that it holds with comes first
        first = nodes[0]
        key = tuple(f"{parent}/{node.name}" for node in nodes)
        records.append(Record(key, first.owner, 0, first.mode, first.limit, None, b""))
    return records
