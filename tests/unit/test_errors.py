"""The errors: their tree, their fields, their words, and that they travel."""

from __future__ import annotations

import copy
import pickle

import pytest

import fencelock
from fencelock import (
    AcquireCancelled,
    AcquireTimeout,
    BackendError,
    BackendUnavailable,
    ConfigurationError,
    Conflict,
    Entry,
    FencelockError,
    LeaseLost,
    NotHeld,
    QuorumNotReached,
    StaleToken,
    Unsupported,
)

HOLDER = Entry(
    owner="o", token=3, mode="exclusive", client="c", host="host-a", pid=812, since=0, expires_in=1, age=12
)

ERRORS = [
    AcquireTimeout(name="invoices", waited=5.0, holder=HOLDER),
    AcquireTimeout(name="invoices", waited=0.25),
    LeaseLost(name="invoices", token=7, reason="it was force-released"),
    NotHeld(name="invoices"),
    StaleToken(resource="ledger", token=7, newest=9),
    Conflict(resource="row 1", current={"version": 2}),
    BackendError(backend="sqlite", detail="corrupt"),
    BackendUnavailable(backend="sqlite", detail="gone", transient=False),
    QuorumNotReached(backend="redlock", votes={"a": "granted", "b": "down"}),
    Unsupported(capability="shared", backend="redlock"),
    ConfigurationError("ttl=-1 is out of range"),
    AcquireTimeout(name="invoices", waited=0.25, dropped=True),
    AcquireCancelled(name="invoices", waited=1.5, reason="its client was closed"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_everything_is_caught_by_the_root(error: Exception) -> None:
    assert isinstance(error, FencelockError)


@pytest.mark.parametrize(
    ("child", "parents"),
    [
        (AcquireTimeout, (FencelockError, TimeoutError)),
        (AcquireCancelled, (FencelockError,)),
        (BackendUnavailable, (BackendError,)),
        (QuorumNotReached, (BackendError,)),
        (ConfigurationError, (FencelockError, ValueError)),
    ],
)
def test_the_tree_is_that_of_the_contract(child: type, parents: tuple[type, ...]) -> None:
    assert all(issubclass(child, parent) for parent in parents)


def test_held_by_someone_else_and_backend_down_are_never_confused() -> None:
    assert not issubclass(AcquireTimeout, BackendError)
    assert not issubclass(BackendError, TimeoutError)
    assert not issubclass(BackendError, AcquireTimeout)


def test_every_error_has_an_example_here() -> None:
    known = {n for n in fencelock.__all__ if isinstance(getattr(fencelock, n), type)}
    errors = {n for n in known if issubclass(getattr(fencelock, n), FencelockError)}
    assert {type(error).__name__ for error in ERRORS} == errors - {"FencelockError"}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("carry", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_errors_travel_between_processes_with_their_fields(error: Exception, carry: object) -> None:
    error.add_note("fencelock: a note")
    there = carry(error)  # type: ignore[operator]
    assert type(there) is type(error)
    assert str(there) == str(error)
    assert vars(there) == vars(error)
    assert there.args == error.args


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_message_is_one_line_in_lower_case_without_a_full_stop(error: Exception) -> None:
    text = str(error)
    assert text
    assert "\n" not in text
    assert not text.endswith(".")
    assert text[0] == text[0].lower()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ERRORS[0], "lock 'invoices' not acquired within 5s (held by host-a:812 for 12s)"),
        (ERRORS[1], "lock 'invoices' not acquired within 0.25s"),
        (ERRORS[2], "lease on 'invoices' (token 7) was lost: it was force-released"),
        (ERRORS[3], "lock 'invoices' is not held: the lease was released"),
        (ERRORS[4], "token 7 for 'ledger' is stale: 9 was seen already"),
        (ERRORS[6], "sqlite: corrupt"),
        (ERRORS[8], "redlock: no quorum (a: granted, b: down)"),
        (ERRORS[9], "the redlock backend does not support shared"),
        (
            ERRORS[11],
            "lock 'invoices' not acquired within 0.25s; this process acquired it and dropped the lease: "
            "keep what acquire() returns, or use a `with` block",
        ),
        (ERRORS[12], "lock 'invoices' not acquired: its client was closed after 1.5s of waiting"),
    ],
)
def test_messages_say_what_a_reader_needs(error: Exception, words: str) -> None:
    assert str(error) == words


def test_fields_are_for_programs() -> None:
    timeout, _, lost, not_held, stale, conflict, _, unavailable, quorum, unsupported, _, _, cancelled = ERRORS
    assert (timeout.name, timeout.waited, timeout.holder) == ("invoices", 5.0, HOLDER)
    assert (lost.name, lost.token, lost.reason) == ("invoices", 7, "it was force-released")
    assert not_held.name == "invoices"
    assert (stale.resource, stale.token, stale.newest) == ("ledger", 7, 9)
    assert conflict.current == {"version": 2}
    assert unavailable.transient is False
    assert quorum.votes == {"a": "granted", "b": "down"}
    assert (unsupported.capability, unsupported.backend) == ("shared", "redlock")
    assert (cancelled.name, cancelled.waited) == ("invoices", 1.5)
