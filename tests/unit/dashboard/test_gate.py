"""Who may come in, by what a request carries."""

from __future__ import annotations

import base64

import pytest

from fencelock.dashboard.gate import (
    ADDRESSES,
    ALL_FAILURES,
    FAILURES,
    LIFE,
    SESSIONS,
    Gate,
    Secrets,
    is_loopback,
)
from fencelock.errors import ConfigurationError

TOKEN = "a long token"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gate(clock: Clock) -> Gate:
    return Gate(Secrets(TOKEN, "ops", "a password"), clock, strict=False)


@pytest.fixture
def open_gate(clock: Clock) -> Gate:
    return Gate(Secrets(), clock, names=["locks.example"])


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost", True),
        ("LOCALHOST:8642", True),
        ("127.0.0.1:8642", True),
        ("[::1]:8642", True),
        ("[::1]", True),
        ("locks.example:443", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:8642", False),
        ("[::2]:8642", False),
        ("", False),
    ],
)
def test_names_by_which_an_open_dashboard_is_called(open_gate: Gate, host: str, known: bool) -> None:
    assert open_gate.knows_host(host) is known


def test_with_a_secret_a_name_is_only_checked_if_that_is_wanted(clock: Clock) -> None:
    assert Gate(Secrets(TOKEN), clock, strict=False).knows_host("anything.example")
    assert not Gate(Secrets(TOKEN), clock, names=["a.example"]).knows_host("b.example")


@pytest.mark.parametrize(
    ("headers", "ours"),
    [
        ({}, True),
        ({"origin": "http://localhost:8642"}, True),
        ({"origin": "https://LOCALHOST:8642", "sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"origin": "http://localhost:9999"}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": ""}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site", "origin": "http://localhost:8642"}, False),
    ],
)
def test_origins(open_gate: Gate, headers: dict[str, str], ours: bool) -> None:
    assert open_gate.is_ours({"host": "localhost:8642", **headers}) is ours


def test_an_open_gate_gives_everybody_a_session_of_their_own(open_gate: Gate, clock: Clock) -> None:
    one, two = open_gate.visitor("", ""), open_gate.visitor("forged.cookie", "")
    assert one is not None and two is not None and one.is_new and two.is_new
    assert one.cookie != two.cookie and open_gate.csrf(one.cookie) != open_gate.csrf(two.cookie)
    again = open_gate.visitor(one.cookie, "")
    assert again is not None and not again.is_new and again.cookie == one.cookie
    assert open_gate.is_csrf(one.cookie, open_gate.csrf(one.cookie))
    assert not open_gate.is_csrf(one.cookie, open_gate.csrf(two.cookie))
    assert not open_gate.is_csrf("", open_gate.csrf(""))
    clock.now += LIFE + 1
    late = open_gate.visitor(one.cookie, "")
    assert late is not None and late.is_new, "it has expired"


def test_a_restart_makes_everything_stale(open_gate: Gate, clock: Clock) -> None:
    before = open_gate.visitor("", "")
    assert before is not None
    other = Gate(Secrets(), clock)
    after = other.visitor(before.cookie, "")
    assert after is not None and after.is_new
    assert not other.is_csrf(before.cookie, open_gate.csrf(before.cookie))


def test_logging_in_and_out(gate: Gate, clock: Clock) -> None:
    assert gate.visitor("", "") is None and gate.visitor("anything", "") is None
    assert gate.try_secrets("a", token=TOKEN) == "token"
    assert gate.try_secrets("a", user="ops", password="a password") == "ops"
    session = gate.begin("ops")
    assert gate.visitor(session.cookie, "") == ("ops", session.cookie, False)
    assert gate.lasts(session)
    clock.now += LIFE + 1
    assert gate.visitor(session.cookie, "") is None and not gate.lasts(session)
    session = gate.begin("ops")
    gate.end(session.cookie)
    assert gate.visitor(session.cookie, "") is None and not gate.lasts(session)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"token": ""},
        {"token": TOKEN + " "},
        {"token": "a password"},
        {"user": "ops"},
        {"user": "ops", "password": ""},
        {"user": "", "password": "a password"},
        {"user": "ops", "password": TOKEN},
        {"token": "\udcff"},
    ],
)
def test_what_is_not_right(gate: Gate, given: dict[str, str]) -> None:
    assert gate.try_secrets("a", **given) is None


def test_what_is_not_demanded_opens_nothing(clock: Clock) -> None:
    assert Gate(Secrets(TOKEN), clock).try_secrets("a", user="", password="") is None
    assert Gate(Secrets("", "ops", "a password"), clock).try_secrets("a", token="") is None


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("authorization", "user"),
    [
        (f"Bearer {TOKEN}", "token"),
        (f"bearer  {TOKEN}", "token"),
        (basic("ops:a password"), "ops"),
        ("Bearer", None),
        ("Basic !!!", None),
        (basic("ops"), None),
        (f"Digest {TOKEN}", None),
    ],
)
def test_programs(gate: Gate, authorization: str, user: str | None) -> None:
    found = gate.try_authorization("a", authorization)
    assert (None if found is None else found.user) == user


def test_guesses_of_one_address_are_limited(gate: Gate, clock: Clock) -> None:
    for _ in range(FAILURES):
        assert gate.wait("10.0.0.1") == 0
        gate.try_secrets("10.0.0.1", token="wrong")
    assert gate.wait("10.0.0.1") > 0 and gate.wait("10.0.0.2") == 0
    clock.now += gate.wait("10.0.0.1")
    assert gate.wait("10.0.0.1") == 0, "it comes back with time"
    for number in range(FAILURES):
        gate.try_secrets(f"2001:db8::{number}", token="wrong")
    assert gate.wait("2001:db8::99") > 0, "one customer has all of these addresses"


def test_guesses_of_all_addresses_are_limited_and_little_is_kept(gate: Gate, clock: Clock) -> None:
    for number in range(ALL_FAILURES):
        gate.try_secrets(f"10.1.{number}.1", token="wrong")
    assert gate.wait("10.9.9.9") > 0
    for number in range(ADDRESSES + 50):
        gate.try_secrets(f"10.{number // 250}.{number % 250}.1", token="wrong")
    assert len(gate._addresses) == ADDRESSES
    for _ in range(SESSIONS + 50):
        gate.begin("ops")
    assert len(gate._sessions) == SESSIONS


def test_the_login_form_is_good_once_it_is_ours(gate: Gate) -> None:
    form = gate.form("")
    assert form.is_new and gate.is_form(form.cookie, gate.csrf(form.cookie))
    assert gate.form(form.cookie).cookie == form.cookie
    assert not gate.is_form(form.cookie, "")
    assert not gate.is_form("", gate.csrf(""))
    assert gate.visitor(form.cookie, "") is None, "the form's cookie is no session"


@pytest.mark.parametrize("secrets", [Secrets("xyz"), Secrets("", "ops"), Secrets("", "", "xyz-9999")])
def test_secrets_that_make_no_sense(secrets: Secrets, clock: Clock) -> None:
    with pytest.raises(ConfigurationError) as failure:
        Gate(secrets, clock)
    assert "xyz" not in str(failure.value)


def test_secrets_are_not_shown() -> None:
    assert TOKEN not in repr(Secrets(TOKEN, "ops", "a password"))


def test_loopback() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost")] == [
        True
    ] * 5
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "", "10.0.0.1", "example.org")] == [False] * 5
