"""What drivers and servers say when something is wrong, in fencelock's words. Never a password.

`BackendUnavailable` is what may pass: no connection, a server that loads, fails over or is out of
memory. It is not transient where asking again in a second cannot help: a wrong password,
a replica, a server that is no Redis. `ConfigurationError` is what the user wrote.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from typing import Any

from redis.exceptions import AuthenticationError, RedisError
from redis.exceptions import TimeoutError as DriverTimeout

from fencelock.backends import RIGHTS
from fencelock.errors import BackendUnavailable, FencelockError

__all__ = [
    "BACKEND",
    "OLDEST",
    "closed",
    "no_answer",
    "no_pushes",
    "of_client",
    "refused",
    "said",
    "too_old",
    "unreachable",
]

BACKEND = "redis"
OLDEST = (6, 2)
"""The first version whose SET can return the old value (GET), which the script for an acquire needs."""

TLS_HINT = " (does it expect TLS? then write rediss://)"
PLAIN_HINT = " (does it speak TLS? if not, write redis://)"
LASTING = {
    "NOAUTH": "it asks for a password: write redis://:PASSWORD@…, or redis://USER:PASSWORD@…",
    "WRONGPASS": "the user name or the password is wrong, or the user is disabled",
    "READONLY": "it is a read-only replica: give the address of its primary, or use redis+sentinel://",
    "DENIED": "it is in protected mode: set a password there, or bind it to loopback",
}
PASSING = {
    "OOM": "it is out of memory (maxmemory) and takes no more writes",
    "LOADING": "it is loading its data",
    "MASTERDOWN": "it is a replica without its primary",
    "MISCONF": "it cannot save to disk and takes no more writes",
    "NOREPLICAS": "it has fewer replicas than min-replicas-to-write asks for",
    "BUSY": "it is busy with somebody's long script",
    "CLUSTERDOWN": "its cluster is down",
    "TRYAGAIN": "its cluster is moving the slot",
    "UNBLOCKED": "it was demoted to a replica",
}


def unreachable(label: str, error: BaseException, *, tls: bool | None = None) -> BackendUnavailable:
    """No connection, or it broke."""
    if isinstance(error, TimeoutError | DriverTimeout):
        detail = f"no answer in time{PLAIN_HINT if tls else ''}"
    elif isinstance(error, ssl.SSLError):
        return _unavailable(label, _tls(error), isinstance(error, ssl.SSLEOFError))
    elif isinstance(error, ConnectionResetError) and tls is False:
        detail = f"it closed the connection{TLS_HINT}"
    elif isinstance(error, socket.gaierror):
        detail = str(error.strerror).lower()
    elif isinstance(error, OSError) and error.errno:
        detail = os.strerror(error.errno).lower()  # asyncio has words of its own for it
    else:
        detail = str(error).partition("\n")[0] or type(error).__name__
    return BackendUnavailable(backend=BACKEND, detail=f"{label}: {detail}")


def no_answer(label: str) -> BackendUnavailable:
    """The time was over before the reply was there. What became of the request is not known."""
    return BackendUnavailable(backend=BACKEND, detail=f"{label}: no answer in time")


def refused(label: str, error: RedisError, *, tls: bool) -> FencelockError:
    """The driver could not connect, or the server would not have us."""
    cause = error.__cause__ or error.__context__
    if isinstance(cause, ssl.SSLError):
        return _unavailable(label, _tls(cause), isinstance(cause, ssl.SSLEOFError))
    if isinstance(cause, OSError) or isinstance(error, DriverTimeout):
        return unreachable(label, cause or error, tls=tls)
    text = str(error)
    if isinstance(error, AuthenticationError):
        return _unavailable(label, LASTING["NOAUTH" if "required" in text.lower() else "WRONGPASS"], False)
    if "Invalid Database" in text or "DB index" in text:
        return _unavailable(label, "it has no such database", False)
    if "Connection closed" in text or "reset by peer" in text:
        hint = "" if tls else TLS_HINT
        return _unavailable(label, f"it closed the connection{hint}", True)
    if "Protocol" in text or "protocol error" in text.lower():
        return _unavailable(label, "it does not speak the Redis protocol", False)
    return said(label, text)


def said(label: str, text: str) -> FencelockError:
    """The server answered with an error."""
    code = text.split(" ", 1)[0]
    if code in PASSING:
        return _unavailable(label, PASSING[code], True)
    if code in LASTING:
        return _unavailable(label, LASTING[code], code == "READONLY")
    if "unauthenticated" in text:  # said to long commands, instead of NOAUTH
        return _unavailable(label, LASTING["NOAUTH"], False)
    if "max number of clients" in text:
        return _unavailable(label, "it has its max number of clients", True)
    if lacks := _lacks(text):
        return _unavailable(label, lacks, False)
    if "unknown command" in text.lower():
        return _unavailable(label, f"it cannot run scripts, or is no Redis: {_after(text)}", False)
    return _unavailable(label, text.partition("\n")[0][:200], False)


def too_old(label: str, hello: Any, info: Any) -> BackendUnavailable | None:
    """Return the failure of a server whose HELLO, or INFO before 6.0, tells of a version before `OLDEST`."""
    told = _version(hello, info)
    if told is None or tuple(map(int, re.findall(r"\d+", told)[:2])) >= OLDEST:
        return None
    needed = ".".join(map(str, OLDEST))
    detail = f"it is Redis {told}, and {needed} or newer is needed: upgrade it, or use Valkey"
    return _unavailable(label, detail, False)


def _version(hello: Any, info: Any) -> str | None:
    told = None
    if isinstance(hello, list):
        told = dict(zip(hello[::2], hello[1::2], strict=False)).get(b"version")
    elif isinstance(info, bytes):
        line = re.search(rb"^redis_version:(\S+)", info, re.MULTILINE)
        told = line[1] if line else None
    return told.decode("utf-8", "replace") if isinstance(told, bytes) else None


def of_client(error: Exception) -> BackendUnavailable:
    """What a client of redis-py has raised, in fencelock's words."""
    text = str(error).partition("\n")[0]
    lacks = _lacks(text)
    return BackendUnavailable(backend=BACKEND, detail=lacks or text, transient=lacks is None)


