"""TLS in memory: between a stream's socket and its caller, so that both flavours wait for the same thing.

Records that have come are decrypted at once and completely; so when `take` returns, what comes next is
announced by the socket alone.

Not promised: a farewell. Closing sends no `close_notify`, and a server that ends the connection without one
is taken to have ended it.
"""

from __future__ import annotations

import ssl

from fencelock.net.stream import READ, Stream
from fencelock.runtime import locks

__all__ = ["TlsStream"]


class TlsStream(Stream):
    """An encrypted stream. It takes over the socket of a plain one."""

    __slots__ = ("_incoming", "_is_ended", "_lock", "_outgoing", "_tls")

    def __init__(self, plain: Stream, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__(plain._sock, plain._ready)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._is_ended = False
        self._lock = locks.rlock()
        """OpenSSL must not read and write one object in two threads at once."""

    async def handshake(self, deadline: float) -> None:
        """Agree on keys, and check who the server is. Raises `OSError`, of which `ssl.SSLError` is one."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush(deadline)
                await super().readable(deadline)
                self._fill(super().take())
            except ssl.SSLZeroReturnError:  # what Python 3.11.2 calls an end without a farewell
                raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "it ended the TLS handshake") from None
            except ssl.SSLError:
                super().put(self._outgoing.read())  # the alert that tells the server why
                raise
            else:
                return await self._flush(deadline)

    async def _flush(self, deadline: float) -> None:
        super().put(self._outgoing.read())
        while self.has_unsent:
            await self.writable(deadline)
            super().put(b"")

    def _fill(self, data: bytes | None) -> None:
        if data:
            self._incoming.write(data)
        elif data is not None:
            self._incoming.write_eof()

    def put(self, data: bytes) -> None:
        with self._lock:
            while data:
                data = data[self._tls.write(data) :]
            super().put(self._outgoing.read())

    def take(self) -> bytes | None:
        if self._is_ended:
            return b""
        came = super().take()
        if came is None and not self._incoming.pending:  # which the handshake may have left
            return None
        with self._lock:
            self._fill(came)
            data = self._decrypted()
            if self._outgoing.pending:  # an answer to a change of keys
                super().put(self._outgoing.read())
        if not data and not self._is_ended:
            return None
        return data

    def _decrypted(self) -> bytes:
        parts: list[bytes] = []
        try:
            while part := self._tls.read(READ):
                parts.append(part)
            self._is_ended = True
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._is_ended = True
        return b"".join(parts)

    async def readable(self, deadline: float) -> None:
        if not self._is_ended and not self._incoming.pending:
            await super().readable(deadline)
