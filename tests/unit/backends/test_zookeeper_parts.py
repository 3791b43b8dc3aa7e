"""The parts of the ZooKeeper backend that need no server: addresses, names, moves, what doctor says."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo import exceptions
from kazoo.protocol.states import EventType, KazooState

from fencelock import Client, ConfigurationError
from fencelock.backends.base import Origin, Request
from fencelock.backends.ordered.places import Eye, Place, Queue, blockers
from fencelock.backends.ordered.tenures import Tenure
from fencelock.backends.zookeeper.address import Address, parse
from fencelock.backends.zookeeper.doctor import Member, findings, read
from fencelock.backends.zookeeper.failures import said, unreachable
from fencelock.backends.zookeeper.moves import change_for
from fencelock.backends.zookeeper.names import (
    hash_in,
    hash_of,
    holding,
    is_waiting,
    parent_of,
    records_of,
    standing_of,
    stem,
    waiting,
)
from fencelock.backends.zookeeper.sessions import Session
from fencelock.core.queue import Mode, admitted

SECRET = "s3cr3t-and-never-shown"
OWNERS = [f"{number:032x}" for number in range(9)]


def request(owner: str = OWNERS[0], mode: Mode = "exclusive", limit: int = 1) -> Request:
    return Request(owner, "job", mode, limit, 30.0, Origin("test", "host", 1), None)


# Addresses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "hosts", "chroot"),
    [
        ("zookeeper://a", ("a:2181",), ""),
        (
            "zookeeper://a,b:2182,[::1]:2183/locks/billing/",
            ("a:2181", "b:2182", "[::1]:2183"),
            "/locks/billing",
        ),
        ("zookeeper://[::1]", ("[::1]:2181",), ""),
        ("zookeeper://a/with%20space", ("a:2181",), "/with space"),
    ],
)
def test_hosts_and_chroot(url: str, hosts: tuple[str, ...], chroot: str) -> None:
    address = parse(url)
    assert (address.hosts, address.chroot) == (hosts, chroot)
    assert address.options()["hosts"] == ",".join(hosts) + chroot


def test_a_user_owns_what_it_makes_unless_it_is_open() -> None:
    closed = parse(f"zookeeper://ann:{SECRET}%40@a")
    assert closed.options()["auth_data"] == [("digest", f"ann:{SECRET}@")]
    assert closed.acl[0].id.scheme == "auth"
    assert parse(f"zookeeper://ann:{SECRET}@a?acl=open").acl[0].id.scheme == "world"
    assert parse("zookeeper://a").acl[0].id.scheme == "world"


def test_sasl_gets_the_login_instead() -> None:
    options = parse(f"zookeeper://ann:{SECRET}@a?sasl=DIGEST-MD5").options()
    assert options["sasl_options"] == {"mechanism": "DIGEST-MD5", "username": "ann", "password": SECRET}
    assert "auth_data" not in options
    assert parse("zookeeper://a?sasl=GSSAPI").options()["sasl_options"] == {"mechanism": "GSSAPI"}


def test_tls_is_on_with_any_of_its_options() -> None:
    assert parse("zookeeper://a").context() is None
    address = parse("zookeeper://a?tls=yes")
    context = address.context()
    assert context is not None
    assert context.check_hostname
    context = parse("zookeeper://a?tls=yes&check_hostname=no").context()
    assert context is not None
    assert not context.check_hostname
    with pytest.raises(ConfigurationError, match=r"/nowhere/ca\.pem"):
        parse("zookeeper://a?cacert=/nowhere/ca.pem").context()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("zookeeper://localhost:port", "is not an address"),
        ("zookeeper://localhost:0", "is not an address"),
        ("zookeeper://a,,b", "is not an address"),
        ("zookeeper://", "is not an address"),
        ("zookeeper://ann@localhost", "a user without a password"),
        ("zookeeper://localhost?color=red", "unknown option color"),
        ("zookeeper://localhost?tls=", "without a value"),
        ("zookeeper://localhost?tls=maybe", "tls=maybe"),
        ("zookeeper://localhost?acl=mine", "acl=mine"),
        ("zookeeper://localhost?acl=creator", "acl=creator and no user"),
        ("zookeeper://localhost?sasl=MAGIC", "sasl=MAGIC"),
        ("zookeeper://localhost?sasl=PLAIN", "sasl=PLAIN and no user"),
        ("zookeeper://localhost?cert=a.crt", "one of cert and key"),
        ("zookeeper://localhost?tls=no&cacert=a.crt", "tls=no and options of TLS"),
        ("zookeeper://localhost?tls=no&check_hostname=no", "tls=no and options of TLS"),
        ("zookeeper://localhost/a//b", "no chroot"),
        ("zookeeper://localhost/a/../b", "no chroot"),
        (f"zookeeper://ann:{SECRET}@localhost?color=red", "unknown option color"),
    ],
)
def test_wrong_urls(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as raised:
        Client(url)
    assert "\n" not in str(raised.value)
    assert SECRET not in str(raised.value)


def test_a_password_is_not_shown() -> None:
    address = parse(f"zookeeper://ann:{SECRET}@a")
    with Client(f"zookeeper://ann:{SECRET}@a") as locks:
        assert SECRET not in repr(address) + repr(locks) + repr(locks._session.backend) + address.label


# Names ------------------------------------------------------------------------------------------


def children(*paths: str) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]


def test_a_name_is_told_apart_from_all_others() -> None:
    told = [
        ("", "a"),
        ("a", ""),
        ("", "A"),
        ("", "a "),
        ("x", "a"),
        ("", "xa"),
        ("", "1:xa"),
        ("", "\u00e9"),
        ("", "e\u0301"),
    ]
    assert len({hash_of(namespace, name) for namespace, name in told}) == len(told)
    hash_ = hash_of("", "a")
    assert parent_of(hash_) == f"/fencelock/{hash_[:2]}"
    assert hash_in(f"{stem(hash_, request())}0000000001") == hash_


def test_a_queue_is_in_the_order_of_its_numbers() -> None:
    hash_ = hash_of("", "job")
    paths = [
        f"{stem(hash_, request(owner))}{number:010d}"
        for number, owner in zip((7, 3, 5), OWNERS, strict=False)
    ]
    strangers = ["lock-0000000001", f"{hash_}-q1-x-0000000001", f"{hash_}-e1-x-number", "f" * 40]
    records = records_of(hash_, children(*paths) + strangers)
    assert [record.owner for record in records] == [OWNERS[1], OWNERS[2], OWNERS[0]]
    assert admitted(records) == 1


def test_numbers_wrap_around() -> None:
    hash_ = hash_of("", "job")
    numbers = [2**31 - 2, 2**31 - 1, -(2**31), -(2**31) + 1]
    paths = [
        f"{stem(hash_, request(owner))}{number:010d}" for number, owner in zip(numbers, OWNERS, strict=False)
    ]
    records = records_of(hash_, reversed(children(*paths)))
    assert [record.owner for record in records] == OWNERS[:4]
    paths = [
        f"{stem(hash_, request(owner))}{number:010d}" for number, owner in zip((-1, 0), OWNERS, strict=False)
    ]
    assert [record.owner for record in records_of(hash_, children(*paths))] == OWNERS[:2]


def test_a_request_with_two_znodes_is_one_record_and_the_one_that_waits_is_last() -> None:
    hash_ = hash_of("", "job")
    base = f"{stem(hash_, request(mode='permit', limit=3))}0000000004"
    both = [waiting(base, 0xABC), holding(base, 0xDEF)]
    (record,) = records_of(hash_, children(*both))
    assert record.key == (holding(base, 0xDEF), waiting(base, 0xABC))
    assert (record.mode, record.limit, record.owner) == ("permit", 3, OWNERS[0])
    assert [is_waiting(path) for path in (base, *record.key)] == [False, False, True]


@pytest.mark.parametrize("order", [1, -1])
def test_who_stands_in_line_anew_does_not_stand_where_it_did(order: int) -> None:
    """Its first znode may still be there: in a session that has ended for it, and not yet for the server."""
    hash_ = hash_of("", "job")
    first, between, anew = (
        f"{stem(hash_, request(owner))}{number:010d}"
        for number, owner in ((3, OWNERS[0]), (5, OWNERS[1]), (7, OWNERS[0]))
    )
    listed = children(waiting(first, 0xABC), between, anew)[::order]
    queue = Queue(records_of(hash_, listed))
    assert [record.key for record in queue.records] == [(waiting(first, 0xABC),), (between,), (anew,)]
    assert (queue.find(OWNERS[0]), queue.find(OWNERS[1])) == (2, 1)


@pytest.mark.parametrize("mode", ["exclusive", "shared", "permit"])
def test_how_a_place_stands_is_the_same_as_in_the_whole_queue(mode: Mode) -> None:
    hash_ = hash_of("", "job")
    chance = random.Random(20)
    for _ in range(3000):
        paths = []
        start = chance.choice([0, 0, 0, 2**31 - 4, -(2**31), -3])
        for step, owner in enumerate(chance.sample(OWNERS, chance.randint(1, 6))):
            number = (start + step + 2**31) % 2**32 - 2**31
            kind: Mode = mode if step == 0 else chance.choice(["exclusive", "shared"])
            made = request(owner, kind, {"exclusive": 1, "shared": 0, "permit": 2}[kind])
            path = f"{stem(hash_, made)}{number:010d}"
            forms = chance.choice([[path], [path], [waiting(path, 1)], [holding(path, 2), waiting(path, 1)]])
            paths.append((made, path, forms))
        listed = children(*(form for *_, forms in paths for form in forms))
        listed += chance.choice([[], [], ["lock-0000000001"], [f"{hash_}-q1-x-0000000000"], ["f" * 40]])
        chance.shuffle(listed)
        place = Place(chance.choice(paths)[0] if chance.random() < 0.5 else paths[0][0])
        place.key = next(tuple(forms) for made, _, forms in paths if made is place.request)
        whole, part = Queue(records_of(hash_, listed)), Queue(standing_of(hash_, listed, place))
        owner = place.request.owner
        there, here = whole.find(owner), part.find(owner)
        assert there is not None
        assert here is not None
        assert whole.records[there] == part.records[here]
        assert whole.records[0] == part.records[0]
        assert (there < admitted(whole.records)) is (here < admitted(part.records))
        if there >= admitted(whole.records):
            assert blockers(whole.records, there) == blockers(part.records, here)


def test_a_place_that_is_gone_stands_nowhere_and_one_that_is_there_twice_stands_last() -> None:
    hash_ = hash_of("", "job")
    place = Place(request())
    first, between, anew = (
        f"{stem(hash_, request(owner))}{number:010d}"
        for number, owner in ((3, OWNERS[0]), (5, OWNERS[1]), (7, OWNERS[0]))
    )
    place.key = (first,)
    assert Queue(standing_of(hash_, children(between), place)).find(OWNERS[0]) is None
    assert Queue(standing_of(hash_, children(first, between, anew), place)).find(OWNERS[0]) == 2


# Moves ------------------------------------------------------------------------------------------


class Transaction:
    """Writes down what it is asked for."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    def __getattr__(self, step: str) -> Any:
        return lambda path, *_, **__: self.steps.append((step, path))