def _lacks(text: str) -> str | None:
    """Return which right the user lacks; `None` if the server says something else."""
    if not re.search("no permissions|user executing the script|ACL failure in script", text, re.IGNORECASE):
        return None
    command = re.search(r"run the '(\S+)' command", text)
    if command:
        right = f"+{command[1]}"
    elif "channel" in text:
        right = "&fencelock:*"
    elif "key" in text:
        right = "~fencelock:*"
    else:  # Redis 7.0 does not say which
        right = "a command of the script, `fencelock doctor` names it"
    return f"this user may not do that: it lacks {right} (see {RIGHTS})"


def _after(text: str) -> str:
    return text.partition(" ")[2].partition("\n")[0][:200]


def _unavailable(label: str, detail: str, transient: bool) -> BackendUnavailable:
    return BackendUnavailable(backend=BACKEND, detail=f"{label}: {detail}", transient=transient)


def _tls(error: ssl.SSLError) -> str:
    reason = (error.reason or "").replace("_", " ").lower() or str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if "wrong version number" in reason:
        return "it does not speak TLS: write redis:// instead of rediss://"
    if isinstance(error, ssl.SSLEOFError):
        return "it closed the connection during the TLS handshake"  # it may be going down
    return f"TLS failed: {reason}"


def closed() -> BackendUnavailable:
    """The client was closed meanwhile."""
    return BackendUnavailable(backend=BACKEND, detail="this client is closed", transient=False)


def no_pushes(label: str, why: object = "no pushes", *, transient: bool = True) -> BackendUnavailable:
    """The server cannot be listened to, or will not have it."""
    return _unavailable(label, str(why), transient)
