"""What the etcd backend does without a server: its protocol, keys, URLs and messages; places and tenures."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import math
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.base import Origin, Request
from holdfast.backends.etcd import EtcdBackend
from holdfast.backends.etcd import rpc_pb2 as pb
from holdfast.backends.etcd.address import Address, parse
from holdfast.backends.etcd.failures import (
    LASTING,
    LONGEST,
    NO_ETCD,
    NO_SUCH_LEASE,
    PASSING,
    Kind,
    closed,
    kind_of,
    no_answer,
    said,
    unreachable,
)
from holdfast.backends.etcd.guard import guard
from holdfast.backends.etcd.keys import Keys, end_of, suffix
from holdfast.backends.etcd.protocol import UNAVAILABLE, WINDOW, Answer, Conversation, Disconnected, Status
from holdfast.backends.ordered.places import (
    Eye,
    Place,
    Queue,
    Record,
    blockers,
    check_limit,
    entry,
    state,
    told,
)
from holdfast.backends.ordered.tenures import Tenure, Tenures, mutex
from holdfast.core.queue import Mode, admitted
from holdfast.errors import BackendUnavailable, ConfigurationError
from holdfast.runtime import clock
from holdfast.runtime.blocking import run

FLAVOURS = ["blocking", "asyncio"]
LIMITS: dict[Mode, int] = {"exclusive": 1, "shared": 0, "permit": 2}
FRAME = 16_384
FIRST_WINDOW = 65_535
CALL = "/etcdserverpb.KV/Range"


def request(
    name: str = "job",
    mode: Mode = "exclusive",
    *,
    owner: str = "me",
    limit: int | None = None,
    metadata: str | None = None,
) -> Request:
    origin = Origin("billing", "host-a", 812)
    return Request(owner, name, mode, LIMITS[mode] if limit is None else limit, 30.0, origin, metadata)


# Protocol: a conversation with a server that is made of h2 -------------------------------------


class Server:
    """The other side. It gives back room only when told to, if `generous` is false."""

    def __init__(self, *, window: int = FIRST_WINDOW, streams: int = 1000, generous: bool = True) -> None:
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding=None)
        )
        codes = h2.settings.SettingCodes
        values = {codes.INITIAL_WINDOW_SIZE: window, codes.MAX_CONCURRENT_STREAMS: streams}
        self.h2.local_settings = h2.settings.Settings(client=False, initial_values=values)
        self.h2.initiate_connection()
        self.generous = generous
        self.headers: dict[int, dict[bytes, bytes]] = {}
        self.bodies: dict[int, bytes] = {}
        self.longest = 0
        self.ended: list[int] = []
        self.reset: dict[int, int] = {}

    def take(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                assert event.stream_id is not None
                pairs: Any = event.headers
                self.headers[event.stream_id] = dict(pairs)
                self.bodies[event.stream_id] = b""
            elif isinstance(event, h2.events.DataReceived):
                assert event.stream_id is not None
                assert event.flow_controlled_length is not None
                assert event.data is not None
                self.bodies[event.stream_id] += event.data
                self.longest = max(self.longest, len(event.data))
                if self.generous:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                assert event.stream_id is not None
                self.ended.append(event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                assert event.stream_id is not None
                assert event.error_code is not None
                self.reset[event.stream_id] = int(event.error_code)

    def begin(self, call: int, *, status: bytes = b"200") -> None:
        self.h2.send_headers(call, [(b":status", status), (b"content-type", b"application/grpc")])

    def end(self, call: int, code: bytes = b"0", message: bytes = b"") -> None:
        self.h2.send_headers(call, [(b"grpc-status", code), (b"grpc-message", message)], end_stream=True)

    def refuse(self, call: int, code: bytes, message: bytes) -> None:
        """Answer with nothing but trailers."""
        headers = [(b":status", b"200"), (b"grpc-status", code), (b"grpc-message", message)]
        self.h2.send_headers(call, headers, end_stream=True)

    def answer(self, call: int, *messages: bytes) -> None:
        self.begin(call)
        self.h2.send_data(call, b"".join(framed(message) for message in messages))
        self.end(call)


def framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


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


def test_a_cancelled_call_leaves_nothing_unsent() -> None:
    talk, server = pair(generous=False)
    large, small = ask(talk, b"x" * 100_000), ask(talk, b"small")
    exchange(talk, server)
    talk.cancel(large)
    exchange(talk, server)
    assert server.reset == {large: h2.errors.ErrorCodes.CANCEL}
    server.h2.increment_flow_control_window(1 << 20)
    exchange(talk, server)
    assert server.ended == [small]
    assert len(server.bodies[large]) == FIRST_WINDOW
    assert server.bodies[small] == framed(b"small")


def test_cancelling_twice_or_too_late_says_nothing() -> None:
    talk, server = pair()
    done, dropped = ask(talk), ask(talk)
    exchange(talk, server)
    server.answer(done, b"pong")
    exchange(talk, server)
    talk.cancel(dropped)
    assert talk.outgoing() != b""
    for call in (dropped, done, dropped + 100):
        talk.cancel(call)
        assert talk.outgoing() == b""


def test_what_comes_for_a_cancelled_call_is_not_heard() -> None:
    talk, server = pair()
    dropped, other = ask(talk), ask(talk)
    exchange(talk, server)
    server.answer(dropped, b"late")
    server.answer(other, b"pong")
    talk.cancel(dropped)
    heard = talk.feed(server.h2.data_to_send())
    assert {answer.call for answer in heard} == {other}
    assert heard[0].messages == [b"pong"]


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


# Keys ------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
AWKWARD = st.text("ab/%2F5~:é", max_size=8)
NAMES = (TEXT | AWKWARD).filter(bool)
REQUESTS = st.builds(
    lambda name, mode, owner, limit: request(name, mode, owner=owner, limit=limit),
    NAMES,
    st.sampled_from(["exclusive", "shared", "permit"]),
    st.text("0123456789abcdef", min_size=1),
    st.integers(0, 10**9),
)


@pytest.mark.parametrize(
    ("namespace", "name", "key"),
    [
        ("", "job", b"holdfast//job/e1-me"),
        ("billing", "job", b"holdfast/billing/job/e1-me"),
        ("a/b", "c/d", b"holdfast/a%2Fb/c%2Fd/e1-me"),
        ("", "%2F", b"holdfast//%252F/e1-me"),
        ("", "ä {x}:y ", "holdfast//ä {x}:y /e1-me".encode()),
    ],
)
def test_what_a_key_looks_like(namespace: str, name: str, key: bytes) -> None:
    keys = Keys("holdfast", namespace)
    assert keys.of(request(name)) == key
    assert keys.queue(name) == key.removesuffix(b"e1-me")
    assert keys.parts(key) == (name, "exclusive", 1, "me")


def test_the_last_part_has_the_mode_and_the_limit() -> None:
    assert suffix(request(mode="exclusive")) == b"e1-me"
    assert suffix(request(mode="shared")) == b"s0-me"
    assert suffix(request(mode="permit", limit=12)) == b"p12-me"


@given(TEXT | AWKWARD, REQUESTS)
def test_a_key_says_what_was_asked(namespace: str, wanted: Request) -> None:
    keys = Keys("locks/x", namespace)
    assert keys.parts(keys.of(wanted)) == (wanted.name, wanted.mode, wanted.limit, wanted.owner)


@given(TEXT | AWKWARD, NAMES, TEXT | AWKWARD, NAMES)
def test_no_two_names_meet(space: str, name: str, other_space: str, other: str) -> None:
    one, two = Keys("holdfast", space).queue(name), Keys("holdfast", other_space).queue(other)
    same = (space, name) == (other_space, other)
    assert (one == two) == same
    assert one.startswith(two) == same


@given(TEXT | AWKWARD, NAMES)
def test_what_a_name_begins_with_its_keys_begin_with(prefix: str, name: str) -> None:
    keys = Keys("holdfast", "ns")
    for each in (name, prefix + name):
        assert keys.of(request(each)).startswith(keys.beginning(prefix)) == each.startswith(prefix)


@given(st.binary(min_size=1, max_size=4).filter(lambda prefix: prefix.strip(b"\xff")), st.binary(max_size=6))
def test_the_end_of_a_prefix(prefix: bytes, key: bytes) -> None:
    for each in (key, prefix + key):
        assert (prefix <= each < end_of(prefix)) == each.startswith(prefix)


def test_the_end_after_the_last_byte() -> None:
    assert end_of(b"ab/") == b"ab0"
    assert end_of(b"a\xff\xff") == b"b"
    assert end_of(b"\xff\xff") == b"\0"


@pytest.mark.parametrize(
    "key",
    [
        b"other/ns/job/e1-me",
        b"holdfast/else/job/e1-me",
        b"holdfast/ns/",
        b"holdfast/ns/job",
        b"holdfast/ns/job/",
        b"holdfast/ns/job/e1",
        b"holdfast/ns/job/e-me",
        b"holdfast/ns/job/x1-me",
        b"holdfast/ns/job/eone-me",
        b"holdfast/ns/job/e-1-me",
        b"holdfast/ns//e1-me",
        b"holdfast/ns/job/deeper/e1-me",
        b"holdfast/ns/\xff/e1-me",
        b"holdfast/ns/job/e1-\xff",
        b"holdfast/ns/job/e" + b"9" * 5000 + b"-me",
    ],
)
def test_keys_of_others_are_not_ours(key: bytes) -> None:
    assert Keys("holdfast", "ns").parts(key) is None


# Address ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("etcd://h", Address(("h:2379",))),
        ("etcd://h:1234/", Address(("h:1234",))),
        ("etcd://a,b:1,c", Address(("a:2379", "b:1", "c:2379"))),
        ("etcd://[::1]", Address(("[::1]:2379",))),
        ("etcd://[::1]:1234", Address(("[::1]:1234",))),
        ("etcd://h/locks/billing/", Address(("h:2379",), prefix="locks/billing")),
        ("etcd://h/a%20b", Address(("h:2379",), prefix="a b")),
        ("etcd://ann:pw@h", Address(("h:2379",), user="ann", password="pw")),
        ("etcd://a%40b:%3A%2F%3F%23%25%40@h", Address(("h:2379",), user="a@b", password=":/?#%@")),
        ("etcd://ann:a:b@h", Address(("h:2379",), user="ann", password="a:b")),
        ("etcd://h?tls=yes", Address(("h:2379",), tls=True)),
        ("etcd://h?tls=no", Address(("h:2379",))),
        ("etcd://h?cacert=/ca.crt", Address(("h:2379",), tls=True, cacert="/ca.crt")),
        ("etcd://h?cert=c&key=k", Address(("h:2379",), tls=True, cert="c", key="k")),
        ("etcd://h?tls=yes&server_name=etcd", Address(("h:2379",), tls=True, server_name="etcd")),
    ],
)
def test_what_a_url_says(url: str, address: Address) -> None:
    assert parse(url) == address


@pytest.mark.parametrize(
    ("rest", "word"),
    [
        ("h:0", "is no address"),
        ("h:65536", "is no address"),
        ("h:port", "is no address"),
        ("h:", "is no address"),
        ("h:²", "is no address"),
        (":2379", "is no address"),
        ("", "is no address"),
        ("a,,b", "is no address"),
        ("a,", "is no address"),
        ("::1:2379", "is no address"),
        ("h?colour=red", "unknown option colour"),
        ("h?tls=maybe", "unknown option tls"),
        ("h?cacert=", "an empty one"),
        ("h?cert=c", "needs both"),
        ("h?key=k&cacert=ca", "needs both"),
        ("h?tls=no&cacert=ca", "tls=no"),
        ("h?tls=no&server_name=etcd", "tls=no"),
    ],
)
def test_urls_that_are_refused_without_the_password(rest: str, word: str) -> None:
    for login in ("", "ann:s3cr3t@"):
        with pytest.raises(ConfigurationError) as caught:
            parse(f"etcd://{login}{rest}")
        assert word in str(caught.value)
        assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("login", ["ann", ":pw", ":"])
def test_a_user_needs_a_password(login: str) -> None:
    with pytest.raises(ConfigurationError, match="a user without a password"):
        parse(f"etcd://{login}@h")


def test_what_people_see_of_an_address() -> None:
    url = "etcd://ann:s3cr3t@a,b:1"
    assert parse(url).label == "a:2379,b:1"
    assert repr(EtcdBackend.from_url(url)) == "<EtcdBackend a:2379,b:1>"
    assert "s3cr3t" not in repr(parse(url))


def test_what_tls_is_given(tmp_path: Path) -> None:
    assert Address(("h:1",)).context() is None
    context = Address(("h:1",), tls=True).context()
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    (tmp_path / "no.crt").write_text("nothing")
    plain = Address(("h:1",), password="s3cr3t", tls=True)
    for wrong in (
        replace(plain, cacert=str(tmp_path / "missing.crt")),
        replace(plain, cacert=str(tmp_path / "no.crt")),
        replace(plain, cert=str(tmp_path / "no.crt"), key=str(tmp_path / "no.key")),
    ):
        with pytest.raises(ConfigurationError, match=str(tmp_path)) as caught:
            wrong.context()
        assert "s3cr3t" not in str(caught.value)


# Failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", LASTING)
def test_what_will_be_the_same_tomorrow(words: str) -> None:
    for code in (8, 14):  # some of them come with a number of those that pass
        error = Status(code, f"etcdserver: {words}, really")
        assert kind_of(error) is Kind.FINAL
        failure = said("h:2379", error)
        assert failure.detail == f"h:2379: {LASTING[words]}"
        assert not failure.transient


@pytest.mark.parametrize("words", PASSING)
def test_what_passes(words: str) -> None:
    error = Status(14, f"etcdserver: {words}")
    assert kind_of(error) is Kind.ELSEWHERE
    failure = said("h:2379", error)
    assert failure.detail == f"h:2379: {PASSING[words]}"
    assert failure.transient


@pytest.mark.parametrize(
    ("code", "detail", "kind"),
    [
        (5, f"etcdserver: {NO_SUCH_LEASE}", Kind.LEASE),
        (14, f"etcdserver: {NO_SUCH_LEASE}", Kind.LEASE),
        (16, "etcdserver: invalid auth token", Kind.LOGIN),
        (3, "etcdserver: revision of auth store is old: auth revision in header is old", Kind.LOGIN),
        (11, "etcdserver: mvcc: required revision has been compacted", Kind.COMPACTED),
        (14, "transport is closing", Kind.ELSEWHERE),
        (4, "context deadline exceeded", Kind.ELSEWHERE),
        (14, "HTTP status 404", Kind.FINAL),
        (12, "unknown service etcdserverpb.KV", Kind.FINAL),
        (3, "etcdserver: key is not provided", Kind.FINAL),
        (7, "etcdserver: permission denied", Kind.FINAL),
    ],
)
def test_what_to_do_about_it(code: int, detail: str, kind: Kind) -> None:
    error = Status(code, detail)
    assert kind_of(error) is kind
    assert said("h", error).transient == (kind is Kind.ELSEWHERE)


def test_what_is_said_is_one_line_and_short() -> None:
    assert said("h", Status(14, "HTTP status 502")).detail == f"h: {NO_ETCD}"
    assert said("h", Status(12, "unknown service etcdserverpb.KV")).detail == f"h: {NO_ETCD}"
    assert said("h", Status(13, "one\n  two\tthree")).detail == "h: one two three"
    assert said("h", Status(13, "x" * 1000)).detail == "h: " + "x" * LONGEST
    assert str(said("h", Status(14, "no leader"))).startswith("etcd")


@pytest.mark.parametrize(
    ("error", "tls", "words", "transient"),
    [
        (ConnectionRefusedError(111, "Connection refused"), False, "connection refused", True),
        (TimeoutError("slow"), False, "no answer in time", True),
        (OSError(113, "No route to host"), False, "no route to host", True),
        (ConnectionResetError(104, "Connection reset by peer"), True, "connection reset by peer", True),
        (ConnectionResetError(), False, "it closed the connection", True),
        (ConnectionResetError(), True, "no TLS connection: does it speak TLS?", False),
        (Disconnected("what it says is no HTTP/2"), False, NO_ETCD, False),
        (Disconnected("it hung up"), True, "it hung up", True),
        (Disconnected("it hung up"), False, "it hung up (does it want TLS? then give cacert=…)", True),
    ],
)
def test_no_connection(error: Exception, tls: bool, words: str, transient: bool) -> None:
    failure = unreachable("h:2379", error, tls=tls)
    assert failure.detail.startswith(f"h:2379: {words}")
    assert failure.transient is transient


def test_a_server_that_speaks_no_tls() -> None:
    error = ssl.SSLError(1, "long words")
    error.reason = "WRONG_VERSION_NUMBER"
    failure = unreachable("h", error, tls=True)
    assert failure.detail == "h: no TLS connection (WRONG_VERSION_NUMBER): does it speak TLS?"
    assert not failure.transient


def test_a_certificate_that_is_not_accepted() -> None:
    error = ssl.SSLCertVerificationError(1, "long words")
    error.verify_message = "self-signed certificate"
    failure = unreachable("h", error, tls=True)
    assert failure.detail == "h: its certificate is not accepted: self-signed certificate"
    assert not failure.transient


def test_no_answer_and_no_client() -> None:
    assert no_answer("h").detail == "h: no answer in time"
    assert no_answer("h").transient
    assert closed().detail == "the client is closed"


def test_a_password_is_in_no_failure() -> None:
    address = parse("etcd://ann:s3cr3t@h")
    login = pb.AuthenticateRequest(name=address.user, password=address.password)
    assert b"s3cr3t" in login.SerializeToString()
    for words in (*LASTING, *PASSING, "anything else"):
        for failure in (
            said(address.label, Status(16, words)),
            unreachable(address.label, OSError(words), tls=False),
        ):
            assert "s3cr3t" not in f"{failure} {failure!r}"
            assert "h:2379" in str(failure)


# Guard -----------------------------------------------------------------------------------------


def test_a_guard_on_a_dict_of_the_gateway() -> None:
    before = {"key": "eA==", "target": "VERSION", "version": "1"}
    transaction: dict[str, Any]
    for transaction in ({"success": []}, {"compare": [before], "success": []}):
        count = len(transaction.get("compare", []))
        guard(transaction, b"holdfast//job/e1-me", 17)
        assert transaction["success"] == []
        assert transaction["compare"][:count] == [before][:count]
        assert transaction["compare"][count:] == [
            {
                "key": base64.b64encode(b"holdfast//job/e1-me").decode(),
                "result": "EQUAL",
                "target": "CREATE",
                "create_revision": "17",
            }
        ]


def test_a_guard_on_a_message() -> None:
    put = pb.RequestOp(request_put=pb.PutRequest(key=b"stock/7", value=b"12"))
    transaction = pb.TxnRequest(success=[put])
    guard(transaction, b"key", 17)
    expected = pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.CREATE, key=b"key", create_revision=17)
    assert list(transaction.compare) == [expected]
    assert list(transaction.success) == [put]
    guard(transaction, b"other", 18)
    assert [each.create_revision for each in transaction.compare] == [17, 18]


@pytest.mark.parametrize("wrong", [None, [], "text", pb.PutRequest(), object()])
def test_what_is_no_transaction_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"a {type(wrong).__name__} is no transaction"):
        guard(wrong, b"key", 17)


# Places ----------------------------------------------------------------------------------------


def record(
    mode: Mode = "exclusive", number: int = 1, *, limit: int | None = None, value: bytes = b""
) -> Record:
    limit = LIMITS[mode] if limit is None else limit
    return Record(f"key-{number}", f"owner-{number}", number, mode, limit, "session", value)


def queue_of(modes: str) -> list[Record]:
    """Return a queue by the letters of its modes."""
    letters: dict[str, Mode] = {"e": "exclusive", "s": "shared", "p": "permit"}
    return [record(letters[letter], number) for number, letter in enumerate(modes)]


@pytest.mark.parametrize(
    ("modes", "position", "watched", "moves"),
    [
        ("ee", 1, [0], False),
        ("eee", 2, [1], False),
        ("sse", 2, [1], False),
        ("es", 1, [0], False),
        ("ess", 2, [0], False),
        ("sesess", 5, [3], False),
        ("ses", 2, [1], False),
        ("ppp", 2, [0, 1], False),
        ("pppp", 3, [2], True),
        ("ppppp", 4, [3], True),
        ("epp", 2, [0], False),
        ("pepp", 3, [1], False),
        ("epep", 3, [2], False),
        ("pps", 2, [1], False),
    ],
)
def test_whom_to_watch(modes: str, position: int, watched: list[int], moves: bool) -> None:
    records = queue_of(modes)
    assert admitted(records) <= position
    found, changes = blockers(records, position)
    assert ([each.token for each in found], changes) == (watched, moves)


def test_nobody_comes_in_while_those_it_watches_stay() -> None:
    """For every short queue, and whoever leaves it: nobody sleeps through its turn."""
    checked = 0
    for size in range(2, 6):
        for modes in itertools.product("esp", repeat=size):
            records = queue_of("".join(modes))
            for position in range(admitted(records), size):
                watched, moves = blockers(records, position)
                assert watched
                assert all(each.token < position for each in watched)
                for left in itertools.product([True, False], repeat=position):
                    stay = [each for each, stays in zip(records, left, strict=False) if stays]
                    if not all(each in stay for each in watched):
                        continue
                    holders = admitted([*stay, records[position]])
                    has_moved = moves and stay.index(watched[0]) < holders
                    assert holders <= len(stay) or has_moved, (modes, position, left)
                    checked += 1
    assert checked > 1000


def test_a_semaphore_has_one_limit() -> None:
    others = [record("permit", 1, limit=3), record("exclusive", 2), record("shared", 3)]
    check_limit(others, request(mode="permit", limit=3))
    check_limit(others, request(mode="exclusive", limit=1))
    check_limit([], request(mode="permit", limit=5))
    own = [record("permit", 1, limit=3)._replace(owner="me")]
    check_limit(own, request(mode="permit", limit=5))
    with pytest.raises(ConfigurationError, match=r"limit=5 for semaphore 'job': it is in use with limit 3"):
        check_limit(others, request(mode="permit", limit=5))


def test_a_record_says_what_was_told() -> None:
    wanted = request("jöb", metadata='{"invoice": 42, "who": "ä"}')
    value = told(wanted)
    assert json.loads(value)["name"] == "jöb"
    before = time.time()
    found = entry(record("permit", 7, limit=2, value=value), 12.5)
    assert (found.owner, found.token, found.mode, found.limit) == ("owner-7", 7, "permit", 2)
    assert (found.client, found.host, found.pid) == ("billing", "host-a", 812)
    assert found.metadata == {"invoice": 42, "who": "ä"}
    assert found.expires_in == 12.5
    assert abs(found.since - before) < 5
    assert 0 <= found.age < 5


def test_what_the_store_does_not_tell() -> None:
    value = told(request())
    assert entry(record(value=value), None).expires_in == 30.0
    assert entry(record(value=value), -1.0).expires_in == 0.0
    assert entry(record(value=value), None).metadata is None
    ahead = json.dumps({"since": time.time() + 1000}).encode()
    assert entry(record(value=ahead), None).age == 0.0


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"by hand",
        b"\xff\xfe\xfd",
        b"{",
        b"{}",
        b'{"client": 7}',
        b"5",
        b"[]",
        b'{"pid": "x"}',
        b'{"since": null}',
    ],
)
def test_a_value_that_somebody_wrote_by_hand(value: bytes) -> None:
    found = entry(record("exclusive", 9, value=value), 3.0)
    assert (found.owner, found.token, found.mode) == ("owner-9", 9, "exclusive")
    assert (found.host, found.pid, found.since, found.expires_in) == ("", 0, 0.0, 3.0)
    assert found.client == ("7" if b"7" in value else "")


def test_a_lock_as_people_read_it() -> None:
    records = [each._replace(session=each.token) for each in queue_of("sses")]
    found = state("job", records, {0: 5.0, 1: 6.0})
    assert found.name == "job"
    assert [each.token for each in found.holders] == [0, 1]
    assert [each.token for each in found.waiters] == [2, 3]
    assert [each.expires_in for each in found.holders] == [5.0, 6.0]


def test_where_somebody_stands() -> None:
    queue = Queue(queue_of("ees"), 17)
    assert [queue.find(each.owner) for each in queue.records] == [0, 1, 2]
    assert queue.find("nobody") is None


class Bell:
    """A signal that counts."""

    def __init__(self) -> None:
        self.rung = 0

    def notify(self) -> None:
        self.rung += 1


def test_waking_somebody() -> None:
    eye, bell = Eye(), Bell()
    eye.wake(gone=False)  # nobody listens yet, and it is not lost
    assert (eye.stirred, eye.called) == (True, False)
    eye.stirred = False
    eye.signal = bell  # type: ignore[assignment]
    eye.wake(gone=True)
    assert (eye.stirred, eye.called, bell.rung) == (True, True, 1)
    eye.wake(gone=False)
    assert (eye.called, bell.rung) == (True, 2)


# Tenures ---------------------------------------------------------------------------------------


class Keeper:
    """A store of sessions that are as long as they are asked for."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        self.kept: list[Any] = []
        self.gone: set[Any] = set()
        self.pause: Callable[[], Any] = lambda: None

    def class_of(self, ttl: float) -> float:
        return math.ceil(ttl) + 1.0

    async def begin(self, class_: float, deadline: float) -> Tenure:
        waiting = self.pause()
        if waiting is not None:
            await waiting
        self.begun.append(class_)
        return Tenure(class_, len(self.begun), class_, clock.now())

    async def keep(self, tenure: Tenure, deadline: float) -> bool:
        self.kept.append(tenure.ident)
        if tenure.ident in self.gone:
            return False
        tenure.heard(clock.now())
        return True

    async def end(self, tenure: Tenure, deadline: float) -> None:
        raise AssertionError("nobody asked for this")


