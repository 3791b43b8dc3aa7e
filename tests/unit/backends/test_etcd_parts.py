"""The parts of the etcd backend that need no server: keys, addresses, failures, guards."""

from __future__ import annotations

import base64
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelock.backends.base import Origin, Request
from fencelock.backends.etcd import EtcdBackend
from fencelock.backends.etcd import rpc_pb2 as pb
from fencelock.backends.etcd.address import Address, parse
from fencelock.backends.etcd.failures import (
    FAILURES,
    LASTING,
    LONGEST,
    NO_ETCD,
    NO_SUCH_LEASE,
    PASSING,
    Kind,
    kind_of,
    said,
)
from fencelock.backends.etcd.guard import guard
from fencelock.backends.etcd.keys import Keys, end_of, suffix
from fencelock.backends.etcd.protocol import Status
from fencelock.core.queue import Mode
from fencelock.errors import ConfigurationError
from fencelock.net.failures import Disconnected, WrongProtocol

LIMITS: dict[Mode, int] = {"exclusive": 1, "shared": 0, "permit": 2}


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
        ("", "job", b"fencelock//job/e1-me"),
        ("billing", "job", b"fencelock/billing/job/e1-me"),
        ("a/b", "c/d", b"fencelock/a%2Fb/c%2Fd/e1-me"),
        ("", "%2F", b"fencelock//%252F/e1-me"),
        ("", "ä {x}:y ", "fencelock//ä {x}:y /e1-me".encode()),
    ],
)
def test_what_a_key_looks_like(namespace: str, name: str, key: bytes) -> None:
    keys = Keys("fencelock", namespace)
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
    one, two = Keys("fencelock", space).queue(name), Keys("fencelock", other_space).queue(other)
    same = (space, name) == (other_space, other)
    assert (one == two) == same
    assert one.startswith(two) == same


@given(TEXT | AWKWARD, NAMES)
def test_what_a_name_begins_with_its_keys_begin_with(prefix: str, name: str) -> None:
    keys = Keys("fencelock", "ns")
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
        b"fencelock/else/job/e1-me",
        b"fencelock/ns/",
        b"fencelock/ns/job",
        b"fencelock/ns/job/",
        b"fencelock/ns/job/e1",
        b"fencelock/ns/job/e-me",
        b"fencelock/ns/job/x1-me",
        b"fencelock/ns/job/eone-me",
        b"fencelock/ns/job/e-1-me",
        b"fencelock/ns//e1-me",
        b"fencelock/ns/job/deeper/e1-me",
        b"fencelock/ns/\xff/e1-me",
        b"fencelock/ns/job/e1-\xff",
        b"fencelock/ns/job/e" + b"9" * 5000 + b"-me",
    ],
)
def test_keys_of_others_are_not_ours(key: bytes) -> None:
    assert Keys("fencelock", "ns").parts(key) is None


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
        ("h:0", "is not an address"),
        ("h:65536", "is not an address"),
        ("h:port", "is not an address"),
        ("h:", "is not an address"),
        ("h:²", "is not an address"),
        (":2379", "is not an address"),
        ("", "is not an address"),
        ("a,,b", "is not an address"),
        ("a,", "is not an address"),
        ("::1:2379", "is not an address"),
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
        (ConnectionResetError(), False, "it closed the connection: perhaps it wants TLS", True),
        (ConnectionResetError(), True, "it closed the connection: perhaps it wants a certificate", True),
        (WrongProtocol("what it says is no HTTP/2"), False, NO_ETCD, False),
        (Disconnected("it hung up"), True, "it closed the connection: perhaps it wants a certificate", True),
        (Disconnected("it hung up"), False, "it closed the connection: perhaps it wants TLS", True),
    ],
)
def test_no_connection(error: Exception, tls: bool, words: str, transient: bool) -> None:
    failure = FAILURES.unreachable("h:2379", error, tls=tls)
    assert failure.detail.startswith(f"h:2379: {words}")
    assert failure.transient is transient


def test_a_server_that_speaks_no_tls() -> None:
    error = ssl.SSLError(1, "long words")
    error.reason = "WRONG_VERSION_NUMBER"
    failure = FAILURES.unreachable("h", error, tls=True)
    assert failure.detail.startswith("h: no TLS connection (WRONG_VERSION_NUMBER): does it speak TLS")
    assert not failure.transient


def test_a_certificate_that_is_not_accepted() -> None:
    error = ssl.SSLCertVerificationError(1, "long words")
    error.verify_message = "self-signed certificate"
    failure = FAILURES.unreachable("h", error, tls=True)
    assert failure.detail == "h: its certificate is not accepted: self-signed certificate"
    assert not failure.transient


def test_a_password_is_in_no_failure() -> None:
    address = parse("etcd://ann:s3cr3t@h")
    login = pb.AuthenticateRequest(name=address.user, password=address.password)
    assert b"s3cr3t" in login.SerializeToString()
    for words in (*LASTING, *PASSING, "anything else"):
        for failure in (
            said(address.label, Status(16, words)),
            FAILURES.unreachable(address.label, OSError(words), tls=False),
        ):
            assert "s3cr3t" not in f"{failure} {failure!r}"
            assert "h:2379" in str(failure)


# Guard -----------------------------------------------------------------------------------------


def test_a_guard_on_a_dict_of_the_gateway() -> None:
    before = {"key": "eA==", "target": "VERSION", "version": "1"}
    transaction: dict[str, Any]
    for transaction in ({"success": []}, {"compare": [before], "success": []}):
        count = len(transaction.get("compare", []))
        guard(transaction, b"fencelock//job/e1-me", 17)
        assert transaction["success"] == []
        assert transaction["compare"][:count] == [before][:count]
        assert transaction["compare"][count:] == [
            {
                "key": base64.b64encode(b"fencelock//job/e1-me").decode(),
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