def move(place: Place, tenure: Tenure, *, to_wait: bool = False) -> tuple[list[tuple[str, str]] | None, Any]:
    change, after = change_for(
        place, tenure, SimpleNamespace(transaction=Transaction), b"{}", to_wait=to_wait
    )
    return (change.steps if change is not None else None), after


def test_the_way_of_a_request_from_one_session_to_another() -> None:
    place = Place(request())
    long, short, longer = (Tenure(class_, ident, class_, 0.0) for class_, ident in ((31, 1), (4, 2), (61, 3)))
    place.tenure, place.key = long, ("/b-1",)
    assert move(place, long) == ([("check", "/b-1")], ("/b-1",))
    steps, after = move(place, short, to_wait=True)
    assert (steps, after) == ([("delete", "/b-1"), ("create", "/b-1.w2")], ("/b-1.w2",))
    place.tenure, place.key = short, after
    steps, after = move(place, long)
    assert (steps, after) == ([("check", "/b-1.w2"), ("create", "/b-1.h1")], ("/b-1.h1", "/b-1.w2"))
    place.tenure, place.key = long, after
    assert move(place, short, to_wait=True) == ([("delete", "/b-1.h1"), ("check", "/b-1.w2")], ("/b-1.w2",))
    steps, after = move(place, longer)
    assert (steps, after) == ([("delete", "/b-1.h1"), ("create", "/b-1.h3")], ("/b-1.h3", "/b-1.w2"))
    place.key = after
    assert move(place, longer) == (None, after), "it was done, and the answer was lost"


