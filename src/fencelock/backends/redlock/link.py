"""One blocking connection to one node: a socket that never blocks, and what was asked over it."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any

import hiredis

from fencelock.backends.redlock.node import Hello, Node, greeting
from fencelock.backends.redlock.rounds import Round

__all__ = ["Link", "greet"]

READ = 65536


class Link:
    """One connection to one node."""

    __slots__ = ("fd", "index", "pending", "reader", "recv", "send", "sock", "tls")

    def __init__(self, index: int, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.index = index
        self.sock = sock
        self.fd = sock.fileno()
        self.send = sock.send
        self.recv = sock.recv
        self.tls = isinstance(sock, ssl.SSLSocket)
        self.reader = hiredis.Reader()
        self.pending: deque[Round] = deque()

    def post(self, call: bytes) -> None:
        """Send; a node that takes no more bytes is so far behind that it counts as gone."""
        if self.send(call) != len(call):
            raise TimeoutError

    def read(self) -> bool:
        """Read what is there; `False` at the end of the stream."""
        data = self.recv(READ)
        if not data:
            return False
        self.reader.feed(data)
        while self.tls:
            try:
                self.reader.feed(self.recv(READ))
            except ssl.SSLWantReadError:
                break
        return True


def greet(sock: socket.socket, node: Node, left_out: float) -> Hello:
    """Begin a new connection; the socket has a time limit of its own."""
    reader = hiredis.Reader()
    talk = greeting(node, left_out)
    calls: Sequence[bytes] = next(talk)
    while True:
        sock.sendall(b"".join(calls))
        replies: list[Any] = []
        while len(replies) < len(calls):
            reply = reader.gets()
            if reply is not False:
                replies.append(reply)
                continue
            data = sock.recv(READ)
            if not data:
                raise ConnectionResetError("it closed the connection")
            reader.feed(data)
        try:
            calls = talk.send(replies)
        except StopIteration as done:
            hello: Hello = done.value
            return hello
