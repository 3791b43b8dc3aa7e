"""Watches: one stream for a client, however many of its requests wait.

A thread reads the stream, in both flavours, and wakes whoever waits for what it tells. When the stream ends,
for whatever reason, everybody looks for himself; the next watch begins a new one. A watch begins right
after the moment that its queue was read at, so nothing falls in between; if that moment has been
compacted away, the server says so, and its waiter looks again.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterator
from typing import Any

import grpc

from holdfast.backends.etcd import rpc_pb2 as pb
from holdfast.backends.etcd.methods import WATCH
from holdfast.backends.etcd.wire import Wire
from holdfast.backends.ordered.places import Place

__all__ = ["Watcher"]

NO_PUTS = [pb.WatchCreateRequest.NOPUT]


class Stream:
    """One stream, and what is watched over it."""

    def __init__(self, wire: Wire) -> None:
        self.places: dict[int, Place] = {}
        self.ended = False
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call = wire.stream(WATCH, self._outgoing())
        self.thread = threading.Thread(target=self._read, name="holdfast-etcd-watch", daemon=True)
        self.thread.start()

    def _outgoing(self) -> Iterator[Any]:
        while (request := self._requests.get()) is not None:
            yield request

    def send(self, **request: Any) -> None:
        """Ask for a watch, or for the end of one."""
        self._requests.put(pb.WatchRequest(**request))

    def _read(self) -> None:
        try:
            for answer in self._call:
                place = self.places.get(answer.watch_id)
                if place is None:
                    continue
                if answer.canceled:
                    place.wake(gone=False)
                elif answer.events:
                    gone = any(event.type == pb.Event.DELETE for event in answer.events)
                    place.wake(gone=gone)
        except grpc.RpcError:
            pass  # the server, or we, ended it
        finally:
            self.ended = True
            self._requests.put(None)
            for place in list(self.places.values()):
                place.wake(gone=False)

    def end(self) -> None:
        """End the stream, from our side."""
        self._requests.put(None)
        self._call.cancel()


class Watcher:
    """What all waiters of a client watch."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._numbers = itertools.count(1)

    def watch(self, place: Place, keys: list[tuple[bytes, bytes]], moves: bool, moment: int) -> None:
        """Wake the place when one of these ranges of keys loses one or, with `moves`, changes."""
        self.unwatch(place)
        with self._lock:
            stream = self._stream
            if stream is None or stream.ended:
                stream = self._stream = Stream(self._wire)
            numbers = [next(self._numbers) for _ in keys]
            place.watched = stream, numbers
            for number, (key, end) in zip(numbers, keys, strict=True):
                stream.places[number] = place
                create = pb.WatchCreateRequest(
                    key=key,
                    range_end=end,
                    start_revision=moment + 1,
                    filters=[] if moves else NO_PUTS,
                    watch_id=number,
                )
                stream.send(create_request=create)
            if stream.ended:
                place.wake(gone=False)

    def unwatch(self, place: Place) -> None:
        """Watch nothing for this place any more."""
        if place.watched is None:
            return
        stream, numbers = place.watched
        place.watched = None
        for number in numbers:
            if stream.places.pop(number, None) is not None and not stream.ended:
                stream.send(cancel_request=pb.WatchCancelRequest(watch_id=number))

    def close(self) -> None:
        """End the stream."""
        with self._lock:
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.end()