def test_a_permit_that_moves_up_lets_the_next_one_know() -> None:
    place = Place(request(mode="permit", limit=2))
    place.tenure, place.key = Tenure(4, 2, 4, 0.0), ("/b-1.w2",)
    steps, _ = move(place, Tenure(31, 1, 31, 0.0))
    assert steps == [("set_data", "/b-1.w2"), ("create", "/b-1.h1")]


# Sessions ---------------------------------------------------------------------------------------


class Watching(Eye):
    """Writes down how it is woken."""

    def __init__(self) -> None:
        super().__init__()
        self.woken: list[bool] = []

    def wake(self, *, gone: bool) -> None:
        self.woken.append(gone)


def test_the_end_of_a_session_is_told_once_whoever_hears_of_it_first() -> None:
    told: list[str] = []
    session = Session(Address(("127.0.0.1:1",)), 10.0, is_idle=bool, is_held=bool, lost=told.append)
    session.expired()  # by the answer to a question, before the connection's thread tells of it
    assert told == ["its ZooKeeper session has expired"]
    session._changed(KazooState.LOST)
    session.expired()
    assert len(told) == 1
    assert session.is_over


def test_the_end_of_a_session_that_was_wanted_is_told_to_nobody() -> None:
    told: list[str] = []
    session = Session(Address(("127.0.0.1:1",)), 10.0, is_idle=bool, is_held=bool, lost=told.append)
    session.end()
    session.expired()
    session._changed(KazooState.LOST)
    assert told == []