class Bench:
    """Tenures over a `Keeper`, and what was heard of them."""

    def __init__(self, flavour: str) -> None:
        self.flavour = flavour
        self.keeper = Keeper()
        self.lost: list[tuple[str, str]] = []
        self.cleaned: list[Any] = []
        self.tenures = Tenures(self.keeper, "etcd", flavour, self._lost, self._clean)

    def _lost(self, place: Place, reason: str) -> None:
        self.lost.append((place.request.owner, reason))

    async def _clean(self, tenure: Tenure, deadline: float) -> None:
        self.cleaned.append(tenure.ident)

    def run(self, work: Any) -> Any:
        return run(work) if self.flavour == "blocking" else asyncio.run(work)

    async def fresh(self, class_: float, need: float, patience: float = 5.0) -> Tenure:
        return await self.tenures.fresh(class_, need, clock.now() + patience)


@pytest.fixture(params=FLAVOURS)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def test_a_tenure_serves_while_enough_of_it_is_left(bench: Bench) -> None:
    async def work() -> None:
        first = await bench.fresh(31.0, 30.0)
        assert await bench.fresh(31.0, 30.0) is first
        assert bench.keeper.kept == []
        until = first.good_until
        first.good_until -= 2.0
        assert await bench.fresh(31.0, 20.0) is first
        assert bench.keeper.kept == []
        assert await bench.fresh(31.0, 30.0) is first
        assert bench.keeper.kept == [first.ident]
        assert bench.cleaned == [first.ident]
        assert first.good_until >= until
        other = await bench.fresh(4.0, 3.0)
        assert other is not first
        assert bench.tenures.all() == [first, other]
        assert bench.keeper.begun == [31.0, 4.0]

    bench.run(work())


