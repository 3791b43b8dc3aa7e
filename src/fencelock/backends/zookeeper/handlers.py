"""What kazoo asks of its surroundings: threads, sockets, waiting, a log. Fewer of each than it would take."""

from __future__ import annotations

import logging
import math
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import ConnectionDropped  # type: ignore[import-untyped]
from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]

from fencelock.backends.zookeeper.answers import Answer
from fencelock.runtime import clock
from fencelock.runtime.threads import launch

__all__ = ["CONNECT", "Flag", "Handler", "NotZooKeeper", "log"]

CONNECT = 1.5
"""Seconds that one member has to accept a connection, to answer the greeting, and to take or send a piece."""
LOOK = 0.002


class Quiet(logging.LoggerAdapter[logging.Logger]):
    """Whatever kazoo has to say is for whoever looks for it: what matters, fencelock says itself."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self.logger.isEnabledFor(logging.DEBUG):
            super().log(min(level, logging.DEBUG), msg, *args, **kwargs)


log = Quiet(logging.getLogger("fencelock.zookeeper"), {})


class NotZooKeeper(ConnectionDropped):  # type: ignore[misc]
    """What answers is something else."""


class Flag:
    """An event without a lock: that of one of `threading`'s may be left taken for good by an interrupt."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; it is looked at now and then. Say whether it is."""
        give_up = math.inf if timeout is None else clock.now() + timeout
        while not self._is_set and clock.now() < give_up:
            time.sleep(LOOK)
        return self._is_set


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, without those that it would hand events to."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._context = context
        self.trouble: Exception | None = None
        """Why there is no connection."""
        self.source: socket.socket | None = None
        """The connection to the member."""
        self.buffer = bytearray()
        """What has arrived from it and was not looked at."""

    def async_result(self) -> Answer:
        return Answer()

    def event_object(self) -> Flag:
        return Flag()

    def start(self) -> None:
        """Start nothing: `running` stays false, and callbacks run where they are called."""

    def stop(self) -> None:
        """Stop nothing."""

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> threading.Thread:
        thread = threading.Thread(
            target=func, args=args, kwargs=kwargs, name="fencelock-zookeeper", daemon=True
        )
        launch(thread)
        return thread

    def create_connection(self, address: tuple[str, int], hostname: str, **_: Any) -> socket.socket:
        """Connect; kazoo's own would leave a socket behind where TLS fails."""
        self.buffer.clear()
        try:
            sock = socket.create_connection(address, CONNECT)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._context is not None:
                    sock = self._context.wrap_socket(sock, server_hostname=hostname)
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            self.trouble = error
            raise
        self.source = sock
        return sock

    def select(
        self, reading: Sequence[Any], writing: Sequence[Any], _: Sequence[Any], timeout: float
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait until one of these is ready; what was read already is ready."""
        poll = select.poll()
        for sock in reading:
            poll.register(sock, select.POLLIN)
        for sock in writing:
            poll.register(sock, select.POLLOUT)
        unread = [sock for sock in reading if sock is self.source and self.is_unread()]
        found = {fd for fd, _ in poll.poll(0 if unread else math.ceil(timeout * 1000))}
        readable = [sock for sock in reading if sock.fileno() in found or sock in unread]
        return readable, [sock for sock in writing if sock.fileno() in found], []

    def is_unread(self) -> bool:
        """Whether something has arrived that `source` will not be ready for."""
        return bool(self.buffer) or (isinstance(self.source, ssl.SSLSocket) and self.source.pending() > 0)

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)