def test_what_is_heard_reaches_those_who_watch_it_and_no_others() -> None:
    session = Session(Address(("127.0.0.1:1",)), 10.0, is_idle=bool, is_held=bool, lost=print)
    one, two, three = Watching(), Watching(), Watching()
    for eye, paths in ((one, ["/a"]), (two, ["/a", "/b"]), (three, ["/b"])):
        session.watch(eye, paths)
    session.armed.update({"/a", "/c"})
    session.unwatch(three, ["/b"])
    session.heard(SimpleNamespace(type=EventType.DELETED, path="/a"))
    session.heard(SimpleNamespace(type=EventType.CHANGED, path="/b"))
    assert (one.woken, two.woken, three.woken) == ([True], [True, False], [])
    assert session.armed == {"/c"}
    session.watch(three, ["/d"])
    session.heard(SimpleNamespace(type=EventType.NONE, path=None))
    assert three.woken == [False]
    assert session.armed == set(), "without a connection nothing is told"


# What is said -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "words", "transient"),
    [
        (exceptions.NoAuthError(), "may not make, read and delete znodes", False),
        (exceptions.AuthFailedError(), "password is wrong", False),
        (exceptions.SASLException("Missing SASL support"), "pip install pure-sasl", False),
        (exceptions.UnimplementedError(), "ZooKeeper 3.5 or newer is needed: upgrade it", False),
        (ConnectionRefusedError(), "connection refused", True),
        (exceptions.ConnectionDropped("socket connection broken"), "has it a quorum", True),
        (TimeoutError(), "no answer in time", True),
    ],
)
def test_failures(error: Exception, words: str, transient: bool) -> None:
    told = unreachable("a:2181", error, tls=False)
    assert words in str(told)
    assert told.transient is transient


