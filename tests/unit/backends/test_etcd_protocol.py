"""gRPC without I/O: a conversation with a server that is made of h2."""

from __future__ import annotations

from typing import Any

import h2.errors
import h2.events
import h2.settings
import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelock.backends.etcd import frames
from fencelock.backends.etcd.protocol import UNAVAILABLE, WINDOW, Answer, Conversation
from fencelock.net.failures import Disconnected
from unit.backends.etcd_server import CALL, FIRST_WINDOW, Server, framed

FRAME = 16_384


def exchange(talk: Conversation, server: Server) -> list[Answer]:
    """Carry bytes to and fro until neither has anything to say; return what the client heard."""
    heard: list[Answer] = []
    while True:
        there, back = talk.outgoing(), server.h2.data_to_send()
        if there:
            server.take(there)
        if back:
            heard += talk.feed(back)
        if not there and not back:
            return heard


def pair(**options: Any) -> tuple[Conversation, Server]:
    """Return both sides, after their greetings."""
    talk, server = Conversation("a.example.org:2379", "http"), Server(**options)
    assert exchange(talk, server) == []
    return talk, server


def ask(talk: Conversation, message: bytes = b"ping") -> int:
    call = talk.begin(CALL, [("hasleader", "true")])
    talk.send(call, message, last=True)
    return call


def ending(answer: Answer) -> tuple[int, int, str]:
    """Return whose end an answer is, the code and the words."""
    assert answer.ended is not None
    return answer.call, answer.ended.code, answer.ended.detail


def test_a_call_and_its_answer() -> None:
    talk, server = pair()
    call = talk.begin(CALL, [("hasleader", "true"), ("token", "t.1")])
    talk.send(call, b"ping", last=True)
    assert exchange(talk, server) == []
    assert server.headers[call] == {
        b":method": b"POST",
        b":scheme": b"http",
        b":authority": b"a.example.org:2379",
        b":path": CALL.encode(),
        b"te": b"trailers",
        b"content-type": b"application/grpc",
        b"hasleader": b"true",
        b"token": b"t.1",
    }
    assert server.bodies[call] == b"\0\0\0\0\4ping"
    assert server.ended == [call]
    server.answer(call, b"pong")
    message, end = exchange(talk, server)
    assert message == (call, [b"pong"], None)
    assert ending(end) == (call, 0, "")
    assert not end.messages


def test_a_stream_goes_on_after_each_message() -> None:
    talk, server = pair()
    call = talk.begin(CALL, [])
    for number in range(3):
        talk.send(call, b"%d" % number, last=False)
        exchange(talk, server)
        assert server.bodies[call] == b"".join(framed(b"%d" % each) for each in range(number + 1))
    assert server.ended == []
    server.begin(call)
    server.h2.send_data(call, framed(b"one"))
    assert exchange(talk, server) == [(call, [b"one"], None)]
    server.h2.send_data(call, framed(b"two"))
    assert exchange(talk, server) == [(call, [b"two"], None)]


def test_answers_find_their_calls() -> None:
    talk, server = pair()
    calls = [ask(talk, b"%d" % number) for number in range(5)]
    exchange(talk, server)
    assert len(set(calls)) == 5
    assert [server.bodies[call] for call in calls] == [framed(b"%d" % number) for number in range(5)]
    for call in reversed(calls):
        server.answer(call, b"to %d" % call)
    heard = [answer for answer in exchange(talk, server) if answer.messages]
    assert [(answer.call, *answer.messages) for answer in heard] == [
        (call, b"to %d" % call) for call in reversed(calls)
    ]


def test_several_messages_come_in_one_frame_and_empty_ones_count() -> None:
    talk, server = pair()
    call = ask(talk)
    exchange(talk, server)
    server.answer(call, b"one", b"", b"three")
    assert exchange(talk, server)[0] == (call, [b"one", b"", b"three"], None)


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 104])
def test_a_message_is_split_over_frames(cut: int) -> None:
    talk, server = pair()
    call = ask(talk)
    exchange(talk, server)
    whole = framed(b"x" * 100) + framed(b"next")
    server.begin(call)
    server.h2.send_data(call, whole[:cut])
    assert exchange(talk, server) == []
    server.h2.send_data(call, whole[cut:])
    assert exchange(talk, server) == [(call, [b"x" * 100, b"next"], None)]


