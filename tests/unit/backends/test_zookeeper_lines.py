"""Who reads and writes on a line to ZooKeeper: whoever asks, and the connection's thread in between."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.exceptions import ConnectionDropped, ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import CLOSE_RESPONSE
from kazoo.protocol.serialization import Close, GetChildren, Sync, write_string
from tests.unit.backends.test_zookeeper_wire import Line as Wire

from fencelock.backends.ordered.places import Eye
from fencelock.backends.zookeeper.answers import Answer, Children
from fencelock.backends.zookeeper.handlers import log
from fencelock.backends.zookeeper.hearing import LENGTH
from fencelock.backends.zookeeper.lines import Line, Reader
from fencelock.backends.zookeeper.sessions import Nudge
from fencelock.runtime import clock
from fencelock.runtime.blocking import BlockingSignal

SOON = 30.0


def soon() -> float:
    return clock.now() + SOON


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire()
    connection = made.connection
    connection._write_sock = made.waker
    connection.client.last_zxid = 0
    connection.logger = log
    made.handler.line = Line(connection._socket, connection._read_sock)
    yield made
    if made.handler.line is not None:
        made.handler.line.stop()
    for sock in made.sockets:
        sock.close()


def reply(xid: int, body: bytes = b"", failure: int = 0) -> bytes:
    message = struct.pack(">iqi", xid, 7, failure) + body
    return LENGTH.pack(len(message)) + message


def asked(wire: Wire, *requests: Any) -> list[Answer]:
    answers = [Answer() for _ in requests]
    wire.connection.ask(list(zip(requests, answers, strict=True)))
    return answers


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def until(condition: Callable[[], bool]) -> None:
    deadline = soon()
    while not condition():
        assert clock.now() < deadline
        time.sleep(0.001)


def reads(line: Line) -> bool:
    return line._reader is not None


# Lines ------------------------------------------------------------------------------------------


def test_nobody_uses_a_line_on_which_somebody_was_interrupted(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer is half taken: the next one would be given to the wrong question."""
    connection, line = wire.connection, wire.handler.line
    first, second = asked(wire, Sync("/"), Sync("/"))
    wire.member.sendall(reply(1, write_string("/")) + reply(2, write_string("/")))

    def interrupted(header: Any, message: bytes) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(connection, "_hand_over", interrupted)
        with pytest.raises(KeyboardInterrupt):
            connection.read_until(first.ready, soon())
    assert isinstance(first.exception, ConnectionLoss)
    assert not reads(line), "it was given back"
    line.borrow(lambda me: pytest.fail("nobody may"))
    assert not line.take()
    connection.read_until(second.ready, soon())
    assert not second.ready()
    with pytest.raises(ConnectionDropped):
        connection._read_socket(0.0)
    with pytest.raises(ConnectionDropped):
        connection._send_request(0.0, 0.0)
    assert wire.handler.line is None


def test_whoever_asks_reads_its_answer_and_those_of_others(wire: Wire) -> None:
    one, two, other = asked(wire, Sync("/a"), Sync("/b"), Sync("/c"))
    assert wire.waker.getblocking(), "nobody was woken for it"
    wire.member.send(
        b"".join(reply(xid, write_string(path)) for xid, path in enumerate(("/a", "/b", "/c"), 1))
    )
    wire.connection.read_until(two.ready, soon())
    assert [answer.get(timeout=SOON) for answer in (one, two, other)] == ["/a", "/b", "/c"]
    assert not wire.client._pending
    assert wire.client.last_zxid == 7


def test_what_was_queued_before_goes_first(wire: Wire) -> None:
    wire.client._queue.append((Sync("/first"), None))
    (answer,) = asked(wire, Sync("/second"))
    assert [request.path for request, _ in wire.client._queue] == ["/first", "/second"]
    assert not answer.ready()


def test_while_somebody_reads_the_connections_thread_does_not(wire: Wire) -> None:
    line = wire.handler.line
    assert line is not None

    def read(me: Reader) -> None:
        wire.member.send(reply(1))
        assert line.wait(0.0) == [], "it is not even woken"
        assert wire.connection._read_socket(1.0) is None
        line.borrow(lambda me: pytest.fail("one at a time"))

    line.borrow(read)
    assert line.wait(SOON) == [wire.connection._socket]