def test_a_tenure_that_the_store_has_no_more(bench: Bench) -> None:
    async def work() -> None:
        first = await bench.fresh(31.0, 30.0)
        place = Place(request())
        bell = Bell()
        place.signal = bell  # type: ignore[assignment]
        first.places["me"] = place
        first.good_until = 0.0
        bench.keeper.gone.add(first.ident)
        second = await bench.fresh(31.0, 30.0)
        assert second is not first
        assert first.ended
        assert not first.is_live(0.0)
        assert first.places == {}
        assert bench.lost == [("me", "its session in the store has ended")]
        assert bench.cleaned == []
        assert (place.stirred, place.called, bell.rung) == (True, False, 1)
        assert bench.tenures.all() == [second]

    bench.run(work())


def test_what_has_ended_is_told_once_and_not_asked_about(bench: Bench) -> None:
    async def work() -> None:
        first = await bench.fresh(31.0, 30.0)
        first.places["me"] = Place(request())
        bench.tenures.ended(first, "by an operator")
        bench.tenures.ended(first, "once more")
        assert bench.lost == [("me", "by an operator")]
        assert not await bench.tenures.keep(first, clock.now() + 1)
        assert bench.keeper.kept == []
        second = await bench.fresh(31.0, 30.0)
        bench.tenures.ended(first, "late")
        assert bench.tenures.all() == [second]
        bench.tenures.forget()
        assert bench.tenures.all() == []
        assert bench.lost == [("me", "by an operator")]

    bench.run(work())