def test_bytes_may_come_one_by_one() -> None:
    talk, server = Conversation("h", "http"), Server()
    call = ask(talk)
    server.take(talk.outgoing())
    server.answer(call, b"pong", b"again")
    heard: list[Answer] = []
    for byte in server.h2.data_to_send():
        heard += talk.feed(bytes([byte]))
    assert [answer.messages for answer in heard[:-1]] == [[b"pong", b"again"]]
    assert ending(heard[-1]) == (call, 0, "")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"etcdserver: no leader", "etcdserver: no leader"),
        (b"etcdserver%3A no%20leader", "etcdserver: no leader"),
        (b"n%C3%A4chster 100%25", "nächster 100%"),
        (b"50% %zz", "50% %zz"),
        (b"\xff", "\ufffd"),
        (b"", ""),
    ],
)
def test_a_refusal_is_trailers_only_and_its_words_are_decoded(message: bytes, words: str) -> None:
    talk, server = pair()
    call = ask(talk)
    exchange(talk, server)
    server.refuse(call, b"14", message)
    (answer,) = exchange(talk, server)
    assert ending(answer) == (call, 14, words)
    assert not answer.messages


def test_a_status_comes_after_messages() -> None:
    talk, server = pair()
    call = ask(talk)
    exchange(talk, server)
    server.begin(call)
    server.h2.send_data(call, framed(b"some"))
    server.end(call, b"11", b"etcdserver: mvcc: required revision has been compacted")
    message, end = exchange(talk, server)
    assert message.messages == [b"some"]
    assert ending(end) == (call, 11, "etcdserver: mvcc: required revision has been compacted")


def test_what_is_no_grpc_has_a_status_all_the_same() -> None:
    talk, server = pair()
    calls = [ask(talk) for _ in range(3)]
    exchange(talk, server)
    server.begin(calls[0], status=b"404")
    server.h2.end_stream(calls[0])
    server.begin(calls[1])
    server.h2.end_stream(calls[1])
    server.refuse(calls[2], b"many", b"words")
    assert [ending(answer) for answer in exchange(talk, server)] == [
        (calls[0], UNAVAILABLE, "HTTP status 404"),
        (calls[1], UNAVAILABLE, "it ended the call without a word"),
        (calls[2], UNAVAILABLE, "words"),
    ]


def test_trailers_that_say_nothing_do_not_hide_what_was_said_before() -> None:
    talk, server = pair()
    call = ask(talk)
    exchange(talk, server)
    server.begin(call, status=b"502")
    server.h2.send_headers(call, [(b"x-proxy", b"a")], end_stream=True)
    (answer,) = exchange(talk, server)
    assert ending(answer) == (call, UNAVAILABLE, "HTTP status 502")


def test_a_call_that_is_broken_off() -> None:
    talk, server = pair()
    first, second = ask(talk), ask(talk)
    exchange(talk, server)
    server.h2.reset_stream(first, h2.errors.ErrorCodes.REFUSED_STREAM)
    server.answer(second, b"pong")
    broken, message, end = exchange(talk, server)
    assert ending(broken) == (first, UNAVAILABLE, "it broke off the call")
    assert message.messages == [b"pong"]
    assert ending(end) == (second, 0, "")


# Flow control


def test_a_large_message_is_sent_as_the_window_opens() -> None:
    talk, server = pair(generous=False)
    message = bytes(range(256)) * 800
    call = ask(talk, message)
    exchange(talk, server)
    assert len(server.bodies[call]) == FIRST_WINDOW
    sent = FIRST_WINDOW
    for step in (1, FRAME, 100_000):
        server.h2.increment_flow_control_window(step, call)
        exchange(talk, server)
        assert len(server.bodies[call]) == sent  # the connection has no room yet
        server.h2.increment_flow_control_window(step)
        exchange(talk, server)
        sent += step
        assert len(server.bodies[call]) == sent
    assert server.ended == []
    server.h2.increment_flow_control_window(1 << 20, call)
    server.h2.increment_flow_control_window(1 << 20)
    exchange(talk, server)
    assert server.bodies[call] == framed(message)
    assert server.ended == [call]
    assert server.longest <= FRAME


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_message_that_just_fits_and_one_that_does_not(more: int) -> None:
    talk, server = pair(generous=False)
    message = b"x" * (FIRST_WINDOW - 5 + more)
    call = ask(talk, message)
    exchange(talk, server)
    assert server.ended == ([] if more > 0 else [call])
    server.h2.increment_flow_control_window(1, call)
    server.h2.increment_flow_control_window(1)
    exchange(talk, server)
    assert server.ended == [call]
    assert server.bodies[call] == framed(message)