def test_whoever_reads_is_woken_when_the_line_is_stopped(wire: Wire) -> None:
    line = wire.handler.line
    assert line is not None
    (answer,) = asked(wire, Sync("/a"))
    reader = in_thread(lambda: wire.connection.read_until(answer.ready, soon()))
    until(lambda: reads(line))
    wire.connection._stop_line()
    reader.join(SOON)
    assert not reader.is_alive()
    assert wire.connection._failure is None, "that was no failure of the line's"
    (late,) = asked(wire, Sync("/b"))
    assert [answer for _, answer in wire.client._queue] == [late], "nobody uses it any more"


def test_a_failure_of_whoever_reads_is_left_to_the_connections_thread(wire: Wire) -> None:
    (answer,) = asked(wire, Sync("/a"))
    wire.member.close()
    wire.connection.read_until(answer.ready, soon())
    assert not answer.ready()
    with pytest.raises(ConnectionDropped):
        wire.connection._send_request(1.0, 1.0)  # it was woken
    assert wire.handler.line is None


def test_the_end_of_a_session_may_be_heard_by_anybody(wire: Wire) -> None:
    wire.connection.ask([(Close(), None)])
    wire.member.send(reply(1))
    wire.connection.read_until(lambda: False, soon())
    assert wire.connection._read_socket(1.0) is CLOSE_RESPONSE
    assert wire.handler.line is None


def test_a_message_that_cannot_be_one(wire: Wire) -> None:
    asked(wire, Sync("/a"))
    wire.member.send(LENGTH.pack(-5) + bytes(40))
    with pytest.raises(ConnectionDropped):
        wire.connection._read_socket(1.0)


def test_whoever_rests_by_reading_is_woken_by_others(wire: Wire) -> None:
    line = wire.handler.line
    assert line is not None
    eye, counted = Eye(), []

    def rest() -> None:
        eye.signal = Nudge(BlockingSignal(), line)
        wire.connection.read_until(lambda: eye.stirred, soon())

    reader = in_thread(rest)
    until(lambda: reads(line))
    eye.wake(gone=False)
    reader.join(SOON / 2)
    assert not reader.is_alive()
    line.borrow(lambda me: counted.append(line.arrives(me, 0.0)))
    assert counted == [False], "a nudge counts once"


class Interrupted:
    """A `poll` in the middle of which a signal handler runs."""

    def __init__(self, handler: Callable[[], None]) -> None:
        self._handler = handler

    def poll(self, milliseconds: int) -> list[tuple[int, int]]:
        self._handler()
        return []


def test_a_signal_handler_reads_in_the_middle_of_a_wait_of_its_thread(wire: Wire) -> None:
    """The frame below it has the reading and does not go on: the handler takes it, for everybody."""
    line, own = wire.handler.line, []
    assert line is not None

    def handler() -> None:
        (answer,) = asked(wire, Sync("/b"))
        wire.member.send(reply(1, write_string("/a")) + reply(2, write_string("/b")))
        assert not line.is_entangled()
        wire.connection.read_until(answer.ready, soon())
        own.append(answer.get_nowait())
        assert line.wait(0.0) == [], "there is nothing more to read"
        assert line.take(), "from now on the connection's thread may"
        line.done()

    (first,) = asked(wire, Sync("/a"))
    line._poll = Interrupted(handler)  # type: ignore[assignment]
    wire.connection.read_until(lambda: False, soon())  # ends: it reads no more
    assert own == ["/b"]
    assert first.get_nowait() == "/a"
    assert not reads(line)


def test_a_signal_handler_makes_way_for_others(wire: Wire) -> None:
    line, found = wire.handler.line, []
    assert line is not None

    def handler() -> None:
        found.append(line.take())
        line.make_way()
        found.append(line.take())
        line.done()

    line._poll = Interrupted(handler)  # type: ignore[assignment]
    wire.connection.read_until(lambda: False, soon())
    assert found == [False, True]
    line.make_way()
    reader = in_thread(lambda: wire.connection.read_until(lambda: False, clock.now() + 0.5))
    until(lambda: reads(line))
    line.make_way()
    assert reads(line), "that of another thread is not taken"
    reader.join(SOON)


