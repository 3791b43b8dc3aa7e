"""The queue of a name in ZooKeeper: ephemeral sequential znodes, and transactions to move them.

A request's znode is made in one session and, when it has to wait, put into another: a transaction deletes the
one and makes the other, with the same number, so that the place is kept and never held twice. When its
turn has come, a transaction makes sure that the waiting znode is still there and makes the one that
holds; the waiting one stays until the release, so that nobody behind is woken for nothing.

The token is the czxid of the first of them: the number of the transaction that made it, which the ensemble
only ever counts up. Numbers in the names begin again when a parent is deleted, so they are no tokens.

Any member may answer, and it may be behind. A grant comes of a change, a create or a move, and of the
queue as it is read after that in the same session: it then shows everything up to that change, so
nobody who stood before can be missing. What is read otherwise is asked of the leader first (`sync`). For
somebody who was called it grants too, if it is read in the session of the waiting znode itself: nobody can
come before it any more, and while that session goes on only somebody's hand can remove the znode.

A heartbeat is a transaction that changes nothing: the leader and a majority have to agree to it. Whether a
lease's znode is still there is told by a watch that is set with its first renewal: the server tells of a
deletion before it answers anything later in that session. So ten thousand leases cost one heartbeat.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from kazoo.client import TransactionRequest  # type: ignore[import-untyped]
from kazoo.exceptions import (  # type: ignore[import-untyped]
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.protocol.serialization import CheckVersion, Create2, GetData  # type: ignore[import-untyped]

from fencelock.backends.ordered.places import Eye, Place, Queue, Record
from fencelock.backends.ordered.store import SessionGone, Store
from fencelock.backends.ordered.tenures import Tenure
from fencelock.backends.zookeeper.answers import Children
from fencelock.backends.zookeeper.ensemble import Ask, Ensemble
from fencelock.backends.zookeeper.failures import no_answer, said, too_long, too_short
from fencelock.backends.zookeeper.moves import ANY, change_for
from fencelock.backends.zookeeper.names import (
    ROOT,
    base_in,
    is_waiting,
    parent_of,
    records_of,
    standing_of,
    stem,
)
from fencelock.backends.zookeeper.reader import Reader
from fencelock.backends.zookeeper.sessions import Session
from fencelock.core.ports import Request
from fencelock.errors import BackendUnavailable, ConfigurationError
from fencelock.runtime import clock

__all__ = ["LONGEST", "SHORTEST", "ZooKeeperStore"]

EPHEMERAL, SEQUENTIAL = 1, 2
SHORTEST = 1.0
LONGEST = 2_000_000.0
"""Seconds: what fits into the protocol's milliseconds."""
SLACK = 1.0


class Coming(NamedTuple):
    """A session that was asked for."""

    tenure: Tenure
    session: Session
    sent: float