def test_a_server_with_a_small_window() -> None:
    talk, server = pair(window=10)
    call = ask(talk, b"0123456789" * 10)
    exchange(talk, server)
    assert server.bodies[call] == framed(b"0123456789" * 10)
    assert server.longest <= 10
    assert server.ended == [call]


def test_many_small_calls_are_more_than_the_window_holds() -> None:
    talk, server = pair(generous=False)
    message = b"x" * 300
    calls = [ask(talk, message) for _ in range(300)]
    exchange(talk, server)
    assert sum(map(len, server.bodies.values())) == FIRST_WINDOW
    assert 0 < len(server.ended) < 300
    server.h2.increment_flow_control_window(FIRST_WINDOW)
    exchange(talk, server)
    assert server.ended == calls
    assert [server.bodies[call] for call in calls] == [framed(message)] * 300


def test_messages_wait_in_order() -> None:
    talk, server = pair(generous=False)
    large, small = ask(talk, b"x" * 100_000), ask(talk, b"small")
    exchange(talk, server)
    assert server.bodies[small] == b""
    server.h2.increment_flow_control_window(1 << 20, large)
    server.h2.increment_flow_control_window(1 << 20)
    exchange(talk, server)
    assert server.ended == [large, small]
    assert server.bodies[small] == framed(b"small")


@pytest.mark.parametrize("by_reset", [False, True])
def test_a_call_that_ends_while_its_message_waits_harms_no_other(by_reset: bool) -> None:
    talk, server = pair(generous=False)
    large, small = ask(talk, b"x" * 100_000), ask(talk, b"small")
    exchange(talk, server)
    server.refuse(large, b"8", b"too much")
    if by_reset:
        server.h2.reset_stream(large, h2.errors.ErrorCodes.NO_ERROR)
    heard = exchange(talk, server)
    assert [ending(answer) for answer in heard] == [(large, 8, "too much")]
    server.h2.increment_flow_control_window(1 << 20)
    exchange(talk, server)
    assert server.bodies[small] == framed(b"small")
    server.answer(small, b"pong")
    assert exchange(talk, server)[0].messages == [b"pong"]


def test_the_server_gets_its_room_back() -> None:
    talk, server = pair()
    call = ask(talk)
    exchange(talk, server)
    server.begin(call)
    part = b"x" * (1 << 20)
    total = 0
    while total < 2 * WINDOW:  # more than it may send unless it is given room again
        data = framed(part)
        for start in range(0, len(data), FRAME):
            server.h2.send_data(call, data[start : start + FRAME])
        (answer,) = exchange(talk, server)
        assert answer.messages == [part]
        total += len(part)


# The end of a connection


def test_a_server_that_leaves_gets_no_new_calls() -> None:
    talk, server = pair()
    assert not talk.is_leaving
    server.h2.close_connection(last_stream_id=0)
    assert exchange(talk, server) == []
    assert talk.is_leaving
    with pytest.raises(Disconnected):
        talk.begin(CALL, [])


def test_answers_that_come_with_the_goodbye_are_heard() -> None:
    talk, server = pair()
    call = ask(talk)
    exchange(talk, server)
    server.answer(call, b"pong")
    server.h2.close_connection()
    message, end = exchange(talk, server)
    assert message.messages == [b"pong"]
    assert ending(end) == (call, 0, "")
    assert talk.is_leaving


def test_more_calls_than_the_server_takes() -> None:
    talk, server = pair(streams=2)
    first = ask(talk)
    ask(talk)
    with pytest.raises(Disconnected, match="2"):
        talk.begin(CALL, [])
    exchange(talk, server)
    server.answer(first, b"pong")
    exchange(talk, server)
    third = ask(talk)
    exchange(talk, server)
    assert server.bodies[third] == framed(b"ping")


@pytest.mark.parametrize(
    "said_first",
    [b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"\0" * 9],
)
@pytest.mark.parametrize("size", [1, 8, 100])
def test_garbage_at_the_start(said_first: bytes, size: int) -> None:
    talk = Conversation("h", "http")
    with pytest.raises(Disconnected, match="no HTTP/2"):
        for start in range(0, len(said_first), size):
            assert talk.feed(said_first[start : start + size]) == []


def test_garbage_later() -> None:
    talk, _ = pair()
    with pytest.raises(Disconnected, match="no HTTP/2"):
        talk.feed(b"\0\0\4\1\4\0\0\0\1\xff\xff\xff\xff")  # headers that cannot be unpacked


