"""What the server and libpq say, in fencelock's words: one line, the cause, and whether it may pass."""

from __future__ import annotations

import pytest
from psycopg import pq

from fencelock.backends.postgres.failures import (
    AGAIN,
    GONE,
    LASTING,
    MISSING,
    PASSING,
    UNPREPARED,
    Refused,
    closed,
    no_answer,
    refused,
    said,
    unreachable,
)
from fencelock.errors import BackendUnavailable, FencelockError

LABEL = "h:5432"
AT = 'connection to server at "h" (10.0.0.1), port 5432 failed: '


def told(error: FencelockError) -> tuple[str, bool]:
    assert isinstance(error, BackendUnavailable)
    text = str(error)
    assert len(text.splitlines()) == 1
    assert text.startswith(f"postgresql: {LABEL}: ")
    assert len(text) < 300
    return text, error.transient


class Answer:
    """An error as libpq has it."""

    def __init__(self, state: str, words: str) -> None:
        self._fields = {pq.DiagnosticField.SQLSTATE: state, pq.DiagnosticField.MESSAGE_PRIMARY: words}
        self.error_message = f"ERROR:  {words}\n".encode()

    def error_field(self, field: pq.DiagnosticField) -> bytes | None:
        text = self._fields.get(field)
        return text.encode() if text else None


def answer(state: str, words: str = "some words of the server's") -> Refused:
    return Refused(Answer(state, words))


@pytest.mark.parametrize(("state", "words"), PASSING.items())
def test_what_may_pass(state: str, words: str) -> None:
    text, transient = told(said(LABEL, answer(state)))
    assert words in text
    assert transient


@pytest.mark.parametrize(("state", "words"), LASTING.items())
def test_what_lasts(state: str, words: str) -> None:
    text, transient = told(said(LABEL, answer(state)))
    assert words in text
    assert "some words of the server's" in text
    assert transient == (state == "25006"), "a replica may be promoted; the rest is for people to change"


@pytest.mark.parametrize(
    ("state", "transient"),
    [("08006", True), ("53400", True), ("57000", True), ("58030", True), ("XX000", False), ("22P02", False)],
)
def test_anything_else_is_shown_with_its_state(state: str, transient: bool) -> None:
    assert told(said(LABEL, answer(state, "strange"))) == (
        f"postgresql: {LABEL}: strange ({state})",
        transient,
    )


@pytest.mark.parametrize(
    ("words", "says", "transient"),
    [
        (f'{AT}FATAL:  password authentication failed for user "u"', "password is wrong", False),
        (f"{AT}fe_sendauth: no password supplied", "asks for a password", False),
        (f'{AT}FATAL:  database "d" does not exist', "no such database", False),
        (f'{AT}FATAL:  role "u" does not exist', 'let this user in: role "u" does not exist', False),
        (f'{AT}FATAL:  role "database" does not exist', 'role "database" does not exist', False),
        (f'{AT}FATAL:  role "u" is not permitted to log in', "not permitted to log in", False),
        (f'{AT}FATAL:  no pg_hba.conf entry for host "x", no encryption', "no pg_hba.conf entry", False),
        (f'{AT}FATAL:  permission denied for database "d"', "permission denied", False),
        (f'{AT}FATAL:  peer authentication failed for user "u"', "peer authentication", False),
        (f"{AT}FATAL:  no such user: u", "no such user", False),
        (f"{AT}FATAL:  no such database: d", "no such database", False),
        (f"{AT}FATAL:  sorry, too many clients already", "no connection left", True),
        (f'{AT}FATAL:  too many connections for role "u"', "no connection left", True),
        (f"{AT}FATAL:  remaining connection slots are reserved for superusers", "no connection left", True),
        (f"{AT}FATAL:  no more connections allowed (max_client_conn)", "no connection left", True),
        (f"{AT}received invalid response to SSL negotiation: H", "no PostgreSQL", False),
        (f"{AT}expected authentication request from server, but received H", "no PostgreSQL", False),
        (f"{AT}server does not support SSL, but SSL was required", "TLS failed", False),
        (f"{AT}SSL SYSCALL error: EOF detected", ": SSL SYSCALL error: EOF detected", True),
        (f"{AT}SSL connection has been closed unexpectedly", ": SSL connection has been closed", True),
        (f"{AT}SSL error: certificate verify failed", "TLS failed: SSL error: certificate", False),
        (f"{AT}Connection refused\n\tIs the server running on that host?", ": Connection refused", True),
        (f"{AT}Connection timed out\n{AT}Connection refused\n", ": Connection refused", True),
        ('connection to server on socket "/run/s" failed: No such file or directory', "No such file", True),
        ('connection to server at "ssl.h", port 1 failed: Connection refused', ": Connection refused", True),
        ('could not translate host name "x" to address: Name or service not known', '"x"', True),
        (f"{AT}FATAL:  the database system is starting up", "starting up", True),
        ("", "closed the connection", True),
    ],
)
def test_what_libpq_says_when_it_does_not_connect(words: str, says: str, transient: bool) -> None:
    text, passes = told(refused(LABEL, words))
    assert says in text
    assert passes == transient


def test_a_connection_that_broke() -> None:
    words = (
        "server closed the connection unexpectedly\n\tThis probably means the server terminated abnormally\n"
    )
    assert told(unreachable(LABEL, words)) == (
        f"postgresql: {LABEL}: server closed the connection unexpectedly",
        True,
    )
    assert told(unreachable(LABEL, "x" * 5000))[1]


def test_no_answer_and_closed() -> None:
    assert told(no_answer(LABEL)) == (f"postgresql: {LABEL}: no answer in time", True)
    assert str(closed()) == "postgresql: this client is closed"
    assert not closed().transient


def test_an_answer_without_fields_is_read_all_the_same() -> None:
    error = Refused(Answer("", ""))
    assert error.state == ""
    assert error.words == "ERROR:"
    assert not told(said(LABEL, error))[1]


def test_no_state_is_treated_in_two_ways() -> None:
    groups = [AGAIN, MISSING, UNPREPARED, GONE]
    assert sum(len(group) for group in groups) == len(set().union(*groups))
    assert not LASTING.keys() & PASSING.keys()
    assert PASSING.keys() >= AGAIN
    assert PASSING.keys() >= GONE
