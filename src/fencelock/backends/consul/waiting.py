"""Watches: blocking queries, as few as will do.

A query asks for one key, or for the keys of a name where any of several may leave, and is answered when
that changes. All requests of a client that wait for the same share it. A client has at most `MOST` of them,
each on a connection of its own; who comes later gets one when one is free, and looks once a second until
then. When the one right before is of the same client, no query is needed: who leaves tells it.

An index that goes back (Consul was restored from a snapshot) begins anew from nothing. A query that fails
just ends: whoever waits looks once a second anyway, and asks again then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import quote

from fencelock.backends.consul.connection import MOST, Call, Consul
from fencelock.backends.consul.failures import no_consul
from fencelock.backends.consul.protocol import Answer
from fencelock.backends.ordered.places import Eye
from fencelock.errors import BackendUnavailable
from fencelock.net.workers import Workers
from fencelock.runtime import clock, locks
from fencelock.runtime.base import Runtime

__all__ = ["Watcher"]

WAIT = 30
"""Seconds after which the server answers though nothing has changed."""
OVERDUE = WAIT * 17 / 16 + 3.0
"""Seconds after which nobody believes in an answer any more: the server adds up to a sixteenth."""


class Interest:
    """What somebody wants to be told."""

    __slots__ = ("eye", "keys", "moves", "path", "watch")

    def __init__(self, eye: Eye, path: str, keys: frozenset[str], moves: bool) -> None:
        self.eye = eye
        self.path = path
        self.keys = keys
        self.moves = moves
        self.watch: Watch | None = None

    def is_same(self, other: Interest) -> bool:
        return (self.path, self.keys, self.moves) == (other.path, other.keys, other.moves)


class Watch:
    """One query, and for whom."""

    def __init__(self, path: str, index: int) -> None:
        self.path = path
        self.index = index
        self.interests: set[Interest] = set()
        self.call = Call()
        self.overdue = clock.now() + OVERDUE
        self.ended = False


class Watcher:
    """What all waiters of a client watch."""

    def __init__(self, runtime: Runtime, consul: Consul) -> None:
        self._consul = consul
        self._workers = Workers(runtime, "fencelock-consul-watch")
        self._lock = locks.rlock()  # a signal handler may come in the middle
        self._watches: dict[str, Watch] = {}
        self._near: dict[str, set[Interest]] = {}

    # Waiting for one of the same client's ---------------------------------------------------------

    def watch_near(self, eye: Eye, key: str) -> None:
        """Wake it when `left` is told of the key."""
        interest = Interest(eye, "", frozenset([key]), False)
        if eye.watched is not None:
            if eye.watched.is_same(interest):
                return
            self.unwatch(eye)
        with self._lock:
            self._near.setdefault(key, set()).add(interest)
            eye.watched = interest

    def left(self, key: str) -> None:
        """A request of this client's has left."""
        if key in self._near:
            with self._lock:
                interests = self._near.pop(key, set())
            for interest in interests:
                interest.eye.wake(gone=True)

    # Waiting for others ---------------------------------------------------------------------------

    def watch(self, eye: Eye, prefix: str, keys: Sequence[str], moves: bool, index: int) -> None:
        """Wake it when one of the keys leaves after `index`; with `moves`, when anything has changed."""
        path = f"/v1/kv/{quote(keys[0])}?" if len(keys) == 1 else f"/v1/kv/{quote(prefix)}?keys&"
        interest = Interest(eye, path, frozenset(keys), moves)
        old = eye.watched
        if old is not None:
            if old.is_same(interest) and old.watch is not None and self._is_live(old.watch):
                return
            self.unwatch(eye)
        eye.watched = interest
        watch = self._joined(interest, index)
        if watch is None:
            return
        try:
            self._workers.start(partial(self._follow, watch))
        except BaseException:
            self._end(watch)
            raise

    async def _follow(self, watch: Watch) -> None:
        """Ask again and again, on a worker."""
        try:
            while not watch.ended:
                watch.overdue = clock.now() + OVERDUE
                path = f"{watch.path}index={watch.index}&wait={WAIT}s"
                self._heard(watch, await self._consul.query(path, watch.call, watch.overdue))
        except BackendUnavailable:
            pass  # a waiter looks once a second, and begins another
        finally:
            self._end(watch)

    def _joined(self, interest: Interest, index: int) -> Watch | None:
        """Return the query that is to be begun; `None` if there is one already, or no more are allowed."""
        with self._lock:
            watch = self._watches.get(interest.path)
            if watch is not None and not self._is_live(watch):
                self._forget(watch)
                watch = None
            new = watch is None
            if watch is None:
                if len(self._watches) >= MOST:
                    return None
                watch = self._watches[interest.path] = Watch(interest.path, index)
            watch.interests.add(interest)
            interest.watch = watch
            return watch if new else None

    @staticmethod
    def _is_live(watch: Watch) -> bool:
        return not watch.ended and clock.now() < watch.overdue

    def _heard(self, watch: Watch, answer: Answer) -> None:
        if answer.status not in {200, 404}:
            self._end(watch)
            return
        keys = self._keys(answer)
        changed = answer.moment != watch.index
        watch.index = answer.moment if answer.moment >= watch.index else 0
        with self._lock:
            gone = {interest for interest in watch.interests if not interest.keys <= keys}
            moved = {interest for interest in watch.interests - gone if changed and interest.moves}
            watch.interests -= gone
            for interest in gone:
                interest.watch = None
            if not watch.interests:
                self._forget(watch)
        for interest in gone:
            interest.eye.wake(gone=True)
        for interest in moved:
            interest.eye.wake(gone=False)

    def unwatch(self, eye: Eye) -> None:
        """Watch nothing for this one any more."""
        interest, eye.watched = eye.watched, None
        if interest is None:
            return
        with self._lock:
            for key in interest.keys:
                near = self._near.get(key)
                if near is not None:
                    near.discard(interest)
                    if not near:
                        self._near.pop(key, None)
            watch = interest.watch
            if watch is not None:
                watch.interests.discard(interest)
                if not watch.interests:
                    self._forget(watch)

    def _end(self, watch: Watch) -> None:
        with self._lock:
            self._forget(watch)

    def _forget(self, watch: Watch) -> None:
        watch.ended = True
        if self._watches.get(watch.path) is watch:
            self._watches.pop(watch.path, None)
        watch.call.hang_up()

    def end(self) -> None:
        """End all queries."""
        with self._lock:
            for watch in list(self._watches.values()):
                self._forget(watch)
            self._near = {}

    async def close(self) -> None:
        """Wait until the workers have ended."""
        await self._workers.close()

    def _keys(self, answer: Answer) -> set[str]:
        if answer.status == 404:
            return set()
        try:
            return {one if isinstance(one, str) else one["Key"] for one in self._consul.parsed(answer)}
        except (TypeError, KeyError) as error:
            raise no_consul(self._consul.address.label) from error
