"""How a connection to ZooKeeper reads and writes: in whatever pieces bytes come, and all that there is."""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionDropped, ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import CLOSE_RESPONSE
from kazoo.protocol.serialization import Close, Exists, GetChildren, Sync, write_string

from fencelock.backends.zookeeper import hearing, wire
from fencelock.backends.zookeeper.answers import Answer
from fencelock.backends.zookeeper.handlers import Handler, log
from fencelock.backends.zookeeper.hearing import LENGTH
from fencelock.backends.zookeeper.wire import Connection
from fencelock.runtime import clock

SOON = 30.0


class Quiet:
    """Whose connection it is, and who has nothing to say."""

    give_up = float("inf")

    def prove(self) -> None:
        """There is nothing to prove."""

    def is_idle(self) -> bool:
        return False


class Line:
    """A connection, and the other end of it."""

    def __init__(self) -> None:
        ours, self.member = socket.socketpair()
        ours.setblocking(False)
        self.handler = Handler(None)
        self.handler.source = ours
        woken, self.waker = socket.socketpair()
        self.client = SimpleNamespace(
            _queue=deque(), _pending=deque(), _state="CONNECTED", hosts=[("127.0.0.1", 2181)], last_zxid=0
        )
        made: Any = Connection.__new__(Connection)
        made.handler, made.client, made.session = self.handler, self.client, Quiet()
        made._socket, made._read_sock, made._write_sock = ours, woken, self.waker
        made._xid, made.agreed, made.logger = 0, 10.0, log
        self.connection = made
        self.sockets = [ours, self.member, woken, self.waker]

    def ask(self, *requests: Any) -> list[Answer]:
        """Ask as any thread does."""
        answers = [Answer() for _ in requests]
        self.connection.ask(list(zip(requests, answers, strict=True)))
        return answers

    def asked(self, *requests: Any) -> list[Answer]:
        """Ask, and let the connection's thread send it."""
        answers = self.ask(*requests)
        self.connection._send_request(1.0, 1.0)
        return answers

    def ready(self, timeout: float = 0.0) -> bool:
        readable, _, _ = self.handler.select([self.connection._socket], [], [], timeout)
        return bool(readable)


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    for sock in made.sockets:
        sock.close()


def reply(xid: int, body: bytes = b"", failure: int = 0) -> bytes:
    message = struct.pack(">iqi", xid, 7, failure) + body
    return LENGTH.pack(len(message)) + message


def frames(data: bytes) -> list[bytes]:
    found = []
    while data:
        (length,) = LENGTH.unpack_from(data)
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    return found


def test_a_message_comes_in_pieces(line: Line) -> None:
    def speak() -> None:
        for piece in (b"he", b"ll", b"o world"):
            line.member.send(piece)

    speaker = threading.Thread(target=speak)
    speaker.start()
    assert line.connection._read(5, 1.0) == b"hello"
    speaker.join()
    assert line.connection._read(6, 1.0) == b" world"


def test_what_was_read_along_is_ready(line: Line) -> None:
    line.member.send(b"onetwo")
    assert line.connection._read(3, 1.0) == b"one"
    assert line.ready(), "three bytes lie in the buffer, and the socket has none"
    assert line.connection._read(3, 1.0) == b"two"
    assert not line.ready()


@pytest.mark.parametrize(
    ("arrived", "complete"),
    [(b"", False), (b"\0\0\0", False), (b"\0\0\0\2a", False), (b"\0\0\0\2ab", True), (b"\0\0\0\0", True)],
)
def test_whether_an_answer_is_complete(line: Line, arrived: bytes, complete: bool) -> None:
    line.handler.buffer += arrived
    assert line.connection._is_complete() is complete


def test_all_that_is_to_be_asked_goes_out_together(line: Line) -> None:
    asked = [Sync("/a"), Exists("/b", None), GetChildren("/c", None)]
    for request in asked:
        line.ask(request)
    line.connection._send_request(1.0, 1.0)
    sent = frames(line.member.recv(65536))
    assert [LENGTH.unpack_from(frame)[0] for frame in sent] == [1, 2, 3]
    assert [LENGTH.unpack_from(frame, 4)[0] for frame in sent] == [request.type for request in asked]
    assert [frame[8:] for frame in sent] == [bytes(request.serialize()) for request in asked]
    assert [(request, xid) for request, _, xid in line.client._pending] == list(
        zip(asked, [1, 2, 3], strict=True)
    )
    assert line.connection._asked is not None


def test_a_request_without_its_byte_goes_with_the_next(line: Line) -> None:
    """Whoever queued it was interrupted: else each would wait for the one after it from then on."""
    line.client._queue.append((Sync("/a"), None))
    line.ask(Sync("/b"))
    line.connection._send_request(1.0, 1.0)
    assert len(frames(line.member.recv(65536))) == 2


