"""Backends and clients that are broken on purpose, and the checks that must notice.

Each backend is the reference with one mistake, of the kind that ships. If the suite passes one
of them, the suite has lost its teeth.
"""

from __future__ import annotations

import hashlib
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from fencelock.backends.base import Backend, Busy, Grant, Outcome, Renewal, Request
from fencelock.backends.memory import Key, MemoryBackend, Record, Store
from fencelock.core.dropped import DroppedLeases
from fencelock.core.holds import Holds
from fencelock.core.queue import SHARED
from fencelock.core.session import Session
from fencelock.lease import LeaseBase
from fencelock.runtime.asyncio import AsyncioRuntime
from fencelock.runtime.blocking import BlockingRuntime
from fencelock.state import Entry, LockState


class Broken(MemoryBackend):
    """A backend whose mistake is in its store."""

    store_type: type[Store] = Store
    caught_by: tuple[str, ...] = ()

    @classmethod
    def factory(cls) -> Callable[[], Backend]:
        store = cls.store_type()
        return lambda: cls(store)

    @classmethod
    def clean_up(cls) -> None:
        """End what it left behind, after the test."""


# Exclusion and order -------------------------------------------------------------------------


class GrantsToEverybody(Broken):
    """Whoever asks gets the lock."""

    caught_by = ("lock_has_one_holder", "no_increment_is_lost")

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        await super().acquire(request, wait=True, deadline=deadline)
        self.store.counter += 1
        return Grant(self.store.counter, request.ttl)


class GrantsWhenTheWaitIsOver(Broken):
    """A wait that ended without the lock counts as one that ended with it."""

    caught_by = ("the_body_does_not_run_without_the_lock",)

    async def wait(self, request: Request, deadline: float) -> Grant | None:
        granted = await super().wait(request, deadline)
        if granted is None:
            self.store.counter += 1
            granted = Grant(self.store.counter, request.ttl)
        return granted


class ServesTheLastFirst(Broken):
    """A newcomer stands at the front of the line."""

    caught_by = ("waiters_of_one_client_are_served_in_order",)

    class LastFirst(Store):
        def acquire(self, key: Key, request: Request, *rest: Any) -> Grant | Busy:
            known = {record.request.owner for record in self.queues.get(key, ())}
            answer = super().acquire(key, request, *rest)
            if isinstance(answer, Busy) and request.owner not in known:
                queue = self.queues.get(key, [])
                if queue and queue[-1].request is request:
                    queue.insert(1, queue.pop())
            return answer

    store_type = LastFirst


class LetsReadersPast(Broken):
    """A reader gets past a writer that waits, as long as readers hold the lock."""

    caught_by = ("writer_does_not_starve",)

    class ReadersFirst(Store):
        def acquire(self, key: Key, request: Request, *rest: Any) -> Grant | Busy:
            answer = super().acquire(key, request, *rest)
            queue = self.queues.get(key, [])
            if request.mode == SHARED and isinstance(answer, Busy) and queue and queue[0].mode == SHARED:
                self.counter += 1
                queue.insert(0, Record(request, self.counter, self.now() + request.ttl, self.wall()))
                return Grant(self.counter, request.ttl)
            return answer

    store_type = ReadersFirst


class IgnoresTheLimit(Broken):
    """A semaphore admits one more than it should."""

    caught_by = ("semaphore_limit", "semaphore_under_load")

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        if request.mode == "permit":
            request = _copy(request, limit=request.limit + 1)
        return await super().acquire(request, wait=wait, deadline=deadline)


class TakesAnyLimit(Broken):
    """Each may have a limit of its own for one semaphore."""

    caught_by = ("differing_limits_are_refused",)

    class AnyLimit(Store):
        def acquire(self, key: Key, request: Request, *rest: Any) -> Grant | Busy:
            queue = self.queues.get(key, [])
            if request.mode == "permit" and queue and queue[0].limit != request.limit:
                request = _copy(request, limit=queue[0].limit)
            return super().acquire(key, request, *rest)

    store_type = AnyLimit


# Tokens --------------------------------------------------------------------------------------


class StartsTokensAgain(Broken):
    """The counter is deleted with the lock."""

    caught_by = ("tokens_rise_across_releases", "tokens_rise_though_the_name_was_forgotten")

    class Forgetful(Store):
        def acquire(self, key: Key, *rest: Any) -> Grant | Busy:
            if key not in self.queues:
                self.counter = 0
            return super().acquire(key, *rest)

    store_type = Forgetful


class SharesTokens(Broken):
    """Readers that hold together share a token."""

    caught_by = ("tokens_of_readers_are_unique_and_ordered",)

    class Sharing(Store):
        def acquire(self, key: Key, request: Request, *rest: Any) -> Grant | Busy:
            queue = self.queues.get(key)
            if request.mode == SHARED and queue and queue[0].mode == SHARED:
                self.counter = queue[0].token - 1
            return super().acquire(key, request, *rest)

    store_type = Sharing


# Expiry --------------------------------------------------------------------------------------


