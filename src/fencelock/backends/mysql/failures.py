"""What drivers and servers say when something is wrong, in fencelock's words. Never a password.

`BackendUnavailable` is what may pass: no connection, a server that shuts down, fails over or has too many
clients. It is not transient where asking again in a second cannot help: a wrong password, a missing
database, a right that the user does not have. `ConfigurationError` is what the user wrote.
"""

from __future__ import annotations

import os
import socket
import ssl
from enum import Enum

from fencelock.backends import RIGHTS
from fencelock.core.ports import PoolExhausted
from fencelock.errors import BackendUnavailable, ConfigurationError, FencelockError

__all__ = [
    "BACKEND",
    "Kind",
    "Unusable",
    "closed",
    "code_of",
    "kind_of",
    "may_not_create",
    "newer_schema",
    "no_answer",
    "no_connection",
    "said",
    "unreachable",
]

BACKEND = "mysql"
PRINT = "fencelock schema --print URL"


class Kind(Enum):
    """What to do about an error."""

    BROKEN = "the connection is of no use any more: ask again on another"
    CONFLICT = "undone by the server for the sake of somebody else: ask again"
    MISSING = "there is no such table or procedure: make it"
    SAID = "the server means it"


class Unusable(Exception):
    """What a connection raises: `args` are the driver's code and words, the cause is its exception."""


BROKEN = {0, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2003, 2006, 2013, 2014, 2055, 4031}
CONFLICT = {1020, 1180, 1205, 1213, 1412, 1613, 1614}
MISSING = {1146, 1305}
FORBIDDEN = {1044, 1142, 1143, 1227, 1370, 1410, 1419}

NO_TLS = "it does not speak TLS: leave the ssl options out"
LASTING = {
    1045: "the user name or the password is wrong",
    1049: "it has no such database",
    1130: "it does not take connections from this host",
    1251: "it asks for a way of authentication that the driver does not know",
    1290: "it is read-only (read_only, super_read_only), perhaps a replica: give the address of the primary",
    1665: "binlog_format=STATEMENT does not go with READ COMMITTED: set it to ROW or MIXED",
    1698: "this user may not log in with a password",
    1792: "it is read-only: give the address of the primary",
    1820: "the password of this user has expired",
    1862: "the password of this user has expired",
    2026: NO_TLS,
    1836: "it is read-only (innodb_read_only, or recovering)",
    3159: "it asks for TLS: write ?ssl=yes, or ?ssl_ca=FILE",
    4151: "the account of this user is locked",
    3118: "the account of this user is locked",
}
PASSING = {
    1021: "its disk is full",
    1040: "it has too many connections (max_connections)",
    1041: "it is out of memory",
    1047: "its Galera node is not ready: no primary component",
    1053: "it is shutting down",
    1114: "its table is full: no space is left",
    1129: "it blocks this host after too many broken connections: say FLUSH HOSTS there",
    1203: "this user has too many connections (max_user_connections)",
    1205: "it waits for a lock longer than innodb_lock_wait_timeout",
    1213: "it undid the step again and again to end deadlocks",
    1226: "this user has used up its allowance (max_…_per_hour, max_user_connections)",
    1317: "the statement was killed",
    1637: "it has too many transactions at once",
    1836: "it is read-only for now",
    1969: "the statement took longer than max_statement_time allows: give this user more",
    3024: "the statement took longer than max_execution_time allows: give this user more",
    3168: "it is starting, or not ready",
}
RETRIED_ON_ROLE_CHANGE = {1290, 1792, 1836}


def code_of(error: BaseException) -> int:
    """Return the number of an error; 0 if it has none."""
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0


def kind_of(error: BaseException) -> Kind:
    """Say what to do about a driver's error."""
    code = code_of(error)
    if code in BROKEN or isinstance(error, OSError):
        return Kind.BROKEN
    if code in CONFLICT:
        return Kind.CONFLICT
    return Kind.MISSING if code in MISSING else Kind.SAID