def test_a_tenure_that_has_just_ended_serves_nobody(bench: Bench) -> None:
    async def work() -> None:
        first = await bench.fresh(31.0, 30.0)
        first.ended = True  # by a thread that is about to say so
        second = await bench.fresh(31.0, 30.0)
        assert second is not first
        assert bench.keeper.kept == []
        assert bench.tenures.all() == [second]

    bench.run(work())


def test_tasks_that_need_a_tenure_make_one() -> None:
    bench = Bench("asyncio")
    bench.keeper.pause = lambda: asyncio.sleep(0.01)

    async def work() -> None:
        found = await asyncio.gather(*(bench.fresh(31.0, 30.0) for _ in range(20)))
        assert len(set(map(id, found))) == 1

    asyncio.run(work())
    assert bench.keeper.begun == [31.0]


def test_threads_that_need_a_tenure_make_one() -> None:
    bench = Bench("blocking")
    bench.keeper.pause = lambda: time.sleep(0.05)
    start = threading.Barrier(8)

    def work() -> Tenure:
        start.wait(5)
        return run(bench.fresh(31.0, 30.0))

    with ThreadPoolExecutor(8) as pool:
        found = [future.result(10) for future in [pool.submit(work) for _ in range(8)]]
    assert len(set(map(id, found))) == 1
    assert bench.keeper.begun == [31.0]