class NeverExpires(Broken):
    """A dead holder keeps its lock for ever."""

    caught_by = ("an_expired_holder_is_noticed_without_a_push",)

    class Eternal(Store):
        def _expire(self, queue: list[Record], now: float) -> None:
            for record in queue:
                record.deadline = max(record.deadline, now + 1)

    store_type = Eternal


class RevivesOnRenewal(Broken):
    """A renewal puts back what has expired."""

    caught_by = ("the_backend_does_not_revive",)

    class Reviving(Store):
        def renew(self, key: Key, renewal: Renewal) -> Outcome:
            outcome = super().renew(key, renewal)
            if outcome is Outcome.LOST and renewal.extend:
                record = Record(renewal.request, renewal.token, self.now() + renewal.ttl, self.wall())
                self.queues.setdefault(key, []).insert(0, record)
                return Outcome.RENEWED
            return outcome

    store_type = Reviving


class NeverSaysLost(Broken):
    """Renewals of what is gone succeed, and nobody hears of a forced release."""

    caught_by = ("force_release_breaks_the_holder", "verify_notices_a_broken_lock")

    class Silent(Store):
        def renew(self, key: Key, renewal: Renewal) -> Outcome:
            outcome = super().renew(key, renewal)
            if outcome is Outcome.LOST:
                return Outcome.RENEWED if renewal.extend else Outcome.HELD
            return outcome

        def acquire(self, key: Key, request: Request, wait: bool, signal: Any, lost: Any) -> Grant | Busy:
            return super().acquire(key, request, wait, signal, None)

    store_type = Silent


class PromisesTooMuch(Broken):
    """A grant claims to be valid for three times the ttl."""

    caught_by = ("never_held_longer_than_the_ttl", "unrenewed_lease_ends")

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        answer = await super().acquire(request, wait=wait, deadline=deadline)
        return Grant(answer.token, 3 * answer.validity) if isinstance(answer, Grant) else answer


class EvictsLiveWaiters(Broken):
    """A waiter that has waited for longer than a silent one may is thrown out, alive as it is."""

    caught_by = ("live_waiters_keep_their_place",)

    class Evicting(Store):
        def acquire(self, key: Key, request: Request, *rest: Any) -> Grant | Busy:
            before = {record.request.owner: record.deadline for record in self.queues.get(key, ())}
            answer = super().acquire(key, request, *rest)
            for record in self.queues.get(key, ()):
                if isinstance(answer, Busy) and record.request is request and request.owner in before:
                    record.deadline = before[request.owner]
            return answer

    store_type = Evicting


class KeepsDeadWaiters(Broken):
    """A waiter that died stays in line for its ttl."""

    caught_by = ("a_dead_waiter_delays_by_a_few_seconds",)

    class Keeping(Store):
        def acquire(self, key: Key, request: Request, *rest: Any) -> Grant | Busy:
            answer = super().acquire(key, request, *rest)
            for record in self.queues.get(key, ()):
                record.deadline = max(record.deadline, self.now() + request.ttl)
            return answer

    store_type = Keeping


# Clean-up and ambiguity ----------------------------------------------------------------------


class LeavesWaitersBehind(Broken):
    """Nobody clears up after a wait that failed."""

    caught_by = ("a_waiter_that_gives_up_leaves_the_line", "failed_attempts_leave_nothing")

    async def abandon(self, request: Request, *, deadline: float) -> None:
        self._signals.pop(request.owner, None)


class LeavesTriesBehind(Broken):
    """A try that fails stays in line."""

    caught_by = ("failed_attempts_leave_nothing",)

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        return await super().acquire(request, wait=True, deadline=deadline)


class ReleasesWhoeverHolds(Broken):
    """A release frees the lock, whosever it is by now."""

    caught_by = ("a_late_clean_up_spares_the_successor",)

    async def abandon(self, request: Request, *, deadline: float) -> None:
        for record in self.store.queues.get((self.namespace, request.name), [])[:1]:
            self.store.remove((self.namespace, request.name), record.request.owner)

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        await self.abandon(request, deadline=deadline)
        return True


class DoesNotRecogniseRetries(Broken):
    """A request that is sent again is taken for another one."""

    caught_by = ("lost_acquire_reply_is_recognised",)

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        again = _copy(request, owner=self.runtime.new_id())
        return await super().acquire(again, wait=wait, deadline=deadline)

    async def wait(self, request: Request, deadline: float) -> Grant | None:
        await self.runtime.sleep(0.05)
        return None


class WakesNobody(Broken):
    """Releases are only found out by polling, though a push is promised."""

    caught_by = ("a_waiter_is_woken_by_a_release",)

    class Quiet(Store):
        def _wake(self, queue: list[Record]) -> None:
            """Nobody is told."""

    store_type = Quiet


# Names ---------------------------------------------------------------------------------------


