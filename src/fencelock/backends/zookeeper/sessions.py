"""Sessions: kazoo's clients, one for each tenure, with three things done to them.

kazoo pings for as long as its thread runs. That is too long: a lease that nobody renews must end though its
process lives. So a session with a request in it is kept by heartbeats of ours alone, and pinged only
while nothing is in it.

kazoo goes on with a new session when one has expired. Here that is the end: `lost` is called, at once.

A member answers a heartbeat by itself and tells the leader of it up to half a tick later. If it is cut off in
between, the leader counts from the heartbeat before. So each heartbeat is followed by a question to the
leader, and only with its answer, or a connection elsewhere, is it *proved*; a session with a lease in it that
loses its connection counts as ended when the last heartbeat that was proved has run out.

How its connection reads and writes is in `wire.py`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import AuthFailedError  # type: ignore[import-untyped]
from kazoo.protocol.serialization import CloseInstance  # type: ignore[import-untyped]
from kazoo.protocol.states import EventType, KazooState  # type: ignore[import-untyped]

from fencelock.backends.ordered.places import Eye
from fencelock.backends.zookeeper.address import Address
from fencelock.backends.zookeeper.answers import Answer
from fencelock.backends.zookeeper.handlers import Flag, Handler, log
from fencelock.backends.zookeeper.wire import Connection
from fencelock.runtime import clock, locks

__all__ = ["Session"]

RELAY = 1.2
"""Seconds after which a member has told the leader of a heartbeat: half a tick of two seconds, and some."""
EXPIRED = "its ZooKeeper session has expired"
GOODBYE = 1.0
"""Seconds that a member has to confirm the end of a session."""


class Beat(NamedTuple):
    """A heartbeat that was answered."""

    sent: float
    answered: float


class Session:
    """One session with the ensemble."""

    def __init__(
        self,
        address: Address,
        seconds: float,
        *,
        is_idle: Callable[[], bool],
        is_held: Callable[[], bool],
        lost: Callable[[str], None],
    ) -> None:
        self.handler = Handler(address.context())
        self.client = KazooClient(
            timeout=seconds,
            handler=self.handler,
            connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": 0.5, "backoff": 2},
            logger=log,
            **address.options(),
        )
        self._connection = self.client._connection
        self._connection.__class__ = Connection
        self._connection.session = self
        self.client._call = lambda request, answer: self._connection.ask([(request, answer)])
        self.is_idle = is_idle
        """Whether there is nothing in it that ends by being left alone."""
        self._is_held = is_held
        """Whether some lease counts on it."""
        self._lost = lost
        self.ready = self.handler.async_result()
        """Set when it is connected for the first time, or cannot be."""
        self.over = Flag()
        """Its thread has ended, or as good as that."""
        self.ident = 0
        self.ended = False
        self.give_up = math.inf
        self._closing = False
        self._timer: threading.Timer | None = None
        self._beat = Beat(0.0, 0.0)
        """The last one."""
        self._proving: Beat | None = None
        """The one that is to be proved next."""
        self.proved = 0.0
        """When the last one was sent that the leader knows of."""
        self._watching = locks.rlock()  # a signal handler may come in the middle
        self._eyes: dict[str, set[Eye]] = {}
        """Who is told of which znode."""
        self.armed: set[str] = set()
        """Znodes that are there: the server would have told of their end."""
        self.client.add_listener(self._changed)

    def start(self) -> None:
        """Begin to connect; `ready` tells of the outcome. Whoever is interrupted has begun nothing."""
        try:
            self.client.start_async()
        except BaseException:
            self.end()
            raise

    @property
    def agreed(self) -> float:
        """The seconds that the server agreed to."""
        return float(self._connection.agreed)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or is ending."""
        return self.ended or self._closing

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection just now."""
        return bool(self.client.connected)

    # Asking -------------------------------------------------------------------------------------

    def path(self, path: str) -> str:
        """Return a path as the server knows it."""
        return f"{self.client.chroot}{path}"

    def ask(self, *requests: Any) -> list[Answer]:
        """Send requests of kazoo's together; return what their answers will be found in."""
        asked = [(request, Answer()) for request in requests]
        self._connection.ask(asked)
        return [answer for _, answer in asked]

    # What the connection's thread calls ---------------------------------------------------------

    def connected(self, sent: float) -> None:
        """A member took the session over, and the leader counts anew."""
        self.ident = int(self.client._session_id)
        self.proved = sent
        self._proving = None
        self._stop_timer()
        if not self.ready.ready():
            self.ready.set(True)

    def failed(self, error: Exception) -> None:
        """It cannot go on."""
        self.handler.trouble = error
        if not self.ready.ready():
            self.ready.set_exception(error)

    def prove(self) -> None:
        """Prove the last heartbeat, if it is time to."""
        proving = self._proving
        if proving is None or clock.now() < proving.answered + RELAY:
            return
        self._proving = self._beat if self._beat is not proving else None
        answer = self.client.sync_async("/")

        def proved(answer: Any) -> None:
            if answer.successful():
                self.proved = max(self.proved, proving.sent)

        answer.rawlink(proved)

    def _changed(self, state: str) -> None:
        if state == KazooState.SUSPENDED and not self._closing:
            counted = self.proved if self._is_held() else max(self.proved, self._beat.sent)
            self._stop_timer()
            left = max(0.0, counted + self.agreed - clock.now())
            self._timer = threading.Timer(left, self._run_out)
            self._timer.daemon = True
            self._timer.name = "fencelock-zookeeper-timer"
            self._timer.start()
        elif state == KazooState.LOST:
            self.client._stopped.set()  # or kazoo would go on with another session
            if not self.ready.ready():
                self.failed(self.handler.trouble or AuthFailedError())
            self._end(EXPIRED)

    def _run_out(self) -> None:
        self._end("its ZooKeeper session has run out without a connection")
        self.end()

    def _end(self, reason: str) -> None:
        self._stop_timer()
        if not self.ended:
            self.ended = True
            if not self._closing:
                self._lost(reason)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    # Watches ------------------------------------------------------------------------------------

    def watch(self, eye: Eye, paths: Sequence[str]) -> None:
        """From now on what is heard of these znodes is told."""
        with self._watching:
            eye.watched = self, paths
            for path in paths:
                self._eyes.setdefault(path, set()).add(eye)

    def unwatch(self, eye: Eye, paths: Sequence[str]) -> None:
        """Tell it no more."""
        with self._watching:
            eye.watched = None
            for path in paths:
                eyes = self._eyes.get(path, set())
                eyes.discard(eye)
                if not eyes:
                    self._eyes.pop(path, None)

    def heard(self, event: Any) -> None:
        """Something that is watched has changed, or the connection is gone and every watch with it."""
        gone = event.type == EventType.DELETED
        with self._watching:
            if event.path is None:
                found = {eye for eyes in list(self._eyes.values()) for eye in list(eyes)}
                self._eyes.clear()
                self.armed.clear()
            else:
                found = self._eyes.pop(event.path, set())
                if gone:
                    self.armed.discard(event.path)
        for eye in found:
            eye.wake(gone=gone)

    def beat(self, sent: float) -> None:
        """A heartbeat was answered."""
        self._beat = Beat(sent, clock.now())
        if self._proving is None:
            self._proving = self._beat

    # The end ------------------------------------------------------------------------------------

    def expired(self) -> None:
        """Somebody was told that it has ended: so is everybody who counts on it, if they do not know yet.

        And it is ended, or, should it live, it would keep its znodes though nobody knows of it.
        """
        self._end(EXPIRED)
        self.end()

    def end(self) -> None:
        """End the session and every znode in it. Does not wait: its thread sees to it."""
        self._closing = True
        self._stop_timer()
        self.give_up = min(self.give_up, clock.now() + GOODBYE)
        client = self.client
        if not client._stopped.is_set():
            client._stopped.set()
            client._queue.append((CloseInstance, None))
            self._connection.wake()

    def drop(self) -> None:
        """In a forked child: close the sockets, without a word to the server."""
        connection = self._connection
        for sock in (connection._socket, connection._read_sock, connection._write_sock):
            if sock is not None:
                with suppress(OSError):
                    sock.close()