def test_a_task_that_waits_for_another_ends_in_time() -> None:
    bench = Bench("asyncio")

    async def work() -> None:
        door = asyncio.Event()
        bench.keeper.pause = door.wait
        first = asyncio.create_task(bench.fresh(31.0, 30.0))
        await asyncio.sleep(0)
        began = clock.now()
        with pytest.raises(BackendUnavailable, match="no answer in time"):
            await bench.fresh(31.0, 30.0, patience=0.05)
        assert 0.04 <= clock.now() - began < 2
        door.set()
        tenure = await first
        assert await bench.fresh(31.0, 30.0) is tenure

    asyncio.run(work())


def test_a_thread_that_waits_for_another_ends_in_time() -> None:
    bench = Bench("blocking")
    inside, door = threading.Event(), threading.Event()

    def pause() -> None:
        inside.set()
        assert door.wait(10)

    bench.keeper.pause = pause
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: run(bench.fresh(31.0, 30.0)))
        try:
            assert inside.wait(5)
            began = clock.now()
            with pytest.raises(BackendUnavailable, match="no answer in time"):
                run(bench.fresh(31.0, 30.0, patience=0.05))
            assert 0.04 <= clock.now() - began < 2
        finally:
            door.set()
        assert run(bench.fresh(31.0, 30.0)) is first.result(5)


def test_a_mutex_is_free_again_after_an_error(bench: Bench) -> None:
    async def work() -> None:
        turn = mutex(bench.flavour)
        with pytest.raises(KeyError):
            async with turn.until(clock.now() + 1):
                raise KeyError
        async with turn.until(clock.now()):  # free, so no time is needed
            pass

    bench.run(work())


def test_a_tenure_counts_from_before_it_was_asked() -> None:
    tenure = Tenure(31.0, 1, 31.0, 100.0)
    assert tenure.good_until == 131.0
    tenure.heard(90.0)  # an answer that came late says nothing new
    assert tenure.good_until == 131.0
    tenure.heard(110.0)
    assert tenure.good_until == 141.0
    assert tenure.is_live(140.9)
    assert not tenure.is_live(141.0)
    tenure.ended = True
    assert not tenure.is_live(120.0)
