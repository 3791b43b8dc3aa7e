"""The blocking wire: a connection pinned to each thread, a socket and nothing around it.

A thread's connection is taken out of its slot while it is in use and put back when the reply has been
read whole. So whatever interrupts a request (a time limit, Ctrl-C, a signal handler that takes a
lock itself) can leave no connection behind on which a foreign reply would be read: it is closed.

Time limits are the socket's own (SO_RCVTIMEO), set when they change; `settimeout` would cost
a poll for each read. TLS knows only the latter.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Any

import hiredis

from fencelock.backends import watchdog
from fencelock.backends.redis.commands import Script
from fencelock.backends.redis.failures import closed, no_answer, unreachable
from fencelock.backends.redis.server import Server
from fencelock.backends.redis.topology import Topology
from fencelock.backends.redis.wire import ATTEMPT, CONNECT, Call, Replies, Wire
from fencelock.runtime import clock, locks

__all__ = ["BlockingWire", "Link"]

READ = 65536
SMALL = 1024


class Link:
    """One connection. Used by one thread at a time."""

    __slots__ = (
        "__weakref__",
        "_feed",
        "_gets",
        "_limit",
        "_poll",
        "_recv",
        "_sock",
        "_tls",
        "send",
        "until",
    )

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        reader = hiredis.Reader()
        self._feed, self._gets = reader.feed, reader.gets
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._recv = sock.recv
        self.send = sock.sendall
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self.until = inf
        self._limit = 0.0
        self.limit(ATTEMPT)
        watchdog.watch(self)

    def limit(self, seconds: float) -> None:
        """Let no read or write take longer."""
        if seconds == self._limit:
            return
        self._limit = seconds
        if self._tls:
            self._sock.settimeout(seconds)
            return
        whole = int(seconds)
        timeval = struct.pack("ll", whole, max(1, int((seconds - whole) * 1e6)))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)

    def exchange(self, request: bytes, now: float) -> Any:
        """Send a request and return its reply, which has as long as an attempt: the usual way.

        A signal makes the read begin anew with its whole limit; the watchdog sees to that.
        """
        if self._limit != ATTEMPT:
            self.limit(ATTEMPT)
        self.until = now + ATTEMPT
        self.send(request)
        self._feed(self._recv(SMALL))
        reply = self._gets()
        if reply is False:
            reply = self.receive(now + ATTEMPT)
        self.until = inf
        return reply

    def receive(self, until: float) -> Any:
        """Return the next reply; a server's error is a `hiredis.ReplyError`, returned and not raised."""
        reply = self._gets()
        while reply is False:
            if not self.wait(until - clock.now()):
                raise TimeoutError("no answer in time")
            data = self._recv(READ)
            if not data:
                raise ConnectionResetError("it closed the connection")
            self._feed(data)
            reply = self._gets()
        return reply

    def wait(self, seconds: float) -> bool:
        """Wait until there is something to read; say whether there is. Signals do not prolong it."""
        if self._tls:
            self.limit(max(0.001, seconds))
            return True  # its reads count what is left by themselves
        return bool(self._poll.poll(max(0.0, seconds) * 1000))

    def next(self) -> Any:
        """Return the next reply that has been read already; `False` if there is none."""
        return self._gets()

    def hang_up(self) -> None:
        """Let a read that is under way end at once, as if the server had closed the connection."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        watchdog.forget(self)
        self._sock.close()

    def drop(self) -> None:
        """In a forked child: close the copy of the socket, and nothing else."""
        self._sock.close()

    def __del__(self) -> None:
        self._sock.close()  # its thread has ended


class Own(threading.local):
    """A thread's own connections that are not in use.

    Their dictionary is never bound to a local name: the traceback of an error would keep it beyond the
    end of the thread, and the garbage collector would find sockets that nobody closed.
    """

    def __init__(self) -> None:
        self.idle: dict[Server | None, Link] = {}


class BlockingWire(Wire):
    """Requests over the calling thread's own connections, one to each server it needs."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology)
        self._own = Own()
        self._links: weakref.WeakSet[Link] = weakref.WeakSet()
        self._latch = locks.rlock()  # a signal handler may ask too, on the thread that is asking
        self._closed = False

    async def call(self, script: Script | None, bucket: int, packed: bytes, deadline: float) -> Any:
        # The usual way, without detours: a connection that was good a moment ago, and time enough.
        server = self.topology.known(bucket)
        link = self._own.idle.pop(server, None)
        if link is not None:
            now = clock.now()
            if deadline - now < ATTEMPT:
                self._own.idle[server] = link
                return await self.persist(script, bucket, packed, deadline)
            try:
                reply = link.exchange(packed, now)
            except (OSError, hiredis.ProtocolError):
                link.close()
                self.topology.suspect(server)
                return await self.persist(script, bucket, packed, deadline, again=server)
            except BaseException:
                link.close()
                raise
            else:
                self._own.idle[server] = link
                if reply.__class__ is not hiredis.ReplyError:
                    return reply
        return await self.persist(script, bucket, packed, deadline)

    async def stream(self, calls: Iterator[Call], replies: list[Any], deadline: float) -> Iterable[Call]:
        sent: deque[Call] = deque()
        server = self.topology.known(0)
        link = self._own.idle.pop(server, None)
        if link is None:
            return sent
        try:
            while True:
                call = self.following(calls, len(sent), deadline)
                if call is not None:
                    sent.append(call)
                    link.limit(ATTEMPT)
                    link.send(call.packed)
                if not sent:
                    break
                if call is None or len(sent) == 2:
                    reply = link.receive(clock.now() + ATTEMPT)
                    if reply.__class__ is hiredis.ReplyError:
                        link.close()
                        return sent
                    replies.append(reply)
                    sent.popleft()
        except (OSError, hiredis.ProtocolError):
            link.close()
            self.topology.suspect(server)
        except BaseException:
            link.close()
            raise
        else:
            self._own.idle[server] = link
        return sent

    async def ask(self, server: Server, requests: Sequence[bytes], deadline: float) -> list[Any]:
        data = b"".join(requests)
        again = False
        while True:
            left = deadline - clock.now()
            if left <= 0:
                raise no_answer(server.label)
            link = self._own.idle.pop(server, None)
            old = link is not None
            if link is None:
                link = self.dial(server, min(left, CONNECT))
            try:
                now = clock.now()
                until = min(now + ATTEMPT, deadline)
                link.limit(max(0.001, until - now))
                link.send(data)
                replies = [link.receive(until) for _ in requests]
            except OSError as error:
                link.close()
                if not old and not isinstance(error, BlockingIOError | TimeoutError):
                    raise unreachable(server.label, error, tls=server.tls) from error
                again = True  # it was closed while idle, or the reply was lost: a new connection will tell
            except hiredis.ProtocolError as error:
                link.close()
                raise unreachable(server.label, error) from error
            except BaseException:
                link.close()
                raise
            else:
                self._own.idle[server] = link
                return Replies(replies) if again else replies

    def dial(self, server: Server, timeout: float) -> Link:
        """Return a new connection."""
        if self._closed:
            raise closed()
        link = Link(server.dial(timeout))
        self._links.add(link)
        if self._closed:  # meanwhile: `close` may have looked before it was there
            link.close()
            raise closed()
        return link

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 (nothing suspends here)

    @asynccontextmanager
    async def latch(self, deadline: float) -> AsyncIterator[None]:
        if not self._latch.acquire(timeout=max(0.0, deadline - clock.now())):
            raise no_answer(self.topology.label)
        try:
            yield
        finally:
            self._latch.release()

    async def part(self, server: Server) -> None:
        link = self._own.idle.pop(server, None)
        if link is not None:
            link.close()

    async def close(self) -> None:
        self._closed = True
        for link in list(self._links):
            link.close()
        self.drop()

    def drop(self) -> None:
        for link in list(self._links):
            link.drop()
        self._own = Own()
        self._links = weakref.WeakSet()