def test_a_signal_handler_is_told_that_an_answer_is_half_taken(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can read before it returns: it must not wait for that."""
    connection, line, told = wire.connection, wire.handler.line, []
    assert line is not None
    hand_over = connection._hand_over

    def handler(header: Any, message: bytes) -> bool:
        line.make_way()
        told.append(line.is_entangled())
        asked(wire, Sync("/b"))
        line.borrow(lambda me: pytest.fail("the frame below it reads"))
        return bool(hand_over(header, message))

    (first,) = asked(wire, Sync("/a"))
    assert not line.is_entangled()
    wire.member.send(reply(1, write_string("/a")))
    with monkeypatch.context() as patch:
        patch.setattr(connection, "_hand_over", handler)
        connection.read_until(first.ready, soon())
    assert (told, first.get_nowait()) == ([True], "/a")
    assert [request.path for request, _, _ in wire.client._pending] == ["/b"], "it was asked all the same"


def test_a_signal_handler_does_not_write_into_a_question(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    connection, line, told = wire.connection, wire.handler.line, []
    assert line is not None
    write = connection._write

    def handler(data: bytes, timeout: float) -> None:
        write(data[:4], timeout)
        if not told:
            told.append(line.is_entangled())
            asked(wire, Sync("/b"))
            line.nudge()
        write(data[4:], timeout)

    monkeypatch.setattr(connection, "_write", handler)
    asked(wire, Sync("/a"))
    assert told == [True]
    assert [request.path for request, _ in wire.client._queue] == ["/b"], "it is left to the other thread"
    length = LENGTH.unpack(wire.member.recv(LENGTH.size))[0]
    assert b"/a" in wire.member.recv(length)
    assert not line.is_entangled()


def test_silence_counts_from_what_was_asked_or_heard_last(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(clock, "now", lambda: now)
    asked(wire, Sync("/a"))
    now = 1001.5
    wire.connection._look()
    now = 1003.0
    with pytest.raises(ConnectionDropped, match="for too long"):
        wire.connection._look()
    wire.connection._heard = 1002.5
    wire.connection._look()
    wire.client._pending.clear()
    now = 2000.0
    wire.connection._look()
    wire.connection._pinged = 1990.0
    with pytest.raises(ConnectionDropped, match="for too long"):
        wire.connection._look()


# Answers ----------------------------------------------------------------------------------------


def test_an_answer_is_set_once_and_told_once() -> None:
    answer, told = Answer(), []
    answer.rawlink(lambda one: told.append(one.value))
    with pytest.raises(KazooTimeoutError):
        answer.get(timeout=0.0)
    answer.set(1)
    answer.set(2)
    answer.set_exception(ConnectionLoss())
    answer.rawlink(lambda one: told.append(-one.value))
    assert (told, answer.get_nowait(), answer.successful()) == ([1, -1], 1, True)


def test_whoever_waits_for_an_answer_is_called_though_the_reader_was_interrupted(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    (answer,) = asked(wire, Sync("/"))
    wire.member.sendall(reply(1, write_string("/")))
    found: list[str] = []
    waiter = in_thread(lambda: found.append(answer.get(timeout=SOON)))
    until(lambda: len(answer._calls) == 1)
    interrupts = [KeyboardInterrupt()]
    ring = answer._calls[0]

    def interrupted(one: Answer) -> None:
        if interrupts:
            raise interrupts.pop()
        ring(one)

    answer._calls[:] = [interrupted]
    with pytest.raises(KeyboardInterrupt):
        wire.connection.read_until(answer.ready, soon())
    waiter.join(SOON / 2)
    assert found == ["/"], "it has its answer, and was woken for it"


def test_an_answer_wakes_whoever_waits() -> None:
    for _ in range(200):
        answer = Answer()
        setter = in_thread(answer.set)
        assert answer.get(timeout=SOON) is None
        setter.join(SOON)


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["a"],
        ["a", "bc", "d" * 90],
        ["x" * length for length in range(1, 300, 7)],
        ["x" * 256, "y" * 257, "z"],
        ["x" * 65536],
        ["\u00e9t\u00e9", "plain"],
        ["\u00e9" * 100],
        [f"{number:010d}" for number in range(700)],
    ],
)
def test_children_are_read_as_kazoo_reads_them(names: list[str]) -> None:
    said = b"head" + LENGTH.pack(len(names)) + b"".join(map(write_string, names))
    assert Children.deserialize(said, 4) == GetChildren.deserialize(said, 4) == names


def test_waking_the_thread_of_a_connection_never_waits(wire: Wire) -> None:
    """The thread wakes itself when more is queued than it sends at once, and it alone reads that."""
    waking = in_thread(lambda: [wire.connection.wake() for _ in range(5000)])
    waking.join(SOON)
    assert not waking.is_alive()
    assert wire.connection._read_sock.recv(1) == b"\0"