@pytest.mark.parametrize("before", [b"", b"\x15\3\1"])
def test_a_connection_that_is_closed(before: bytes) -> None:
    talk = Conversation("h", "http")
    assert not before or talk.feed(before) == []
    with pytest.raises(Disconnected, match="it closed the connection"):
        talk.feed(b"")


def test_calls_that_the_server_has_taken_are_finished_after_its_goodbye() -> None:
    talk, server = pair()
    taken, refused = ask(talk), ask(talk)
    exchange(talk, server)
    heard = talk.feed(frame(frames.GOAWAY, 0, 0, frames.word(taken) + frames.word(0)))
    assert [ending(answer) for answer in heard] == [
        (refused, UNAVAILABLE, "it takes no more calls on this connection")
    ]
    server.answer(taken, b"pong")
    message, end = exchange(talk, server)
    assert message.messages == [b"pong"]
    assert ending(end) == (taken, 0, "")


# What only some servers say


def frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    return frames.pack(kind, flags, number, payload)


def test_what_only_fills_a_frame_up_is_left_out() -> None:
    talk, server = pair()
    call = ask(talk)
    exchange(talk, server)
    server.begin(call)
    server.h2.send_data(call, framed(b"pong"), pad_length=7)
    assert exchange(talk, server) == [(call, [b"pong"], None)]


def test_headers_with_padding_and_a_priority() -> None:
    talk, _ = pair()
    call = ask(talk)
    block = hpack.Encoder().encode([(":status", "200"), ("grpc-status", "5")])
    padded = bytes([3]) + b"\0\0\0\0\x10" + block + b"\0" * 3
    (answer,) = talk.feed(frame(frames.HEADERS, 0x8 | 0x20 | 0x4 | 0x1, call, padded))
    assert ending(answer) == (call, 5, "")


def test_headers_may_be_longer_than_a_frame() -> None:
    talk, server = pair()
    call = ask(talk)
    exchange(talk, server)
    server.refuse(call, b"9", b"x" * 40_000)
    (answer,) = exchange(talk, server)
    assert ending(answer) == (call, 9, "x" * 40_000)


def test_our_headers_may_be_longer_than_a_frame() -> None:
    talk, server = pair()
    call = talk.begin(CALL, [("token", "a b" * 15_000)])
    talk.send(call, b"ping", last=True)
    exchange(talk, server)
    assert server.headers[call][b"token"] == b"a b" * 15_000
    assert server.ended == [call]


def test_a_hint_before_the_answer_is_no_answer() -> None:
    talk, server = pair()
    call = ask(talk)
    exchange(talk, server)
    server.h2.send_headers(call, [(b":status", b"103"), (b"link", b"x")])
    server.answer(call, b"pong")
    message, end = exchange(talk, server)
    assert message.messages == [b"pong"]
    assert ending(end) == (call, 0, "")


def test_a_message_and_the_end_in_one_frame() -> None:
    talk, server = pair()
    call = ask(talk)
    exchange(talk, server)
    server.begin(call)
    server.h2.send_data(call, framed(b"pong"), end_stream=True)
    message, end = exchange(talk, server)
    assert message.messages == [b"pong"]
    assert ending(end) == (call, UNAVAILABLE, "it ended the call without a word")


def test_a_ping_is_answered_with_what_is_said_next() -> None:
    talk, server = pair()
    server.h2.ping(b"12345678")
    assert talk.feed(server.h2.data_to_send()) == []
    assert not talk.is_urgent
    events = server.h2.receive_data(talk.outgoing())
    assert [event.ping_data for event in events if isinstance(event, h2.events.PingAckReceived)] == [
        b"12345678"
    ]


@pytest.mark.parametrize("window", [0, 20, 100_000])
def test_the_server_changes_its_window(window: int) -> None:
    """Those that are under way have more room by as much, or less: even less than nothing."""
    talk, server = pair(window=50, generous=False)
    call = ask(talk, b"x" * 60)
    exchange(talk, server)
    assert len(server.bodies[call]) == 50
    server.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
    exchange(talk, server)
    assert len(server.bodies[call]) == (65 if window > 65 else 50)
    server.h2.increment_flow_control_window(65 - window if window < 65 else 1, call)
    exchange(talk, server)
    assert server.bodies[call] == framed(b"x" * 60)
    assert server.ended == [call]


def test_the_server_changes_its_table_of_headers_and_its_frames() -> None:
    talk, server = pair()
    codes = h2.settings.SettingCodes
    for size in (0, 100, 65_536):
        server.h2.update_settings({codes.HEADER_TABLE_SIZE: size, codes.MAX_FRAME_SIZE: 20_000 + size})
        exchange(talk, server)
        for _ in range(2):
            call = ask(talk, b"x" * 30_000)
            exchange(talk, server)
            assert server.headers[call][b"hasleader"] == b"true"
            assert server.ended[-1] == call
        assert server.longest == min(20_000 + size, 30_005)


