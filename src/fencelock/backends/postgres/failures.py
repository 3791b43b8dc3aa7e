"""What the server and libpq say when something is wrong, in fencelock's words. Never a password.

`BackendUnavailable` is what may pass; it is not transient where asking again in a second cannot help.
`ConfigurationError` is what the user wrote.
"""

from __future__ import annotations

import re
from typing import Any

from psycopg import pq

from fencelock.backends import RIGHTS
from fencelock.core.ports import PoolExhausted
from fencelock.errors import BackendUnavailable, FencelockError

__all__ = [
    "AGAIN",
    "BACKEND",
    "FORBIDDEN",
    "GONE",
    "MISSING",
    "UNPREPARED",
    "Refused",
    "closed",
    "no_answer",
    "no_connection",
    "refused",
    "said",
    "unreachable",
]

BACKEND = "postgresql"

AGAIN = {"40001", "40P01", "55P03"}  # serialization failure, deadlock, lock timeout: the step was not done
MISSING = {"42883", "42P01", "3F000", "HF001"}  # no such function, table, schema; a bucket is missing
UNPREPARED = {"26000", "42P05", "0A000"}  # somebody else's session: a pooler stands in between
GONE = {"57P01", "57P02", "57P03", "57P05", "25P03"}  # shut down, starting up, ended for idling

FORBIDDEN = "42501"
LASTING = {
    "28000": "it does not let this user in",
    "28P01": "the user name or the password is wrong",
    "3D000": "it has no such database",
    FORBIDDEN: "this role may not do that",
    "25006": "it is a read-only replica, or read-only for this role: give the address of its primary",
    "42704": "it does not know that",
    "22021": "its encoding cannot hold a name",
    "53100": "its disk is full",
}
PASSING = {
    "40001": "transactions kept failing to serialize",
    "40P01": "it kept finding deadlocks",
    "55P03": "somebody keeps fencelock's tables locked",
    "57014": "it ended the statement: is statement_timeout of this role too short?",
    "53300": "it has no connection left for this role",
    "53200": "it is out of memory",
    "57P01": "it is shutting down",
    "57P02": "it is crashing",
    "57P03": "it is starting up or shutting down",
    "57P05": "it ended the idle session",
    "25P03": "it ended the idle transaction",
}


NOT_IN = f"{LASTING['28000']}: {{}}"
KNOWN = {
    "password authentication failed": LASTING["28P01"],
    "no password supplied": "it asks for a password",
    'database ".*" does not exist': LASTING["3D000"],
    "expected authentication request|invalid response to ssl": "what answers there is no PostgreSQL",
    'role ".*" does not exist|not permitted to log in|pg_hba.conf|authentication': NOT_IN,
    "permission denied for database|not currently accepting connections": NOT_IN,
    "no such user|no such database": "{}",  # pgbouncer
    "too many (connections|clients)|connection slots|no more connections": PASSING["53300"],
    "certificate|ssl": "TLS failed: {}",
}
"""What libpq and the server say when they do not connect, and what is told of it; {} are their own words."""
ENDED = re.compile("ssl syscall error|ssl connection has been closed")
"""What libpq says when the server ends a TLS handshake: it may be going down."""
WHERE = re.compile(r'^connection to server (at|on socket) "[^"]*"( \([^)]*\))?(, port \d+)? failed: ')


class Refused(Exception):
    """The server answered with an error: its SQLSTATE and its words."""

    def __init__(self, result: Any) -> None:
        field = pq.DiagnosticField
        state = result.error_field(field.SQLSTATE)
        words = result.error_field(field.MESSAGE_PRIMARY) or result.error_message
        self.state = state.decode() if state else ""
        self.words = words.decode("utf-8", "replace").strip()
        super().__init__(f"{self.state} {self.words}")


def unreachable(label: str, words: str) -> BackendUnavailable:
    """No connection, or it broke."""
    return _unavailable(label, _short(words), True)


def refused(label: str, words: str) -> FencelockError:
    """libpq could not connect. It has no SQLSTATE for that: the server's words decide."""
    short = _short(words)
    low = short.lower()
    if ENDED.search(low):
        return unreachable(label, words)
    for pattern, told in KNOWN.items():
        if re.search(pattern, low):
            if "{}" in told:
                return _unavailable(label, told.format(short), False)
            return _unavailable(label, told, told == PASSING["53300"])
    return unreachable(label, words)


def said(label: str, error: Refused) -> FencelockError:
    """The server answered with an error."""
    if error.state in PASSING:
        return _unavailable(label, PASSING[error.state], True)
    if error.state in LASTING:
        hint = f" (see {RIGHTS})" if error.state == FORBIDDEN else ""
        detail = f"{LASTING[error.state]}: {_short(error.words)}{hint}"
        return _unavailable(label, detail, error.state == "25006")
    transient = error.state[:2] in {"08", "53", "57", "58"}
    return _unavailable(label, f"{_short(error.words)} ({error.state})", transient)


def no_answer(label: str) -> BackendUnavailable:
    """The time was over before the reply was there. What became of the request is not known."""
    return _unavailable(label, "no answer in time", True)


def no_connection(label: str, *, is_well: bool) -> BackendUnavailable:
    """No connection was free in time. `is_well`: the server has answered meanwhile."""
    return PoolExhausted(backend=BACKEND, label=label) if is_well else no_answer(label)


def closed() -> BackendUnavailable:
    """The client was closed meanwhile."""
    return BackendUnavailable(backend=BACKEND, detail="this client is closed", transient=False)


def _short(words: str) -> str:
    """Return the last line of what libpq says: the earlier ones tell of other addresses it tried."""
    lines = [line.strip() for line in words.splitlines() if line.strip() and not line.startswith("\t")]
    text = WHERE.sub("", lines[-1]) if lines else "it closed the connection"
    _, _, fatal = text.partition("FATAL:")
    return (fatal.strip() or text)[:200]


def _unavailable(label: str, detail: str, transient: bool) -> BackendUnavailable:
    return BackendUnavailable(backend=BACKEND, detail=f"{label}: {detail}", transient=transient)
