"""Watches: one stream for a client, however many of its requests wait.

When the stream ends, or another member is asked from now on, everybody looks for himself; the next watch
begins a new one.

A watch begins now, and its confirmation says at which revision that was: if something has happened since the
queue was read, whoever watches looks again, so nothing falls in between. It could begin at the revision
that the queue was read at; but then etcd tells of what has happened since only in rounds of 100 ms.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from functools import partial

from fencelock.backends.etcd import rpc_pb2 as pb
from fencelock.backends.etcd.connection import Etcd
from fencelock.backends.etcd.methods import WATCH
from fencelock.backends.ordered.places import Eye
from fencelock.backends.ordered.turns import mutex
from fencelock.errors import BackendUnavailable
from fencelock.net.channel import Channel
from fencelock.net.failures import Disconnected
from fencelock.net.workers import Workers
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime

__all__ = ["Watcher"]

NO_PUTS = [pb.WatchCreateRequest.NOPUT]
SILENCE = 60.0
"""Seconds that one wait for a message takes at most. The next follows at once."""


class Watches:
    """One channel, and what is watched over it."""

    def __init__(self, channel: Channel[bytes, bytes]) -> None:
        self.channel = channel
        self.eyes: dict[int, Eye] = {}
        self.moments: dict[int, int] = {}
        """When the queue was read that a watch is for, until it is confirmed."""
        self.ended = False

    def heard(self, message: bytes) -> None:
        """An answer has come. In both flavours, not on a waiter's thread."""
        answer = pb.WatchResponse.FromString(message)
        eye = self.eyes.get(answer.watch_id)
        if eye is None:
            return
        if answer.canceled:
            self.eyes.pop(answer.watch_id, None)
        late = answer.created and answer.header.revision > self.moments.pop(answer.watch_id, 0)
        if late or answer.canceled or answer.events:
            eye.wake(gone=any(event.type == pb.Event.DELETE for event in answer.events))

    def end(self) -> None:
        """Hang up; whoever watches over it looks for himself."""
        self.channel.hang_up()
        if not self.ended:
            self.ended = True
            for waiting in list(self.eyes.values()):
                waiting.wake(gone=False)


class Watcher:
    """What all waiters of a client watch."""

    def __init__(self, runtime: Runtime, etcd: Etcd) -> None:
        self._etcd = etcd
        self._workers = Workers(runtime, "fencelock-etcd-watch")
        self._opening = mutex(runtime.flavour)
        self._watches: Watches | None = None
        self._numbers = itertools.count(1)

    async def watch(
        self, eye: Eye, keys: list[tuple[bytes, bytes]], moves: bool, moment: int, deadline: float
    ) -> None:
        """Wake it when one of these ranges of keys loses one or, with `moves`, changes."""
        if self._is_watched(eye, keys, moves):
            return
        self.unwatch(eye)
        try:
            watches = await self._opened(deadline)
        except (BackendUnavailable, TimeoutError):
            return  # then it looks now and then
        numbers = [next(self._numbers) for _ in keys]
        eye.watched = watches, numbers, (keys, moves)
        for number, (key, end) in zip(numbers, keys, strict=True):
            watches.eyes[number] = eye
            watches.moments[number] = moment
            create = pb.WatchCreateRequest(
                key=key,
                range_end=end,
                filters=[] if moves else NO_PUTS,
                watch_id=number,
            )
            question = WATCH.write(pb.WatchRequest(create_request=create))
            await watches.channel.send(question, deadline)
        if watches.ended:
            eye.wake(gone=False)

    def _is_watched(self, eye: Eye, keys: list[tuple[bytes, bytes]], moves: bool) -> bool:
        if eye.watched is None:
            return False
        watches, numbers, what = eye.watched
        return what == (keys, moves) and self._is_good(watches) and all(map(watches.eyes.get, numbers))

    async def _opened(self, deadline: float) -> Watches:
        watches = self._watches
        if watches is None or not self._is_good(watches):
            async with self._opening.until(deadline):
                old = watches = self._watches
                if watches is None or not self._is_good(watches):
                    watches = Watches(await self._etcd.channel(deadline))
                    self._workers.start(partial(self._follow, watches))
                    self._watches = watches
                    if old is not None:
                        old.end()
        return watches

    def _is_good(self, watches: Watches) -> bool:
        """Whether its channel goes on, to the member that is asked now."""
        return not watches.ended and watches.channel.endpoint == self._etcd.current

    async def _follow(self, watches: Watches) -> None:
        """Hear what etcd says, on a worker, until the channel ends."""
        channel = watches.channel
        try:
            while not watches.ended:
                with suppress(TimeoutError):
                    for message in await channel.receive(clock.now() + SILENCE):
                        watches.heard(message)
        except (Disconnected, OSError):
            pass  # whoever watches looks for himself, and begins a new one
        finally:
            watches.end()
            channel.close()

    def unwatch(self, eye: Eye) -> None:
        """Watch nothing for this one any more."""
        if eye.watched is None:
            return
        watches, numbers, _ = eye.watched
        eye.watched = None
        for number in numbers:
            watches.moments.pop(number, None)
            if watches.eyes.pop(number, None) is not None and not watches.ended:
                cancel = pb.WatchCancelRequest(watch_id=number)
                watches.channel.put(WATCH.write(pb.WatchRequest(cancel_request=cancel)))

    def end(self) -> None:
        """Hang up."""
        watches, self._watches = self._watches, None
        if watches is not None:
            watches.end()

    async def close(self) -> None:
        """Wait until the worker has ended."""
        await self._workers.close()