class ZooKeeperStore(Store):
    """Queues in ZooKeeper."""

    waiting = 4.0
    asks_who_after = 0.25

    ended: Callable[[Tenure, str], None]
    """Tells everybody in a tenure that it has ended. Set by the backend."""

    def __init__(self, ensemble: Ensemble, namespace: str) -> None:
        self._zk = ensemble
        self._reader = Reader(ensemble, namespace)
        self._coming: Coming | None = None
        """The session for those who wait, until somebody does."""
        self._has_waiting = False
        self._unsure: dict[str, int] = {}
        """Owners of whom there may be znodes that we do not know of, and the session to look in."""
        self._owed: set[str] = set()
        """Znodes of the session of those who wait, of requests that have ended in that which they held in."""
        self.shortest, self.longest = SHORTEST, LONGEST
        """The ttls that the ensemble agrees to, once it was asked."""
        self._probes: list[Session] = []
        """The shortest and the longest session that are any use, asked for until the first one is there."""
        self._has_asked = False

    # Sessions ---------------------------------------------------------------------------------

    def class_of(self, ttl: float) -> float:
        if ttl > self.longest:
            raise too_long(self._zk.address.label, ttl, self.longest)
        return max(SHORTEST, ttl) + SLACK

    async def begin(self, class_: float, deadline: float) -> Tenure:
        coming = None
        try:
            if class_ == self.waiting:
                coming, self._coming = self._coming, None
            if coming is None or coming.session.is_over:
                coming = self._start(class_)
            if class_ > self.waiting and self._coming is None and not self._has_waiting:
                # Who dies in line before its znode is in there delays others by its whole ttl: be prepared.
                self._coming = self._start(self.waiting)
            if not self._has_asked and not self._probes:
                self._probes = [self._zk.session(SHORTEST), self._zk.session(LONGEST)]
                for probe in self._probes:
                    probe.start()
            await self._ask_for_the_limits(deadline)
            await self._begin(coming, deadline)
        except BaseException:
            self._end_coming()
            self._end_probes()
            if coming is not None:
                self._zk.sessions.pop(coming.session.ident, None)
                coming.session.end()
            raise
        self._has_waiting = self._has_waiting or class_ == self.waiting
        return coming.tenure

    async def _begin(self, coming: Coming, deadline: float) -> None:
        tenure, session, sent = coming
        await self._zk.open(session, deadline)
        wanted = tenure.class_ - SLACK
        if session.agreed < wanted:
            raise too_long(self._zk.address.label, wanted, session.agreed)
        tenure.ident, tenure.length = session.ident, session.agreed
        tenure.heard(sent)
        try:
            if self._zk.address.chroot:
                await self._zk.check_chroot(session, deadline)
            if clock.now() - sent > SLACK and not await self.keep(tenure, deadline):
                raise no_answer(self._zk.address.label)
        except SessionExpiredError as error:
            raise no_answer(self._zk.address.label) from error

    async def _ask_for_the_limits(self, deadline: float) -> None:
        """Learn which ttl is too short or too long, before anything is queued."""
        probes = self._probes
        if probes:
            for probe in probes:
                await self._zk.connected(probe, deadline)
            shortest, longest = (probe.agreed for probe in probes)
            self.shortest, self.longest = max(SHORTEST, shortest), min(LONGEST, longest)
            self._has_asked = True
            self._end_probes()
            for probe in probes:
                await self._zk.results.over(probe, deadline)

    def _end_probes(self) -> list[Session]:
        probes = self._probes
        for probe in probes:
            probe.end()
        self._probes = []  # last: after an interrupt here the next caller ends them again
        return probes

    def _end_coming(self) -> list[Session]:
        coming, self._coming = self._coming, None
        if coming is None:
            return []
        coming.session.end()
        return [coming.session]

    def _start(self, class_: float) -> Coming:
        sent = clock.now()
        tenure = Tenure(class_, 0, 0.0, sent)
        session = self._zk.session(
            class_,
            is_idle=lambda: self._is_idle(tenure),
            is_held=lambda: any(place.signal is None for place in list(tenure.places.values())),
            lost=lambda reason: self._gone(tenure, reason),
        )
        coming = Coming(tenure, session, sent)
        session.start()
        return coming

    def _is_idle(self, tenure: Tenure) -> bool:
        return not tenure.places and not self._owed and tenure.ident not in self._unsure.values()

    def _gone(self, tenure: Tenure, reason: str) -> None:
        """The session has ended: what its requests have in that of those who wait has to go as well."""
        self._zk.sessions.pop(tenure.ident, None)
        if tenure.class_ == self.waiting:
            self._has_waiting = False
        for place in list(tenure.places.values()):
            self._owed.update(path for path in place.key or () if is_waiting(path))
        live = tuple(f".w{ident:x}" for ident in list(self._zk.sessions))
        self._owed.difference_update([path for path in list(self._owed) if not path.endswith(live)])
        self.ended(tenure, reason)
        for path in list(self._owed):
            for session in list(self._zk.sessions.values()):
                session.client.delete_async(path)  # as well as it can be done now; `keep` sees to it

    async def _pay(self, session: Session, deadline: float) -> None:
        """Delete what is owed."""
        for path in list(self._owed):
            await self._zk.delete([path], session, deadline)
            self._owed.discard(path)

    async def keep(self, tenure: Tenure, deadline: float) -> bool:
        session = self._zk.sessions.get(tenure.ident)
        if session is None:
            return False
        while True:
            sent = clock.now()
            try:
                change = session.client.transaction()
                change.check(ROOT, ANY)  # not "/": what is ours can be read, the root need not be
                for result in await self._zk.result(session, change.commit_async(), deadline):
                    if isinstance(result, NoNodeError):  # a transaction that fails is a heartbeat too
                        await self._zk.check_chroot(session, deadline)
                    elif isinstance(result, KazooException):
                        raise said(self._zk.address.label, result) from result
                break
            except SessionExpiredError:
                return False
            except ConnectionLoss:
                await self._zk.pause(session, deadline)
        session.beat(sent)
        tenure.heard(sent)
        with suppress(BackendUnavailable, SessionExpiredError):
            await self._pay(session, deadline)
        return True

    async def end(self, tenure: Tenure, deadline: float) -> None:
        await self._zk.end(tenure.ident, deadline)

    def _session(self, tenure: Tenure) -> Session:
        session = self._zk.sessions.get(tenure.ident)
        if session is None or tenure.ended:
            raise SessionGone(tenure)
        return session

    # Requests ---------------------------------------------------------------------------------

    async def enter(self, place: Place, tenure: Tenure, value: bytes, deadline: float) -> Queue:
        if place.request.ttl < self.shortest:  # a renewal may be for less, the rest of its max_hold
            raise too_short(self._zk.address.label, place.request.ttl, self.shortest)
        try:
            return await self._enter(place, tenure, self._session(tenure), value, deadline)
        except SessionExpiredError as error:
            raise SessionGone(tenure) from error

    async def _enter(
        self, place: Place, tenure: Tenure, session: Session, value: bytes, deadline: float
    ) -> Queue:
        owner = place.request.owner
        hash_ = self._reader.hash(place.request.name)
        parent = parent_of(hash_)
        path = stem(hash_, place.request)
        client = session.client
        while True:
            if owner in self._unsure and await self._found_again(place, tenure, session, deadline):
                children = None
                break
            self._unsure[owner] = tenure.ident
            made, children = session.ask(
                Create2(session.path(path), value, client.default_acl, EPHEMERAL | SEQUENTIAL),
                Children(session.path(parent), None),
            )
            try:
                made_path, stat = await self._zk.result(session, made, deadline)
            except NoNodeError:
                await self._zk.make_parent(session, parent, deadline)
                continue
            except ConnectionLoss:
                await self._zk.pause(session, deadline)
                continue
            path = client.unchroot(made_path)
            place.key, place.token = (path,), stat.czxid
            break
        queue = await self._standing(place, tenure.ident, session, children, deadline)
        for record in [record for record in queue.records if record.owner == owner]:
            if not _is_of(record, place):
                # Left behind in a session of which the server does not know yet that it has ended.
                await self._zk.delete(record.key, session, deadline)
                queue = Queue([one for one in queue.records if one is not record])
        self._unsure.pop(owner, None)  # from here on the backend knows the place
        return queue

    async def _found_again(self, place: Place, tenure: Tenure, session: Session, deadline: float) -> bool:
        """Whether the znode was made without our knowing, in this very session. In another it is removed."""
        again = False
        records = await self._reader.mine(place.request, session, deadline)
        for found in await self._reader.described(records, session, deadline):
            if found.session == tenure.ident:
                place.key, place.token = found.key, found.token
                again = True
            else:
                await self._zk.delete(found.key, session, deadline)
        return again

    async def _standing(
        self, place: Place, ident: int | None, session: Session, children: Any, deadline: float
    ) -> Queue:
        """Return the queue as it stands after a change, with what is known of the place in it.

        `ident` is the session that the place was put into, `None` if it was not.
        """
        hash_ = self._reader.hash(place.request.name)
        names: Sequence[str] | None
        try:
            names = await self._zk.result(session, children, deadline) if children is not None else None
        except (ConnectionLoss, NoNodeError):
            names = None
        if names is None:
            names = await self._zk.children(session, parent_of(hash_), deadline) or ()
        records = standing_of(hash_, names, place)
        for position, record in enumerate(records):
            if _is_of(record, place):
                known = ident if record.key[0] == place.key[0] else None
                records[position] = record._replace(token=place.token, session=known)
        return Queue(records)

    async def move(self, place: Place, tenure: Tenure, value: bytes, deadline: float) -> Queue:
        session = self._session(tenure)
        try:
            moved, children = await self._move(place, tenure, session, value, deadline)
            ident = tenure.ident if moved else None
            queue = await self._standing(place, ident, session, children, deadline)
            self._unsure.pop(place.request.owner, None)
            return queue
        except SessionExpiredError as error:
            raise SessionGone(tenure) from error

    async def _move(
        self, place: Place, tenure: Tenure, session: Session, value: bytes, deadline: float
    ) -> tuple[bool, Any]:
        """Move the znodes, if they are there; say whether, and what will have the queue as it is then."""
        owner = place.request.owner
        parent = parent_of(self._reader.hash(place.request.name))
        value = json.dumps({**json.loads(value), "token": place.token}).encode()
        while True:
            if owner in self._unsure:
                found = await self._reader.mine(place.request, session, deadline)
                record = next((record for record in found if _is_of(record, place)), None)
                if record is None:
                    return False, None
                place.key = record.key
            change, after = change_for(
                place, tenure, session.client, value, to_wait=tenure.class_ == self.waiting
            )
            if change is None:
                return True, None  # it was done without our knowing
            self._unsure[owner] = tenure.ident
            done = change.commit_async()
            children = session.client.get_children_async(parent)
            try:
                results = await self._zk.result(session, done, deadline)
            except ConnectionLoss:
                await self._zk.pause(session, deadline)
                continue
            if not any(isinstance(result, Exception) for result in results):
                place.key = after
                return True, children
            for result in results:
                if isinstance(result, KazooException) and not isinstance(result, OVERTAKEN):
                    raise said(self._zk.address.label, result) from result
            return False, None

    async def look(self, name: str, deadline: float) -> Queue:
        hash_ = self._reader.hash(name)

        async def ask(session: Session) -> Queue:
            return Queue(
                records_of(hash_, await self._zk.children(session, parent_of(hash_), deadline) or ())
            )

        queue: Queue = await self._zk.somewhere(ask, deadline)
        return queue

    async def turn(self, place: Place, deadline: float) -> Queue:
        """In its own session, which shows that this goes on."""
        assert place.tenure is not None
        session = self._session(place.tenure)
        hash_ = self._reader.hash(place.request.name)
        try:
            found = await self._zk.children(session, parent_of(hash_), deadline)
        except SessionExpiredError as error:
            raise SessionGone(place.tenure) from error
        return Queue(standing_of(hash_, found or (), place))

    def lasts(self, tenure: Tenure) -> float:
        """By the last heartbeat that the leader knows of: the member that answered may be cut off from it."""
        session = self._zk.sessions.get(tenure.ident)
        return min(tenure.good_until, session.proved + session.agreed) if session is not None else -math.inf

    async def leave(self, request: Request, place: Place | None, deadline: float) -> bool:
        if not self._zk.sessions:
            return False  # whatever there was has ended with its session
        owner = request.owner
        key = place.key if place is not None else None

        async def ask(session: Session) -> bool:
            there = False
            if key and owner not in self._unsure:
                there = await self._zk.delete(key, session, deadline)
                if owner not in self._unsure:  # asked again: a renewal may be about to move it
                    return there
            known = self._zk.sessions.get(self._unsure.get(owner, 0))
            found = await self._last_seen(request, known, session, deadline)
            return any([await self._zk.delete(record.key, session, deadline) for record in found]) or there

        own = 0  # best in its own session: if that ends meanwhile, the lease has ended with it
        if place is not None and place.tenure is not None and owner not in self._unsure:
            own = place.tenure.ident
        there: bool = await self._zk.somewhere(ask, deadline, own)
        self._unsure.pop(owner, None)
        return there

    async def _last_seen(
        self, request: Request, known: Session | None, session: Session, deadline: float
    ) -> Sequence[Record]:
        """Return what there is of a request, after whatever the session `known` may still have on its way.

        If that one ends meanwhile, what it had ends with it. It must not pass for the end of the other.
        """
        if known is not None:
            with suppress(SessionExpiredError):
                return await self._reader.mine(request, known, deadline)
        return await self._reader.mine(request, session, deadline)

    async def remove(self, records: Sequence[Record], deadline: float) -> Sequence[Record]:
        async def ask(session: Session) -> Sequence[Record]:
            removed = []
            for record in records:
                there = await self._zk.delete(record.key, session, deadline)
                for moved in await self._reader.moved([record], session, deadline):
                    there = await self._zk.delete(moved.key, session, deadline) or there
                if there:
                    removed.append(record)
            return removed

        found: Sequence[Record] = await self._zk.somewhere(ask, deadline)
        return found

    async def present(self, places: Sequence[Place], deadline: float) -> set[str]:
        groups: dict[int, list[Place]] = {}
        for place in places:
            if place.tenure is not None:
                groups.setdefault(place.tenure.ident, []).append(place)
        found: set[str] = set()
        for ident, group in groups.items():
            session = self._zk.sessions.get(ident)
            if session is not None:
                try:
                    found |= await self._armed(session, group, deadline)
                except SessionExpiredError:
                    continue
        return found

    async def _armed(self, session: Session, places: Sequence[Place], deadline: float) -> set[str]:
        """Return the owners whose znodes are there: we would have been told, or have asked."""
        paths = {place.request.owner: place.key[0] for place in places if place.key}
        gone: set[str] = set()
        while True:
            asked = [path for path in paths.values() if path not in session.armed and path not in gone]
            if asked:
                found = await self._zk.all(session, [_arm(session, path) for path in asked], deadline)
                gone.update(path for path, stat in zip(asked, found, strict=True) if stat is None)
                session.armed.difference_update(gone)
            # Deletions are told before this is answered. If the connection is lost, nothing is armed.
            await self._zk.all(session, [lambda client: client.sync_async("/")], deadline)
            if all(path in session.armed or path in gone for path in paths.values()):
                break
            await self._zk.pause(session, deadline)
        for place in places if gone else ():
            owner = place.request.owner
            # Asked in this order: an extension that moves it keeps the znode that waits, or holds there.
            if paths.get(owner) in gone and owner not in self._unsure and place.key[0] == paths[owner]:
                self._owed.update(path for path in place.key if is_waiting(path))
        await self._pay(session, deadline)
        return {owner for owner, path in paths.items() if path not in gone}

    # Looking ----------------------------------------------------------------------------------

    async def describe(self, records: Sequence[Record], deadline: float) -> Sequence[Record]:
        if not records:
            return records

        async def ask(session: Session) -> Sequence[Record]:
            return await self._reader.described(records, session, deadline)

        found: Sequence[Record] = await self._zk.somewhere(ask, deadline)
        return found

    async def scan(self, prefix: str, deadline: float) -> dict[str, Sequence[Record]]:
        async def ask(session: Session) -> dict[str, Sequence[Record]]:
            return await self._reader.scan(prefix, session, deadline)

        found: dict[str, Sequence[Record]] = await self._zk.somewhere(ask, deadline)
        return found

    async def left(self, sessions: Sequence[Any], deadline: float) -> dict[Any, float]:
        return {}  # it does not tell

    # Watching ---------------------------------------------------------------------------------

    async def watch(
        self, place: Place, records: Sequence[Record], moves: bool, moment: Any, deadline: float
    ) -> None:
        # The last is the znode that it keeps when it comes to hold: nobody is woken for that.
        paths = [record.key[-1] for record in records]
        session = self._zk.sessions.get(place.tenure.ident) if place.tenure is not None else None
        if session is None or not session.is_connected:
            session = await self._zk.reader(deadline)
        self.unwatch(place)
        session.watch(place, paths)
        for answer in session.ask(*(GetData(session.path(path), session.heard) for path in paths)):
            try:
                await self._zk.result(session, answer, deadline)
            except NoNodeError:
                place.wake(gone=True)
            except (ConnectionLoss, SessionExpiredError):
                place.wake(gone=False)

    async def follow(self, eye: Eye, name: str, deadline: float) -> Queue:
        hash_ = self._reader.hash(name)
        parent = parent_of(hash_)

        async def ask(session: Session) -> Queue:
            self.unwatch(eye)
            session.watch(eye, [parent])
            children = await self._zk.children(session, parent, deadline, session.heard)
            if children is None:
                await self._zk.make_parent(session, parent, deadline)
                children = await self._zk.children(session, parent, deadline, session.heard)
            return Queue(records_of(hash_, children or ()))

        queue: Queue = await self._zk.somewhere(ask, deadline)
        return queue

    def unwatch(self, eye: Eye) -> None:
        if eye.watched is not None:
            session, paths = eye.watched
            session.unwatch(eye, paths)

    def guard(self, place: Place, transaction: Any) -> None:
        if not isinstance(transaction, TransactionRequest):
            raise ConfigurationError(
                f"a {type(transaction).__name__} is no transaction of kazoo's: give what "
                "client.transaction() returns"
            )
        # Not by its method check(): the client of the transaction may have another chroot.
        transaction.operations.append(CheckVersion(f"{self._zk.address.chroot}{place.key[0]}", ANY))

    # The end ----------------------------------------------------------------------------------

    async def close(self, deadline: float) -> None:
        unused = [*self._end_coming(), *self._end_probes()]
        await self._zk.close(deadline)
        for session in unused:
            await self._zk.results.over(session, deadline)

    def forget(self) -> None:
        """End every session, in the end of a program."""
        self._end_coming()
        self._end_probes()
        self._zk.forget()

    def drop(self) -> None:
        coming = [self._coming.session] if self._coming is not None else []
        for session in (*coming, *self._probes):
            session.drop()
        self._zk.drop()


OVERTAKEN = (NoNodeError, NodeExistsError, RolledBackError, RuntimeInconsistency)
"""How a transaction fails when something is not as it was; the last two stand for its other steps."""


def _is_of(record: Record, place: Place) -> bool:
    """Whether a record is the place's own, wherever its znodes live now: it has its number."""
    return base_in(record.key) == base_in(place.key)


def _arm(session: Session, path: str) -> Ask:
    def ask(client: Any) -> Any:
        session.armed.add(path)  # before it is asked for: what is heard of it later takes it out
        return client.exists_async(path, session.heard)

    return ask
