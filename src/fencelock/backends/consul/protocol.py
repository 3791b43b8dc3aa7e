"""HTTP/1.1 without I/O: what a request looks like, and how bytes become an answer.

Only what a client of Consul needs: one request at a time on a connection, and bodies with a length, in
chunks, or up to the end of the connection.
"""

from __future__ import annotations

from typing import NamedTuple

from fencelock.net.failures import Disconnected, WrongProtocol

__all__ = ["Answer", "Http", "Question", "Reader"]

LONGEST_HEAD = 1 << 16


class Question(NamedTuple):
    """What an agent is asked."""

    method: str
    path: str
    body: bytes = b""


class Answer(NamedTuple):
    """What the server said."""

    status: int
    headers: dict[bytes, bytes]
    """Their names in lower case."""
    body: bytes
    keep: bool
    """Whether another request may be sent on this connection."""

    @property
    def moment(self) -> int:
        """The index that a read is of, for a query that waits for the next; 0 if it says none."""
        text = self.headers.get(b"x-consul-index", b"0")
        return int(text) if text.isdigit() else 0


class Http:
    """Requests and answers on one connection; `head` has the headers that are the same for all."""

    is_urgent = False

    def __init__(self, head: str) -> None:
        self.is_over = False
        self._head = head
        self._outgoing = b""
        self._reader = Reader()

    def ask(self, question: Question) -> int:
        """Put a request."""
        method, path, body = question
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        self._outgoing = head.encode("ascii") + body
        return 0

    def outgoing(self) -> bytes:
        """Return what is to be sent, once."""
        outgoing, self._outgoing = self._outgoing, b""
        return outgoing

    def feed(self, data: bytes) -> list[tuple[int, Answer]]:
        """Take in what has come, nothing being the end; return the answer once it is whole."""
        answer = self._reader.feed(data)
        if answer is None:
            return []
        self.is_over = not answer.keep
        return [(0, answer)]


class Reader:
    """Takes in bytes until they are an answer."""

    def __init__(self) -> None:
        self._data = b""
        self._ended = False
        self._head: tuple[int, dict[bytes, bytes], bool] | None = None
        self._body = b""

    def feed(self, data: bytes) -> Answer | None:
        """Take in what has come, nothing being the end; return the answer once it is whole."""
        self._ended = self._ended or not data
        self._data += data
        if self._head is None and not self._read_head():
            if self._ended:
                raise Disconnected("it closed the connection")
            return None
        assert self._head is not None
        status, headers, keep = self._head
        if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            whole = self._read_chunks()
        elif b"content-length" in headers:
            whole = self._read_length(headers[b"content-length"])
        elif status == 204:
            whole = True
        else:
            whole, keep = self._ended, False
            if whole:
                self._body, self._data = self._data, b""
        if not whole:
            if self._ended:
                raise Disconnected("it closed the connection in the middle of an answer")
            return None
        answer = Answer(status, headers, self._body, keep)
        self._head, self._body = None, b""
        return answer

    def _read_head(self) -> bool:
        end = self._data.find(b"\r\n\r\n")
        if not b"HTTP/1.".startswith(self._data[:7]) or (end < 0 and len(self._data) > LONGEST_HEAD):
            raise WrongProtocol("it does not speak HTTP")
        if end < 0:
            return False
        first, *lines = self._data[:end].split(b"\r\n")
        status = first[9:12]
        if not status.isdigit():
            raise WrongProtocol("it does not speak HTTP")
        headers = {}
        for line in lines:
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip()
        keep = first.startswith(b"HTTP/1.1") and headers.get(b"connection", b"").lower() != b"close"
        self._head, self._data = (int(status), headers, keep), self._data[end + 4 :]
        return True

    def _read_length(self, text: bytes) -> bool:
        if not text.isdigit():
            raise WrongProtocol("it gives no length of its answer")
        length = int(text)
        if len(self._data) < length:
            return False
        self._body, self._data = self._data[:length], self._data[length:]
        return True

    def _read_chunks(self) -> bool:
        while True:
            line, end, rest = self._data.partition(b"\r\n")
            if not end:
                return False
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError as error:
                raise WrongProtocol("it gives no length of a chunk") from error
            if len(rest) < size + 2:
                return False
            self._body, self._data = self._body + rest[:size], rest[size + 2 :]
            if size == 0:
                return True
