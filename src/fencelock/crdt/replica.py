"""A named CRDT that is kept on disk and exchanged with its replicas elsewhere.

`update` changes the value here and writes the change to the file; it needs nobody else. `sync` talks to the
exchange, whenever there is one in reach:

1. *Digest*: list the records (author, seq, whole or delta) without their bodies.
2. *Deltas*: of each other author read what follows the last record that is merged here. Where
   deltas are missing (they were replaced meanwhile, or this replica is new) read its whole state first.
3. Merge, and write the file.
4. Leave what was changed here as the next record: a delta, or the whole state after `MOST_DELTAS`.

The exchange is never trusted to remember: a replica that misses its own records, or those of another
one that it had merged, leaves its whole state again. So a wiped exchange is filled anew by whoever
syncs. The number of a record is written to the file before the record is: one that is there already
but higher than the file says was written by a later life of the same file, which was since restored
from a copy. Then this replica takes a new id, so that no dot is used twice from then on.

A record that cannot be read, or whose timestamps are too far ahead, is refused: nothing of that author
is merged from there on, all others are, and `sync` raises at its end.

Not promised: when the others know of a change. They do after this replica's `sync` and then theirs.
"""

from __future__ import annotations

import os
import time as _time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from fencelock.crdt.base import Change, Crdt, settled
from fencelock.crdt.clocks import ClockAhead, HybridLogicalClock
from fencelock.crdt.codec import TYPES
from fencelock.crdt.exchange import Exchange, Record, exchange_from
from fencelock.crdt.exchange.plan import by_author, last, wanted
from fencelock.crdt.journal import Journal
from fencelock.crdt.memory import Memory, Step
from fencelock.crdt.messages import message, opened
from fencelock.durations import Duration
from fencelock.errors import BackendUnavailable, ConfigurationError, FencelockError
from fencelock.names import check_name, shown
from fencelock.runtime import locks
from fencelock.runtime.ids import new_id

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Replica", "Synced"]

C = TypeVar("C", bound=Crdt)
NOBODY: frozenset[str] = frozenset()
MOST_DELTAS = 32
"""After so many records of changes the whole state is written, and they are removed."""


class Synced(NamedTuple):
    """What a `sync` has done.

    Example:
        >>> Synced(received=2, sent=True).received
        2
    """

    received: int
    """How many records of others were merged."""
    sent: bool
    """Whether a record was left for the others."""