def unreachable(label: str, error: BaseException, *, tls: bool = False) -> FencelockError:
    """No connection was made, or it broke."""
    root = _root(error)
    if isinstance(root, TimeoutError):
        return _unavailable(label, "no answer in time")
    if isinstance(root, ssl.SSLError):
        return _unavailable(label, _tls(root), transient=isinstance(root, ssl.SSLEOFError))
    if isinstance(root, socket.gaierror):
        return _unavailable(label, str(root.strerror).lower())
    if isinstance(root, OSError) and root.errno:
        return _unavailable(label, os.strerror(root.errno).lower())
    if isinstance(error, RuntimeError) and "cryptography" in str(error):
        raise ConfigurationError(
            f"{label}: this user's way of authentication needs TLS (?ssl=yes) or the package "
            "'cryptography': pip install cryptography"
        ) from error
    code = code_of(error)
    if code in {2006, 2013, 1927, 0, 2003}:
        return _unavailable(label, "it closed the connection" + (" (does it speak TLS?)" if tls else ""))
    return said(label, error)


def _root(error: BaseException) -> BaseException:
    """Return the system's error behind a driver's, if there is one."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, OSError):
        found = getattr(found, "original_exception", None) or found.__cause__ or found.__context__
    return found or error


def no_answer(label: str) -> BackendUnavailable:
    """The time was over before the reply was there. What became of the request is not known."""
    return _unavailable(label, "no answer in time")


def no_connection(label: str, *, is_well: bool) -> BackendUnavailable:
    """No connection was free in time. `is_well`: the server has answered meanwhile."""
    return PoolExhausted(backend=BACKEND, label=label) if is_well else no_answer(label)


def said(label: str, error: BaseException) -> FencelockError:
    """The server answered with an error."""
    code = code_of(error)
    if code in LASTING:
        return _unavailable(label, LASTING[code], transient=code in RETRIED_ON_ROLE_CHANGE)
    if code in PASSING:
        return _unavailable(label, PASSING[code])
    if code in FORBIDDEN:
        return _unavailable(
            label, f"this user may not do that: {_words(error)} (see {RIGHTS})", transient=False
        )
    if code in MISSING:
        return _unavailable(label, f"{_words(error)}: run what '{PRINT}' shows", transient=False)
    if code == 1235 and "GET_LOCK" in str(error):
        return _unavailable(label, "it is a Galera node, which has no GET_LOCK", transient=False)
    return _unavailable(label, f"{_words(error)} ({code})" if code else _words(error), transient=False)


def may_not_create(label: str, error: BaseException) -> BackendUnavailable:
    """The tables are missing and this user cannot make them."""
    detail = (
        f"this user may not make fencelock's tables and procedures: run what '{PRINT}' shows as one who may, "
        f"or grant CREATE and CREATE ROUTINE (see {RIGHTS})"
    )
    return _unavailable(label, f"{detail}: {_words(error)}", transient=False)


def newer_schema(label: str, found: int, known: int) -> ConfigurationError:
    """Somebody with a newer fencelock made the tables."""
    return ConfigurationError(
        f"{BACKEND}: {label}: fencelock's tables there are of version {found}, this fencelock knows {known}: "
        "install a newer one"
    )


def closed() -> BackendUnavailable:
    """The client was closed meanwhile."""
    return BackendUnavailable(backend=BACKEND, detail="this client is closed", transient=False)


def _words(error: BaseException) -> str:
    text = str(error.args[1]) if len(error.args) > 1 else str(error) or type(error).__name__
    return " ".join(text.split())[:200]


def _unavailable(label: str, detail: str, *, transient: bool = True) -> BackendUnavailable:
    return BackendUnavailable(backend=BACKEND, detail=f"{label}: {detail}", transient=transient)


def _tls(error: ssl.SSLError) -> str:
    reason = (getattr(error, "reason", None) or "").replace("_", " ").lower() or str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError):
        return "it closed the connection during the TLS handshake"  # it may be going down
    return NO_TLS if "wrong version number" in reason else f"TLS failed: {reason}"
