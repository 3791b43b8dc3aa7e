"""Opening a stream: look the host up, connect to the first address that answers, and shake hands for TLS.

Each address gets its share of the time that is left, so that one that swallows packets does not use up the
time of the others.
"""

from __future__ import annotations

import os
import socket
import ssl
from dataclasses import dataclass

from fencelock.net.lookup import Lookups, Resolved
from fencelock.net.stream import Stream
from fencelock.net.tls import TlsStream
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime

__all__ = ["Connector", "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """A server: `HOST:PORT`, and what TLS needs."""

    endpoint: str
    tls: ssl.SSLContext | None = None
    server_name: str | None = None

    @property
    def host(self) -> str:
        """The host, without the brackets of an IPv6 address."""
        return self.endpoint.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port."""
        return int(self.endpoint.rpartition(":")[2])


class Connector:
    """Opens the streams of one client."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lookups = Lookups(runtime)

    async def open(self, target: Target, deadline: float) -> Stream:
        """Return a stream that is connected. Raises `OSError`."""
        stream = await self._reach(target, deadline)
        if target.tls is None:
            return stream
        try:
            tls = TlsStream(stream, target.tls, target.server_name or target.host)
            await tls.handshake(deadline)
        except BaseException:
            stream.close()
            raise
        return tls

    async def _reach(self, target: Target, deadline: float) -> Stream:
        found = await self._lookups.find(target.host, target.port, deadline)
        for left in range(len(found), 1, -1):
            share = (deadline - clock.now()) / left
            try:
                return await self._connect(found[-left], clock.now() + share)
            except OSError:
                continue
        return await self._connect(found[-1], deadline)

    async def _connect(self, resolved: Resolved, deadline: float) -> Stream:
        sock = socket.socket(resolved.family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = Stream(sock, self._runtime.readiness(sock))
            try:
                sock.connect(resolved.address)
            except BlockingIOError:
                await stream.writable(deadline)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise OSError(code, os.strerror(code)) from None
        except BaseException:
            sock.close()
            raise
        return stream