class Replica(Generic[C]):
    """A named CRDT on disk, exchanged through a directory, SQL or Redis. Threads may share it.

    Example:
        >>> import tempfile
        >>> from fencelock.crdt import PNCounter
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with (
        ...         Replica("stock", PNCounter, path=f"{folder}/one", exchange=f"file://{folder}") as one,
        ...         Replica("stock", PNCounter, path=f"{folder}/two", exchange=f"file://{folder}") as two,
        ...     ):
        ...         one.update(lambda stock: stock.increment(one.id, 10))
        ...         two.update(lambda stock: stock.decrement(two.id, 3))
        ...         one.sync(), two.sync(), one.sync()
        ...         one.value.value, two.value.value
        <PNCounter 10>
        <PNCounter -3>
        (Synced(received=0, sent=True), Synced(received=1, sent=True), Synced(received=1, sent=False))
        (7, 7)
    """

    def __init__(
        self,
        name: str,
        kind: type[C],
        *,
        path: str | os.PathLike[str],
        exchange: str | os.PathLike[str] | Exchange,
        max_ahead: Duration = 60.0,
        time: Callable[[], float] = _time.time,
    ) -> None:
        """Open the file at `path`, or make it; nobody else may have it open.

        `exchange` is a URL (file, sqlite, postgresql, mysql, mariadb, redis, valkey), the path of a
        directory, or an `Exchange`. `max_ahead` and `time` are those of the replica's clock.
        """
        self._name, self._kind = check_name(name), _checked_kind(kind)
        self._clock_terms: dict[str, Any] = {"max_ahead": max_ahead, "time": time}
        HybridLogicalClock("check", **self._clock_terms)
        self._given = isinstance(exchange, Exchange)
        self._exchange = exchange_from(exchange)
        self._pid = os.getpid()
        self._open = True
        self._changing = False
        self._state = locks.rlock()
        self._syncing = locks.lock()
        self._journal = Journal(path, name, kind)
        try:
            self._memory: Memory[C] = self._journal.load()
            self._journal.save(self._memory)
        except BaseException:
            self._journal.close()
            raise
        self._set_clock()

    @property
    def name(self) -> str:
        """What the value is called; replicas of one name exchange."""
        return self._name

    @property
    def id(self) -> str:
        """Who this replica is, for the mutators: a random id, kept in the file."""
        return self._memory.id

    @property
    def clock(self) -> HybridLogicalClock:
        """The clock for last-write-wins types; it follows what was merged."""
        return self._clock

    @property
    def value(self) -> C:
        """The value as it is known here."""
        return self._memory.value

    def update(self, change: Callable[[C], Change[C]]) -> C:
        """Change the value by one of its mutators, and return it once it is on disk."""
        with self._state:
            self._check()
            if self._changing:
                raise ConfigurationError("update() was called inside of a change: make one change of the two")
            self._changing = True
            try:
                made = settled(change, self.value)
            finally:
                self._changing = False
            self._keep(Step(made.delta, own=True), made.value)
            return self.value

    def sync(self) -> Synced:
        """Merge what others have left, and leave what was changed here; raise if something was refused."""
        with self._syncing:
            self._check()
            records = by_author(self._exchange.records(self._name))
            if max((record.seq for record in records.get(self.id, [])), default=0) > self._memory.seq:
                self._be_another()
            received, refused = self._receive(records)
            sent = self._send(records)
            if refused:
                raise refused[0]
            return Synced(received, sent)

    def forget(self, replica: str) -> None:
        """Remove what a replica that is gone for good has left, once all of it is merged and left anew.

        If it lives after all, its next `sync` brings it back.
        """
        check_name(replica, "replica")
        with self._syncing:
            self._check()
            if replica == self.id:
                raise ConfigurationError(f"replica={replica!r} is this one: it cannot forget itself")
            records = by_author(self._exchange.records(self._name))
            theirs = records.get(replica, [])
            _, refused = self._receive({replica: theirs})
            if refused:
                raise refused[0]
            if any(record.seq > self._memory.seen.get(replica, 0) for record in theirs):
                raise BackendUnavailable(
                    backend="replica", detail=f"some records of {replica!r} cannot be merged yet: try later"
                )
            self._leave(records.get(self.id, []), whole=True)
            self._exchange.remove(self._name, theirs)
            with self._state:
                seen = {one: seq for one, seq in self._memory.seen.items() if one != replica}
                self._keep(Step(seen=seen))

    def close(self) -> None:
        """Let others open the file. What was not synced stays in it."""
        if os.getpid() != self._pid:
            return  # lock, threads and connections are the parent's: saying goodbye would end them
        with self._syncing, self._state:
            if self._open:
                self._open = False
                self._journal.close()
                if not self._given:
                    self._exchange.close()

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Replica {self._name!r} {self.id[:8]} of {self._exchange!r}>"

    # The steps of a sync ----------------------------------------------------------------------

    def _receive(self, records: dict[str, list[Record]]) -> tuple[int, list[FencelockError]]:
        """Merge what is new of each other author; return how many records, and what was refused."""
        memory = self._memory
        plans = {
            author: wanted(theirs, memory.seen.get(author, 0))
            for author, theirs in records.items()
            if author != memory.id
        }
        bodies = self._exchange.read(self._name, [record for plan in plans.values() for record in plan])
        received, refused = 0, []
        news, seen = self._kind(), {}
        for author, plan in plans.items():
            for record in plan:
                if record not in bodies:
                    break  # replaced since it was listed: the next sync sees by what
                try:
                    news = news.merge(self._opened(bodies[record], record))
                except FencelockError as error:
                    refused.append(error)
                    break
                received, seen[author] = received + 1, record.seq
        if seen:
            with self._state:
                self._keep(Step(news, seen={**self._memory.seen, **seen}))
        return received, refused

    def _opened(self, body: bytes, record: Record) -> C:
        value = opened(body, self._name, record, self._kind)
        latest = value.latest()
        if latest is not None:
            self._clock.observe(latest)
        return value

    def _send(self, records: dict[str, list[Record]]) -> bool:
        """Leave a record if there is something to tell; return whether there was."""
        mine = records.get(self.id, [])
        gone = self._memory.seen.keys() - records.keys()
        if last(mine) != self._memory.seq or gone:
            self._leave(mine, whole=True, forgotten=gone)
        elif self._memory.outgoing != self._kind():
            self._leave(mine, whole=len(mine) > MOST_DELTAS or not mine)
        else:
            return False
        return True

    def _leave(
        self, mine: Sequence[Record], *, whole: bool, forgotten: AbstractSet[str] = frozenset()
    ) -> None:
        with self._state:
            seen = {one: seq for one, seq in self._memory.seen.items() if one not in forgotten}
            self._keep(Step(seq=self._memory.seq + 1, seen=seen if forgotten else None))
            memory = self._memory
        record = Record(memory.id, memory.seq, whole)
        body = message(self._name, record, memory.value if whole else memory.outgoing)
        self._exchange.write(self._name, record, body, mine if whole else [])
        with self._state:
            # What was changed meanwhile is in there too; then all of it is sent once more.
            if self._memory.outgoing is memory.outgoing:
                self._keep(Step(sent=True))

    def _be_another(self) -> None:
        with self._state:
            self._keep(Step(id=new_id(), seq=0))
            self._set_clock()

    def _keep(self, step: Step[C], known: C | None = None) -> None:
        """Take a step, on disk first. `known` is what the value should be by now."""
        memory = self._memory.after(step)
        if known == memory.value:  # the same, and it has at hand what its mutator had to look up
            memory = replace(memory, value=known)
        self._journal.keep(memory, step)
        self._memory = memory

    def _set_clock(self) -> None:
        self._clock = HybridLogicalClock(self.id, **self._clock_terms)
        latest = self.value.latest()
        if latest is not None:
            with suppress(ClockAhead):  # the mutators will say so where it matters
                self._clock.observe(latest)

    def _check(self) -> None:
        if not self._open:
            raise ConfigurationError(f"the replica {self._name!r} is closed")
        if os.getpid() != self._pid:
            raise ConfigurationError(
                f"the replica {self._name!r} belongs to the process that opened it: open another one, "
                "with a file of its own, after a fork"
            )


def _checked_kind(kind: type[C]) -> type[C]:
    if not isinstance(kind, type) or kind not in TYPES.values():
        raise ConfigurationError(f"kind={shown(kind)} is not a type of CRDT")
    return kind
