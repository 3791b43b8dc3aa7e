"""What drivers and servers say, in fencelock's words: one line, the cause, and whether it may pass."""

from __future__ import annotations

import errno
import ssl

import pytest
from redis.exceptions import AuthenticationError, InvalidResponse, RedisError, ResponseError
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import TimeoutError as DriverTimeout

from fencelock.backends.redis.failures import closed, no_answer, refused, said, unreachable
from fencelock.errors import BackendUnavailable, FencelockError

LABEL = "h:6379"


def told(error: FencelockError) -> tuple[str, bool]:
    assert isinstance(error, BackendUnavailable)
    text = str(error)
    assert len(text.splitlines()) == 1
    assert text.startswith(f"redis: {LABEL}: ")
    return text, error.transient


@pytest.mark.parametrize(
    ("text", "words", "transient"),
    [
        ("NOAUTH Authentication required.", "asks for a password", False),
        ("ERR Protocol error: unauthenticated multibulk length", "asks for a password", False),
        ("WRONGPASS invalid username-password pair or user is disabled.", "password is wrong", False),
        ("READONLY You can't write against a read only replica.", "replica", True),
        ("OOM command not allowed when used memory > 'maxmemory'.", "out of memory", True),
        ("LOADING Redis is loading the dataset in memory", "loading", True),
        ("MASTERDOWN Link with MASTER is down", "primary", True),
        ("MISCONF Redis is configured to save RDB snapshots", "save to disk", True),
        ("NOREPLICAS Not enough good replicas to write.", "replicas", True),
        ("BUSY Redis is busy running a script.", "busy", True),
        ("NOPERM this user has no permissions to run the 'evalsha' command", "it lacks +evalsha", False),
        ("NOPERM User u has no permissions to run the 'config|get' command", "it lacks +config|get", False),
        ("NOPERM No permissions to access a key", "it lacks ~fencelock:*", False),
        ("NOPERM No permissions to access a channel", "it lacks &fencelock:*", False),
        ("ERR ACL failure in script: No permissions to access a key script: 1f2e", "~fencelock:*", False),
        (
            "ERR The user executing the script can't run this command script: 1f2e, on @user_script:35.",
            "may not",
            False,
        ),
        ("ERR ACL failure in script: No permissions to access a key", "may not", False),
        ("ERR unknown command 'EVALSHA', with args beginning with:", "scripts", False),
        ("ERR something\nelse", "something", False),
        ("ERR max number of clients reached", "max number of clients", True),
    ],
)
def test_what_a_server_says(text: str, words: str, transient: bool) -> None:
    assert (words in told(said(LABEL, text))[0], told(said(LABEL, text))[1]) == (True, transient)


def wrong_version() -> ssl.SSLError:
    error = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    error.reason = "WRONG_VERSION_NUMBER"
    return error


def caused(error: RedisError, cause: BaseException) -> RedisError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "words", "transient"),
    [
        (AuthenticationError("Authentication required."), "asks for a password", False),
        (AuthenticationError("invalid username-password pair"), "password is wrong", False),
        (NoConnection("Invalid Database"), "database", False),
        (ResponseError("DB index is out of range"), "database", False),
        (InvalidResponse('Protocol error, got "H" as reply type byte'), "Redis protocol", False),
        (NoConnection("Connection closed by server."), "TLS", True),
        (DriverTimeout("Timeout connecting to server"), "no answer", True),
        (
            caused(NoConnection("x"), ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")),
            "refused",
            True,
        ),
        (
            caused(
                NoConnection("x"),
                ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('h', 1)"),
            ),
            "connection refused",
            True,
        ),
        (
            caused(NoConnection("x"), ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")),
            "TLS",
            True,
        ),
        (caused(NoConnection("x"), wrong_version()), "does not speak TLS", False),
    ],
)
def test_what_the_driver_says(error: RedisError, words: str, transient: bool) -> None:
    text, passing = told(refused(LABEL, error, tls=False))
    assert words in text
    assert passing is transient


def test_what_a_socket_says() -> None:
    assert "no answer" in told(unreachable(LABEL, TimeoutError()))[0]
    assert "no route to host" in told(unreachable(LABEL, OSError(errno.EHOSTUNREACH, "No route to host")))[0]
    assert (
        "it closed the connection"
        in told(unreachable(LABEL, ConnectionResetError("it closed the connection")))[0]
    )
    assert "no answer" in told(no_answer(LABEL))[0]
    assert "closed" in str(closed())
    assert not closed().transient


def test_a_certificate_that_is_not_trusted_is_no_passing_trouble() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    error.reason = "CERTIFICATE_VERIFY_FAILED"
    text, transient = told(unreachable(LABEL, error))
    assert "self-signed certificate" in text
    assert not transient
