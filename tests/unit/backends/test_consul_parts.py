"""The parts of the Consul backend that need no Consul: keys, HTTP, the roll call, the URL."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from fencelock.backends import backend_from_url
from fencelock.backends.consul import ConsulBackend
from fencelock.backends.consul.address import Address, parse
from fencelock.backends.consul.connection import Consul
from fencelock.backends.consul.failures import said
from fencelock.backends.consul.guard import guard
from fencelock.backends.consul.keys import Keys
from fencelock.backends.consul.protocol import Answer, Http, Question, Reader
from fencelock.backends.consul.queues import ConsulStore
from fencelock.backends.consul.rollcall import Roll
from fencelock.backends.ordered.places import Record
from fencelock.core.ports import Origin, Request
from fencelock.errors import BackendUnavailable, ConfigurationError
from fencelock.net.failures import Disconnected, WrongProtocol
from fencelock.runtime.blocking import BlockingRuntime

OWNER = "0123456789abcdef0123456789abcdef"
NAMES = [
    *(
        "a",
        "A",
        "a/b",
        "a%2Fb",
        "a%252Fb",
        "a:b",
        "{a}b",
        "a ",
        " a",
        "a.",
        ".",
        "..",
        "../a",
        "~",
        "%7E",
        "é",
    ),
    *("e\u0301", "a\nb", "a\tb", "ab", "\U0001f512", "a//b", "a/", "/a", "?keys", "a#b", "e1-x", "a/e1-x"),
]


def asked(name: str, mode: Any = "exclusive", limit: int = 1) -> Request:
    return Request(OWNER, name, mode, limit, 30.0, Origin("c", "h", 1), None)


def consul(**options: Any) -> Consul:
    return Consul(BlockingRuntime(), Address(("h:1",), **options))


# Keys ---------------------------------------------------------------------------------------------------


def test_no_two_names_meet() -> None:
    keys = [Keys("fencelock", space).of(asked(name)) for space in ("", "a", "~", "a/b") for name in NAMES]
    assert len(set(keys)) == len(keys)
    for one, other in itertools.permutations(NAMES, 2):
        assert not Keys("fencelock", "").queue(one).startswith(Keys("fencelock", "").queue(other))


def test_a_key_says_what_it_is() -> None:
    for space, name in itertools.product(("", "a", ".."), NAMES):
        keys = Keys("my/prefix", space)
        for mode, limit in (("exclusive", 1), ("shared", 0), ("permit", 12)):
            assert keys.parts(keys.of(asked(name, mode, limit))) == (name, mode, limit, OWNER)
        assert keys.of(asked(name)).startswith(keys.beginning(name[: len(name) // 2]))


def test_consul_takes_every_key_for_what_it_is() -> None:
    """Its HTTP server refuses what cannot be printed, and rewrites what looks like a path that leads up."""
    for space, name in itertools.product(("", ".", "a"), NAMES):
        key = Keys("fencelock", space).of(asked(name))
        assert key.isascii()
        assert key.isprintable()
        assert not {"", ".", ".."} & set(key.split("/"))


@pytest.mark.parametrize(
    "key",
    [
        *("", "other/~/a/e1-x", "fencelock/~/e1-x", "fencelock/~/a/b/e1-x", "fencelock/~/a/x1-x"),
        *("fencelock/~/a/e1x", "fencelock/~/a/ex-x", "fencelock/~/é/e1-x", "fencelock/~/%zz/e1-x"),
        *("fencelock/~/~/0-1-2", "fencelock/~/%ff/e1-x"),
    ],
)
def test_keys_of_others_are_left_alone(key: str) -> None:
    assert Keys("fencelock", "").parts(key) is None


def test_a_sign_of_life_is_no_request() -> None:
    keys = Keys("fencelock", "")
    life = keys.life("7a04ce9b-626a-ce34-1975-ea06001f3b86")
    assert keys.parts(life) is None
    assert keys.parts(keys.life("e1234567-626a-ce34-1975-ea06001f3b86")) is None
    assert not any(life.startswith(keys.queue(name)) for name in NAMES)


# HTTP ---------------------------------------------------------------------------------------------------

ANSWERS = {
    "with a length": (
        b"HTTP/1.1 200 OK\r\nX-Consul-Index: 17\r\nContent-Length: 4\r\n\r\ntrue",
        b"true",
        True,
    ),
    "without a body": (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", b"", True),
    "nothing to say": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "in chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ntr\r\n2;x=y\r\nue\r\n0\r\n\r\n",
        b"true",
        True,
    ),
    "and no more": (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n1", b"1", False),
    "an old one": (b"HTTP/1.0 400 Bad Request\r\nContent-Length: 3\r\n\r\nbad", b"bad", False),
}


@pytest.mark.parametrize(("data", "body", "keep"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_in_two_parts_cut_anywhere(data: bytes, body: bytes, keep: bool) -> None:
    for cut in range(1, len(data)):
        reader = Reader()
        assert reader.feed(data[:cut]) is None
        answer = reader.feed(data[cut:])
        assert answer is not None
        assert (answer.status, answer.body, answer.keep) == (int(data[9:12]), body, keep)


def test_an_answer_that_ends_with_the_connection() -> None:
    reader = Reader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\n\r\nsome") is None
    assert reader.feed(b"thing") is None
    answer = reader.feed(b"")
    assert answer is not None
    assert (answer.body, answer.keep) == (b"something", False)


def test_two_answers_on_one_connection() -> None:
    data = ANSWERS["with a length"][0]
    reader = Reader()
    first, second = reader.feed(data), reader.feed(data)
    assert first == second
    assert first is not None
    assert first.moment == 17


@pytest.mark.parametrize(
    "data", [b"SSH-2.0-x\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"\x15\x03\x01"]
)
def test_something_else_is_no_http(data: bytes) -> None:
    with pytest.raises(WrongProtocol):
        Reader().feed(data)


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"])
def test_a_connection_that_ends_too_early(data: bytes) -> None:
    reader = Reader()
    if data:
        reader.feed(data)
    with pytest.raises(Disconnected):
        reader.feed(b"")


def test_a_request() -> None:
    http = Http("Host: h\r\n")
    number = http.ask(Question("PUT", "/v1/txn", b"[]"))
    assert http.outgoing() == b"PUT /v1/txn HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n[]"
    for _, (data, body, keep) in zip("ab", ANSWERS.values(), strict=False):
        assert http.feed(data[:9]) == []
        ((answered, answer),) = http.feed(data[9:])
        assert (answered, answer.body) == (number, body)
        assert http.is_over is not keep


# The roll call ------------------------------------------------------------------------------------------


def call(roll: Roll, now: float, signs: dict[str, int]) -> None:
    roll.heard(roll.members(63, now), signs, now)


def test_who_is_silent_for_three_seconds_has_lost_its_place() -> None:
    roll = Roll()
    for second in range(6):
        roll.note({"dead": 1, "alive": 1, "holder": 1}, second)
        call(roll, second, {"dead": 7, "alive": second})
        assert roll.is_silent("dead", 1) == (second >= 3)
        assert not roll.is_silent("alive", 1)
        assert not roll.is_silent("holder", 1)
    assert not roll.is_silent("unknown", 1)


def test_a_late_sign_counts() -> None:
    roll = Roll()
    for second in range(4):
        roll.note({"x": 1}, second)
        call(roll, second, {"x": 7})
    assert roll.is_silent("x", 1)
    call(roll, 4, {"x": 8})
    assert not roll.is_silent("x", 1)


def test_who_stands_in_line_again_is_not_silent_whatever_it_was() -> None:
    roll = Roll()
    for second in range(4):
        roll.note({"x": 5}, second)
        call(roll, second, {"x": 7})
    assert roll.is_silent("x", 5)
    assert not roll.is_silent("x", 9)  # back, and not even noted
    roll.note({"x": 9}, 4)
    assert not roll.is_silent("x", 9)
    for second in range(5, 9):
        call(roll, second, {"x": 7})
    assert roll.is_silent("x", 9)


def test_a_pause_of_consul_is_nobodys_silence() -> None:
    roll = Roll()
    roll.note({"x": 1}, 0)
    call(roll, 0, {"x": 7})
    roll.note({"x": 1}, 60)
    call(roll, 60, {"x": 7})
    assert not roll.is_silent("x", 1)


def test_who_is_seen_no_more_is_forgotten() -> None:
    roll = Roll()
    roll.note({"x": 1}, 0)
    assert roll.members(63, 4) == ["x"]
    assert roll.members(63, 6) == []


def test_all_are_asked_for_in_turn() -> None:
    roll = Roll()
    roll.note({str(number): 1 for number in range(10)}, 0)
    seen: set[str] = set()
    for second in range(1, 5):
        some = roll.members(3, second)
        roll.heard(some, {}, second)
        seen.update(some)
    assert len(seen) == 10


def test_those_right_before_us_are_called() -> None:
    store = ConsulStore(BlockingRuntime(), consul(), Keys("fencelock", ""))
    records = [Record(str(n), f"owner{n}", n, "exclusive", 1, f"session{n}", b"") for n in range(60)]
    store._mine = {"30", "31"}
    assert store._before_ours(records) == {f"session{n}": n for n in range(10, 30)}
    store._mine = set()
    assert store._before_ours(records) == {}


# The rest -----------------------------------------------------------------------------------------------


def test_where_it_is() -> None:
    address = parse(
        "consul://:t%3Aoken@one,two:80,[::1]:81/a/b/?dc=x&cacert=/ca&cert=/c&key=/k&server_name=n"
    )
    assert address.endpoints == ("one:8500", "two:80", "[::1]:81")
    assert (address.prefix, address.token, address.dc, address.tls) == ("a/b", "t:oken", "x", True)
    assert (address.cacert, address.cert, address.key, address.server_name) == ("/ca", "/c", "/k", "n")
    plain = parse("consul://localhost")
    assert (plain.prefix, plain.token, plain.dc, plain.tls) == ("fencelock", None, None, False)
    assert plain.context() is None
    assert isinstance(backend_from_url("consul://localhost"), ConsulBackend)


def test_a_request_carries_token_and_datacentre() -> None:
    def sent(consul: Consul, path: str) -> bytes:
        http = consul.protocol("h:1")
        http.ask(consul.question("GET", path))
        return http.outgoing()

    assert b"X-Consul-Token" not in sent(consul(), "/v1/x")
    other = consul(token="secret", dc="a b")
    assert sent(other, "/v1/x").startswith(b"GET /v1/x?dc=a%20b HTTP/1.1\r\nHost: h:1\r\n")
    assert sent(other, "/v1/x?keys").startswith(b"GET /v1/x?keys&dc=a%20b HTTP/1.1\r\n")
    assert b"\r\nX-Consul-Token: secret\r\n" in sent(other, "/v1/x")


@pytest.mark.parametrize(
    ("status", "body", "passing", "words"),
    [
        (500, b"No cluster leader", True, "no leader"),
        (500, b"rpc error making call: leadership lost while committing log", True, "leader has changed"),
        (403, b"ACL not found", False, "token"),
        (403, b"anything", False, "session write"),
        (429, b"", True, "http_max_conns_per_client"),
        (400, b"Client sent an HTTP request to an HTTPS server.\n", False, "TLS"),
        (405, b"", False, "Consul's protocol"),
        (502, b"<html>\n<b>Bad Gateway</b></html>", True, "status 502"),
        (500, b"something\nnew", True, "something new"),
    ],
)
def test_what_consul_says(status: int, body: bytes, passing: bool, words: str) -> None:
    error = said("h:1", Answer(status, {}, body, True))
    assert isinstance(error, BackendUnavailable)
    assert error.transient is passing
    assert words in str(error)
    assert "\n" not in str(error)


def test_a_guard_is_one_more_operation() -> None:
    transaction: list[Any] = []
    guard(transaction, "k", "s")
    assert transaction == [{"KV": {"Verb": "check-session", "Key": "k", "Session": "s"}}]
    with pytest.raises(ConfigurationError, match="a dict is no transaction"):
        guard({}, "k", "s")


def test_guarantees() -> None:
    guarantees = ConsulBackend.from_url("consul://localhost").guarantees
    assert (guarantees.min_ttl, guarantees.crash_release) == (10.0, "session")