def test_an_unknown_failure_is_cut_to_one_line() -> None:
    told = said("a:2181", exceptions.SystemZookeeperError("much\nto " + "say " * 100))
    assert "\n" not in str(told)
    assert len(str(told)) < 250


SRVR = """Zookeeper version: 3.8.0-abc, built on 2024-12-29 17:54 UTC
Latency min/avg/max: 0/1.2004/95
Received: 2953
Mode: {mode}
Node count: 143
"""


def test_doctor_reads_what_a_member_says() -> None:
    member = read("a:2181", SRVR.format(mode="follower"))
    assert (member.mode, member.version, member.latency, member.trouble) == (
        "follower",
        (3, 8, 0),
        1.2004,
        "",
    )
    assert "no quorum" in read("a:2181", "This ZooKeeper instance is not currently serving requests").trouble
    refused = read("a:2181", "srvr is not executed because it is not in the whitelist.\n")
    assert "does not answer the word" in refused.trouble


def told(*members: Member, url: str = "zookeeper://a,b,c", span: tuple[float, float] = (4.0, 40.0)) -> str:
    found = findings(parse(url), members, *span)
    assert all("\n" not in finding.detail + finding.advice for finding in found)
    return "\n".join(
        f"{finding.severity} {finding.subject}: {finding.detail} {finding.advice}" for finding in found
    )


def member(host: str, mode: str = "follower", version: tuple[int, ...] = (3, 8, 0), **facts: Any) -> Member:
    return Member(host, mode, version, **facts)


def test_doctor_on_ensembles() -> None:
    whole = told(member("a", "leader"), member("b"), member("c"))
    assert "ok ensemble: a leader, b follower, c follower" in whole
    assert "critical" not in whole
    assert "ok session: sessions of 4 s to 40 s" in whole
    assert "no wall clock decides anything" in whole
    assert "warning network" in whole
    assert "notice access" in whole
    one_down = told(member("a", "leader"), member("b"), Member("c", trouble="connection refused"))
    assert "warning member: c: connection refused" in one_down
    no_quorum = told(member("a", ""), Member("b", trouble="timed out"), Member("c", trouble="timed out"))
    assert "critical member: b: timed out" in no_quorum
    assert "critical read-only" in told(member("a", "read-only"), member("b"), member("c"))
    assert "the leader is not in the URL" in told(member("a"))
    assert "warning ensemble: a standalone" in told(member("a", "standalone"))
    assert "name all of them" in told(member("a", "leader"), member("b"))


def test_doctor_on_what_a_member_is_like() -> None:
    assert "critical version: ZooKeeper 3.4.14" in told(member("a", version=(3, 4, 14)))
    assert "finish the upgrade" in told(member("a", "leader"), member("b", version=(3, 9, 1)))
    assert "warning latency: a takes 250 ms" in told(member("a", latency=250.0))
    assert "warning session: a ttl of more than 10 s is refused" in told(member("a"), span=(1.0, 10.0))
    assert "notice session: a ttl of less than 4 s is refused" in told(member("a"))
    assert "ok session: sessions of 1 s to 60 s are agreed to" in told(member("a"), span=(1.0, 60.0))
    assert "notice session" not in told(member("a"), span=(1.0, 60.0))
    private = told(member("a"), url=f"zookeeper://ann:{SECRET}@127.0.0.1")
    assert "network" not in private
    assert "access" not in private
    assert SECRET not in told(member("a"), url=f"zookeeper://ann:{SECRET}@a")