def test_a_call_that_the_server_ends_before_we_do_is_closed_on_both_sides() -> None:
    talk, server = pair(streams=1)
    watch = talk.begin(CALL, [])
    talk.send(watch, b"create", last=False)
    exchange(talk, server)
    server.refuse(watch, b"14", b"leaving")
    exchange(talk, server)
    assert server.reset == {watch: h2.errors.ErrorCodes.CANCEL}
    call = ask(talk)
    exchange(talk, server)
    assert server.ended == [call]


BLOCK = hpack.Encoder().encode([(":status", "200")])


@pytest.mark.parametrize(
    "said",
    [
        frame(frames.DATA, 0, 0, b"x"),
        frame(frames.DATA, 0, 2, b"x"),
        frame(frames.DATA, 0, 99, b"x"),
        frame(frames.DATA, 0x8, 1, b""),
        frame(frames.DATA, 0x8, 1, b"\2x"),
        frame(frames.HEADERS, 0x20 | 0x4, 1, b"abc"),
        frame(frames.HEADERS, 0x4, 99, BLOCK),
        frame(frames.CONTINUATION, 0x4, 1, BLOCK),
        frame(frames.HEADERS, 0, 1, BLOCK) + frame(frames.PING, 0, 0, b"12345678"),
        frame(frames.HEADERS, 0, 1, BLOCK) + frame(frames.CONTINUATION, 0x4, 3, b""),
        frame(frames.HEADERS, 0, 1, BLOCK) + frame(frames.CONTINUATION, 0, 1, b"\x88" * 16_000) * 5,
        frame(frames.RESET, 0, 99, b"\0\0\0\1"),
        frame(frames.RESET, 0, 1, b"\0"),
        frame(frames.SETTINGS, 0, 1, b""),
        frame(frames.SETTINGS, 0, 0, b"\0\4\0"),
        frame(frames.SETTINGS, 0, 0, frames.write_settings({4: 1 << 31})),
        frame(frames.SETTINGS, 0, 0, frames.write_settings({5: 1})),
        frame(frames.PUSH_PROMISE, 0x4, 1, b"\0\0\0\2" + BLOCK),
        frame(frames.PING, 0, 0, b"1234567"),
        frame(frames.WINDOW_UPDATE, 0, 0, b"\0\0\0\0"),
        frame(frames.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"),
        frame(frames.WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff"),
        frame(frames.DATA, 0, 1, b"x" * 16_385),
    ],
)
def test_what_no_server_may_say(said: bytes) -> None:
    talk, server = pair()
    assert ask(talk) == 1
    exchange(talk, server)
    with pytest.raises(Disconnected, match="no HTTP/2"):
        talk.feed(said)


@pytest.mark.parametrize(
    "said",
    [
        frame(2, 0, 1, b"\0\0\0\0\x10"),  # a priority
        frame(77, 0xFF, 5, b"whatever"),  # a kind of frame that we do not know
        frame(frames.SETTINGS, 0x1, 0, b""),
        frame(frames.SETTINGS, 0, 0, frames.write_settings({99: 5})),
        frame(frames.WINDOW_UPDATE, 0, 1, b"\0\0\0\1"),
        frame(frames.PING, 0x1, 0, b"12345678"),
    ],
)
def test_what_does_not_concern_us(said: bytes) -> None:
    talk, server = pair()
    call = ask(talk)
    exchange(talk, server)
    assert talk.feed(said) == []
    server.answer(call, b"pong")
    message, _ = exchange(talk, server)
    assert message.messages == [b"pong"]


@given(data=st.data())
def test_bytes_that_are_changed_on_their_way_do_nothing_worse_than_break_the_connection(data: Any) -> None:
    talk, server = pair()
    calls = [ask(talk, b"%d" % number) for number in range(3)]
    exchange(talk, server)
    for call in calls:
        server.answer(call, b"pong" * 10)
    said = bytearray(server.h2.data_to_send())
    for _ in range(data.draw(st.integers(1, 4))):
        said[data.draw(st.integers(0, len(said) - 1))] = data.draw(st.integers(0, 255))
    try:
        heard = talk.feed(bytes(said))
    except Disconnected:
        return
    assert {answer.call for answer in heard} <= set(calls)
    talk.outgoing()
