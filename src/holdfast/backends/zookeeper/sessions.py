"""Sessions: kazoo's clients, one for each tenure, with five things done to them.

kazoo pings for as long as its thread runs. That is too long: a lease that nobody renews must end though its
process lives. So a session with a request in it is kept by heartbeats of ours alone, and pinged only
while nothing is in it.

kazoo notices a silent member by its own pings, after a third of the session, and connects for as long as a
session lasts. Here a member that owes an answer for a second or two is left for another.

kazoo goes on with a new session when one has expired. Here that is the end: `lost` is called, at once.

A member answers a heartbeat by itself and tells the leader of it up to half a tick later. If it is cut off in
between, the leader counts from the heartbeat before. So each heartbeat is followed by a question to the
leader, and only with its answer, or a connection elsewhere, is it *proved*; a session with a lease in it that
loses its connection counts as ended when the last heartbeat that was proved has run out.

kazoo hands what it hears to two more threads. Here it is told on the connection's own thread, in the order in
which the server said it: whoever has an answer knows of all deletions before it.
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.exceptions import AuthFailedError, ConnectionDropped, KazooException  # type: ignore[import-untyped]
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler  # type: ignore[import-untyped]
from kazoo.protocol.connection import PING_XID, ConnectionHandler  # type: ignore[import-untyped]
from kazoo.protocol.serialization import CloseInstance, Connect, PingInstance  # type: ignore[import-untyped]
from kazoo.protocol.states import EventType, KazooState  # type: ignore[import-untyped]

from holdfast.backends.ordered.places import Eye
from holdfast.backends.zookeeper.address import Address
from holdfast.runtime import clock

__all__ = ["NotZooKeeper", "Session"]

CONNECT = 1.5
"""Seconds that one member has to accept a connection, and again to answer the greeting."""
LOOK = 1.0
"""The connection's thread looks around at least this often."""
SILENCE = 2.0
"""Seconds after which a member that owes an answer is left; a third of the session if that is less."""
RELAY = 1.2
"""Seconds after which a member has told the leader of a heartbeat: half a tick of two seconds, and some."""
GOODBYE = 1.0
"""Seconds that a member has to confirm the end of a session."""
LONGEST_GREETING = 4096


class Quiet(logging.LoggerAdapter[logging.Logger]):
    """Whatever kazoo has to say is for whoever looks for it: what matters, holdfast says itself."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        super().log(min(level, logging.DEBUG), msg, *args, **kwargs)


log = Quiet(logging.getLogger("holdfast.zookeeper"), {})


class NotZooKeeper(ConnectionDropped):  # type: ignore[misc]
    """What answers is something else."""


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, without those that it would hand events to."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._context = context
        self.trouble: Exception | None = None
        """Why there is no connection."""

    def start(self) -> None:
        """Start nothing: `running` stays false, and callbacks run where they are called."""

    def stop(self) -> None:
        """Stop nothing."""

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> threading.Thread:
        thread = threading.Thread(
            target=func, args=args, kwargs=kwargs, name="holdfast-zookeeper", daemon=True
        )
        thread.start()
        return thread

    def create_connection(self, address: tuple[str, int], hostname: str, **_: Any) -> socket.socket:
        """Connect; kazoo's own would leave a socket behind where TLS fails."""
        try:
            sock = socket.create_connection(address, CONNECT)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._context is not None:
                    return self._context.wrap_socket(sock, server_hostname=hostname)
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            self.trouble = error
            raise
        return sock

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)


class Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which gives up on the silent, and is silent itself when told so."""

    session: Session
    agreed = 0.0
    """The length of the session that the server agreed to."""
    _asked: float | None = None
    """Since when an answer is owed."""
    _said = 0.0
    """When something was last said."""
    _greeting = False

    def zk_loop(self) -> None:
        try:
            super().zk_loop()
        except Exception as error:  # noqa: BLE001 (kazoo lets through whatever a driver of TLS or SASL raises)
            known = isinstance(error, KazooException | OSError)
            self.session.failed(error if known else KazooException(f"{type(error).__name__}: {error}"))
        finally:
            with suppress(Exception):
                self.close()
            self.session.over.set()

    def _connect(self, host: Any, hostip: Any, port: Any) -> tuple[float, float]:
        sent = clock.now()
        self._greeting = True
        try:
            read, connect = super()._connect(host, hostip, port)
        except (ConnectionDropped, AuthFailedError, KazooTimeoutError) as error:
            if not isinstance(self.handler.trouble, ssl.SSLError | NotZooKeeper):
                self.handler.trouble = error.__cause__ or error.__context__ or error
            elif len(self.client.hosts) == 1:
                self.session.failed(self.handler.trouble)
            raise
        finally:
            self._greeting = False
        self.handler.trouble = None
        self.agreed = read * 1.5 / 1000.0
        self._asked = None
        self._said = clock.now()
        self.session.connected(sent)
        return min(read, LOOK * 2000.0), connect

    def _invoke(self, timeout: float, request: Any, xid: Any = None) -> Any:
        if isinstance(request, Connect):
            timeout = CONNECT
        return super()._invoke(timeout, request, xid)

    def _read(self, length: int, timeout: float) -> bytes:
        if self._greeting and not 0 <= length <= LONGEST_GREETING:
            self.handler.trouble = NotZooKeeper("it does not speak ZooKeeper's protocol")
            raise self.handler.trouble
        found: bytes = super()._read(length, timeout)
        return found

    def _read_socket(self, read_timeout: float) -> Any:
        response = super()._read_socket(read_timeout)
        self._asked = clock.now() if self.client._pending else None
        return response

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        self._look()
        super()._send_request(read_timeout, connect_timeout)
        self._note()
        self.session.prove()

    def _send_ping(self, connect_timeout: float) -> None:
        """Called when nothing was sent for a while: look around, and perhaps ping."""
        self._look()
        self.session.prove()
        if clock.now() - self._said >= self.agreed / 3 - LOOK and self.session.is_idle():
            self._submit(PingInstance, connect_timeout, PING_XID)
            self._note()

    def _look(self) -> None:
        now = clock.now()
        if self._asked is not None and now - self._asked > min(SILENCE, self.agreed / 3):
            raise ConnectionDropped("no answer for too long")
        if now > self.session.give_up:
            raise ConnectionDropped("closed")

    def _note(self) -> None:
        self._said = clock.now()
        if self._asked is None:
            self._asked = self._said


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
        self.is_idle = is_idle
        """Whether there is nothing in it that ends by being left alone."""
        self._is_held = is_held
        """Whether some lease counts on it."""
        self._lost = lost
        self.ready = self.handler.async_result()
        """Set when it is connected for the first time, or cannot be."""
        self.over = threading.Event()
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
        self._proved = 0.0
        """When the last one was sent that the leader knows of."""
        self._watching = threading.Lock()
        self._eyes: dict[str, set[Eye]] = {}
        """Who is told of which znode."""
        self.armed: set[str] = set()
        """Znodes that are there: the server would have told of their end."""
        self.client.add_listener(self._changed)

    def start(self) -> None:
        """Begin to connect; `ready` tells of the outcome."""
        self.client.start_async()

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

    # What the connection's thread calls ---------------------------------------------------------

    def connected(self, sent: float) -> None:
        """A member took the session over, and the leader counts anew."""
        self.ident = int(self.client._session_id)
        self._proved = sent
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
                self._proved = max(self._proved, proving.sent)

        answer.rawlink(proved)

    def _changed(self, state: str) -> None:
        if state == KazooState.SUSPENDED and not self._closing:
            counted = self._proved if self._is_held() else max(self._proved, self._beat.sent)
            self._stop_timer()
            left = max(0.0, counted + self.agreed - clock.now())
            self._timer = threading.Timer(left, self._run_out)
            self._timer.daemon = True
            self._timer.name = "holdfast-zookeeper-timer"
            self._timer.start()
        elif state == KazooState.LOST:
            self.client._stopped.set()  # or kazoo would go on with another session
            if not self.ready.ready():
                self.failed(self.handler.trouble or AuthFailedError())
            self._end("its ZooKeeper session has expired")

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
                found = {eye for eyes in self._eyes.values() for eye in eyes}
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

    def end(self) -> None:
        """End the session and every znode in it. Does not wait: its thread sees to it."""
        self._closing = True
        self._stop_timer()
        self.give_up = min(self.give_up, clock.now() + GOODBYE)
        client = self.client
        if not client._stopped.is_set():
            client._stopped.set()
            client._queue.append((CloseInstance, None))
            with suppress(OSError, AttributeError):
                client._connection._write_sock.send(b"\0")

    def drop(self) -> None:
        """In a forked child: close the sockets, without a word to the server."""
        connection = self._connection
        for sock in (connection._socket, connection._read_sock, connection._write_sock):
            if sock is not None:
                with suppress(OSError):
                    sock.close()
