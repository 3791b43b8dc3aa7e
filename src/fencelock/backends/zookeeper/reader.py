"""The reader: which records there are, whose they are, and what their znodes say of them.

It reads in whatever session it is given, and changes nothing. A queue is read in one question, by names
alone; what znodes say besides is asked for only where somebody wants to know. A znode that has moved
meanwhile is looked for once more, under its new name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import NoNodeError  # type: ignore[import-untyped]

from fencelock.backends.ordered.places import Record
from fencelock.backends.zookeeper.ensemble import Ask, Ensemble
from fencelock.backends.zookeeper.names import BUCKETS, ROOT, base_in, hash_in, hash_of, parent_of, records_of
from fencelock.backends.zookeeper.sessions import Session
from fencelock.core.ports import Request

__all__ = ["Reader"]


class Reader:
    """Reads records of a namespace."""

    def __init__(self, ensemble: Ensemble, namespace: str) -> None:
        self._zk = ensemble
        self._namespace = namespace

    def hash(self, name: str) -> str:
        """Return what stands for a name in the names of its znodes."""
        return hash_of(self._namespace, name)

    async def mine(self, request: Request, session: Session, deadline: float) -> Sequence[Record]:
        """Return all that there is of a request."""
        hash_ = self.hash(request.name)
        children = await self._zk.children(session, parent_of(hash_), deadline)
        return [record for record in records_of(hash_, children or ()) if record.owner == request.owner]

    async def moved(self, records: Sequence[Record], session: Session, deadline: float) -> Sequence[Record]:
        """Return where these records are now, those that are somewhere."""
        bases = {base_in(record.key) for record in records}
        found = []
        for hash_ in dict.fromkeys(hash_in(record.key[0]) for record in records):
            children = await self._zk.children(session, parent_of(hash_), deadline)
            found += [one for one in records_of(hash_, children or ()) if base_in(one.key) in bases]
        return found

    async def described(
        self, records: Sequence[Record], session: Session, deadline: float
    ) -> Sequence[Record]:
        """Return those of the records that are still there, with what their znodes say."""
        described: dict[str, Record] = {}
        left = records
        for _ in range(2):
            found = await self._zk.all(session, [_get(record.key[0]) for record in left], deadline)
            for record, answer in zip(left, found, strict=True):
                if not isinstance(answer, NoNodeError):
                    described[base_in(record.key)] = _filled(record, *answer)
            left = [record for record in left if base_in(record.key) not in described]
            if not left:
                break
            left = await self.moved(left, session, deadline)
        bases = [base_in(record.key) for record in records]
        return [described[base] for base in bases if base in described]

    async def scan(self, prefix: str, session: Session, deadline: float) -> dict[str, Sequence[Record]]:
        """Return the queues of all names that begin so."""
        parents = [f"{ROOT}/{bucket}" for bucket in BUCKETS]
        await self._zk.all(session, [lambda client: client.sync_async(ROOT)], deadline)
        hashes: dict[str, list[str]] = {}
        for children in await self._zk.all(session, [_list(parent) for parent in parents], deadline):
            for child in children if not isinstance(children, NoNodeError) else ():
                hashes.setdefault(hash_in(child), []).append(child)
        records = [record for hash_, children in hashes.items() for record in records_of(hash_, children)]
        names: dict[str, list[Record]] = {}
        for record in await self.described(records, session, deadline):
            name = _json(record.value).get("name")
            if isinstance(name, str) and self.hash(name) == hash_in(record.key[0]):
                names.setdefault(name, []).append(record)
        return {name: found for name, found in names.items() if name.startswith(prefix)}


def _get(path: str) -> Ask:
    return lambda client: client.get_async(path)


def _list(path: str) -> Ask:
    return lambda client: client.get_children_async(path)


def _json(value: bytes) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except ValueError:
        return {}  # somebody wrote it by hand
    return found if isinstance(found, dict) else {}


def _filled(record: Record, value: bytes, stat: Any) -> Record:
    """Return a record with what its znode says."""
    token = _json(value).get("token", stat.czxid)
    return record._replace(token=token, session=stat.ephemeralOwner, value=value)