class FoldsNames(Broken):
    """Names that look alike to `fold` are one lock."""

    caught_by = ("names_that_look_alike_do_not_meet",)

    @staticmethod
    def fold(name: str) -> str:
        return name.lower()

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        return await super().acquire(self._folded(request), wait=wait, deadline=deadline)

    async def renew(self, renewals: Sequence[Renewal], *, deadline: float) -> Sequence[Outcome]:
        folded = [renewal._replace(request=self._folded(renewal.request)) for renewal in renewals]
        return await super().renew(folded, deadline=deadline)

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        return await super().release(self._folded(request), token, deadline=deadline)

    async def abandon(self, request: Request, *, deadline: float) -> None:
        await super().abandon(self._folded(request), deadline=deadline)

    async def inspect(self, name: str, *, deadline: float) -> LockState:
        return await super().inspect(self.fold(name), deadline=deadline)

    def _folded(self, request: Request) -> Request:
        return _copy(request, name=self.fold(request.name))


class TrimsNames(FoldsNames):
    """Spaces at the end do not count."""

    @staticmethod
    def fold(name: str) -> str:
        return name.rstrip(" ")


class NormalisesNames(FoldsNames):
    """Two forms of one character are one."""

    @staticmethod
    def fold(name: str) -> str:
        return unicodedata.normalize("NFC", name)


class DecodesNames(FoldsNames):
    """`%2F` and `/` are one."""

    @staticmethod
    def fold(name: str) -> str:
        return name.replace("%2F", "/")


class HashesNames(FoldsNames):
    """Sixteen bits of a hash are the name."""

    caught_by = ("many_names_do_not_block_each_other",)

    @staticmethod
    def fold(name: str) -> str:
        return hashlib.sha256(name.encode()).hexdigest()[:4]


class ForgetsTheNamespace(Broken):
    """All applications share their locks."""

    caught_by = ("namespaces_are_apart",)

    def open(self, runtime: Any, namespace: str, lost: Any) -> None:
        super().open(runtime, "", lost)


# What is shown -------------------------------------------------------------------------------


class ForgetsMetadata(Broken):
    """What the holder said of itself is lost."""

    caught_by = ("metadata_comes_back_as_it_was",)

    class Plain(Store):
        def _entry(self, record: Record, now: float) -> Entry:
            return replace(super()._entry(record, now), metadata=None)

    store_type = Plain


class HidesWaiters(Broken):
    """Nobody sees who waits."""

    caught_by = ("inspect_shows_waiters_in_order",)

    class Hiding(Store):
        def _state(self, key: Key, now: float) -> LockState:
            return replace(super()._state(key, now), waiters=())

    store_type = Hiding


class LeavesAThread(Broken):
    """Closing forgets a thread."""

    caught_by = ("closing_ends_all_threads_and_tasks",)
    over = threading.Event()

    @classmethod
    def clean_up(cls) -> None:
        cls.over.set()
        cls.over = threading.Event()

    def open(self, runtime: Any, namespace: str, lost: Any) -> None:
        super().open(runtime, namespace, lost)
        threading.Thread(target=self.over.wait, name="fencelock-forgotten", daemon=True).start()


def _copy(request: Request, **changes: Any) -> Request:
    values = {
        name: getattr(request, name)
        for name in ("owner", "name", "mode", "limit", "ttl", "origin", "metadata")
    }
    return Request(**{**values, **changes})


def _family(kind: type[Broken]) -> Iterator[type[Broken]]:
    for child in kind.__subclasses__():
        yield child
        yield from _family(child)


BACKENDS = tuple(_family(Broken))


# Clients -------------------------------------------------------------------------------------


@contextmanager
def believes_for_ever(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """A lease says that it is held until somebody tells it otherwise."""
    patch.setattr(Holds, "is_held", lambda self, hold: hold.state == "held")
    patch.setattr("fencelock.core.session.keep_time", _never_look)
    yield


async def _never_look(session: Session) -> bool:
    await session.timekeeper.rest(session.runtime.now() + 0.1)
    return True


@contextmanager
def keeps_garbage(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """A lease that nobody has any more is renewed for ever."""
    patch.setattr(LeaseBase, "__del__", lambda self: None)
    yield


@contextmanager
def frees_what_was_dropped(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """A lease that its caller dropped is released at once, while the work goes on."""
    add = DroppedLeases.add
    patch.setattr(DroppedLeases, "add", lambda self, hold, place=None: add(self, hold))
    yield


@contextmanager
def tells_twice(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """A loss is reported twice."""
    for runtime in (BlockingRuntime, AsyncioRuntime):
        once = runtime.callback

        def twice(self: Any, function: Any, argument: Any, once: Any = once) -> None:
            once(self, function, argument)
            once(self, function, argument)

        patch.setattr(runtime, "callback", twice)
    yield


CLIENTS = {
    "believes for ever": (believes_for_ever, ("a_lost_lease_keeps_its_old_token",)),
    "keeps garbage": (keeps_garbage, ("garbage_leases_of_blocks_are_released",)),
    "frees what was dropped": (frees_what_was_dropped, ("dropped_leases_end_with_their_ttl",)),
    "tells twice": (tells_twice, ("on_lost_is_called_once",)),
}