def test_a_request_without_its_byte_is_found_within_a_second(line: Line) -> None:
    line.client._queue.append((Sync("/a"), None))
    line.connection._said = clock.now()
    line.connection._send_ping(1.0)  # as it does when it was not woken
    assert len(frames(line.member.recv(65536))) == 1


def test_more_requests_than_go_out_together_go_out_one_after_another(line: Line) -> None:
    for _ in range(wire.TOGETHER + 1):
        line.client._queue.append((Sync("/a"), None))
    line.waker.send(b"\0")
    line.connection._send_request(1.0, 1.0)
    assert len(line.client._queue) == 1
    line.connection._send_request(1.0, 1.0)  # it has woken itself, or this would block
    assert not line.client._queue


@pytest.mark.parametrize(("state", "failure"), list(wire.OVER.items()))
def test_whoever_asks_on_a_connection_that_is_over_is_told_so(
    line: Line, state: str, failure: type[Exception]
) -> None:
    line.connection._write_sock = None
    line.client._state = state
    (answer,) = line.ask(Sync("/a"))
    assert isinstance(answer.exception, failure)


def test_a_byte_without_its_request_asks_nothing(line: Line) -> None:
    line.waker.send(b"\0\0")
    line.connection._send_request(1.0, 1.0)
    assert line.connection._asked is None, "no answer is owed"


def test_numbers_wrap_around(line: Line) -> None:
    line.connection._xid = wire.LONGEST_XID
    assert line.connection._next_xid() == 1


def test_a_member_that_takes_nothing_is_given_up(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "CONNECT", 0.05)
    with pytest.raises(KazooTimeoutError):
        line.connection._write(b"x" * 10_000_000, 1.0)


def test_a_member_that_stops_half_way_is_given_up(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing, "CONNECT", 0.05)
    line.member.send(b"ab")
    with pytest.raises(KazooTimeoutError):
        line.connection._read(4, 1.0)


def test_a_member_that_hangs_up(line: Line) -> None:
    line.member.close()
    with pytest.raises(ConnectionDropped):
        line.connection._read(4, 1.0)


def test_ready_though_there_is_nothing_to_read(line: Line) -> None:
    assert line.connection._read_socket(1.0) is None, "as with TLS, which says things to itself"


def test_all_answers_that_have_arrived_are_read_at_once(line: Line) -> None:
    answers = line.asked(Sync("/a"), Sync("/b"), Sync("/c"))
    told = [reply(xid, write_string(path)) for xid, path in enumerate(("/a", "/b", "/c"), 1)]
    line.member.send(b"".join(told))
    line.connection._read_socket(1.0)
    assert [answer.get_nowait() for answer in answers] == ["/a", "/b", "/c"]
    assert not line.client._pending
    assert line.client.last_zxid == 7


def test_a_failure_that_kazoo_does_not_know_is_told_to_the_caller(line: Line) -> None:
    one, two = line.asked(Sync("/a"), Sync("/b"))
    line.member.send(reply(1, failure=-9999))
    with pytest.raises(RuntimeError):
        line.connection._read_socket(1.0)
    assert isinstance(one.exception, ConnectionLoss)
    assert [answer for _, answer, _ in line.client._pending] == [two], "kazoo tells this one"


def test_the_end_of_a_session_is_confirmed(line: Line) -> None:
    line.asked(Close())
    line.member.send(reply(1))
    assert line.connection._read_socket(1.0) is CLOSE_RESPONSE


def test_a_message_that_cannot_be_one(line: Line) -> None:
    line.asked(Sync("/a"))
    line.member.send(LENGTH.pack(-5) + bytes(40))
    with pytest.raises(ConnectionDropped):
        line.connection._read_socket(1.0)


def test_silence_counts_from_what_was_asked_or_heard_last(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(clock, "now", lambda: now)
    line.asked(Sync("/a"))
    now = 1001.5
    line.connection._look()
    now = 1003.0
    with pytest.raises(ConnectionDropped, match="for too long"):
        line.connection._look()
    line.connection._heard = 1002.5
    line.connection._look()
    line.client._pending.clear()
    now = 2000.0
    line.connection._look()
    line.connection._pinged = 1990.0
    with pytest.raises(ConnectionDropped, match="for too long"):
        line.connection._look()


def test_waking_the_thread_of_a_connection_never_waits(line: Line) -> None:
    """The thread wakes itself when more is queued than it sends at once, and it alone reads that."""
    waking = threading.Thread(target=lambda: [line.connection.wake() for _ in range(5000)], daemon=True)
    waking.start()
    waking.join(SOON)
    assert not waking.is_alive()
    assert line.connection._read_sock.recv(1) == b"\0"
