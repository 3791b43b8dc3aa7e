"""What kazoo and ZooKeeper say when something is wrong, in fencelock's words. Never a password."""

from __future__ import annotations

import ssl

from kazoo import exceptions  # type: ignore[import-untyped]

from fencelock.backends import RIGHTS
from fencelock.backends.bugs import BUGS, bug
from fencelock.backends.zookeeper.handlers import NotZooKeeper
from fencelock.errors import BackendError, BackendUnavailable, ConfigurationError

__all__ = [
    "BACKEND",
    "closed",
    "no_answer",
    "no_chroot",
    "said",
    "too_long",
    "too_old",
    "too_short",
    "unreachable",
]

BACKEND = "zookeeper"
LONGEST = 200
NEEDED = "3.5"

LASTING: dict[type[Exception], str] = {
    exceptions.AuthFailedError: "the user name or the password is wrong",
    exceptions.NoAuthError: "this user may not make, read and delete znodes below /fencelock and "
    f"/fencelock-registers: write zookeeper://USER:PASSWORD@…, or give it the rights (see {RIGHTS})",
    exceptions.InvalidACLError: "it does not take the access list that was asked for (is the user known?)",
    exceptions.UnimplementedError: f"it does not know what an acquire asks for, and ZooKeeper {NEEDED} or "
    "newer is needed: upgrade it (`fencelock doctor` names its version)",
    exceptions.SASLException: "SASL is not to be had: pip install pure-sasl",
}
NO_QUORUM = "is it up, and has it a quorum?"


def said(label: str, error: Exception) -> BackendError:
    """Return an error of kazoo's in one line."""
    if isinstance(error, BUGS):
        return bug(BACKEND, "kazoo", error)
    for kind, meaning in LASTING.items():
        if isinstance(error, kind):
            return BackendUnavailable(backend=BACKEND, detail=f"{label}: {meaning}", transient=False)
    words = " ".join(str(error).split())[:LONGEST] or type(error).__name__
    return BackendUnavailable(backend=BACKEND, detail=f"{label}: {words}")


def too_old(label: str, version: tuple[int, ...]) -> BackendUnavailable:
    """It does not know what an acquire asks for, and its version is known."""
    found = ".".join(map(str, version))
    detail = f"{label}: it is ZooKeeper {found}, and {NEEDED} or newer is needed: upgrade it"
    return BackendUnavailable(backend=BACKEND, detail=detail, transient=False)


def unreachable(label: str, error: BaseException, *, tls: bool) -> BackendError:
    """There is no connection."""
    transient = True
    if isinstance(error, (*LASTING, *BUGS)):
        return said(label, error)  # type: ignore[arg-type]
    if isinstance(error, NotZooKeeper):
        wants = "" if tls else ", or does it want TLS (then give cacert=…)"
        detail, transient = (
            f"it does not speak ZooKeeper's protocol: is this its port for clients{wants}?",
            False,
        )
    elif isinstance(error, ssl.SSLCertVerificationError):
        detail, transient = f"its certificate is not accepted: {error.verify_message}", False
    elif isinstance(error, ssl.SSLError):
        transient = isinstance(error, ssl.SSLEOFError)  # it may be going down
        detail = f"no TLS connection ({error.reason or error}): does it speak TLS?"
    elif isinstance(error, ConnectionRefusedError):
        detail = "connection refused"
    elif isinstance(error, exceptions.ConnectionDropped | exceptions.ConnectionLoss):
        detail = f"it closes the connection ({NO_QUORUM})"
    elif isinstance(error, OSError) and not isinstance(error, TimeoutError) and error.strerror:
        detail = error.strerror.lower()
    else:
        return no_answer(label)
    return BackendUnavailable(backend=BACKEND, detail=f"{label}: {detail}", transient=transient)


def no_answer(label: str) -> BackendUnavailable:
    """No answer by the deadline."""
    return BackendUnavailable(backend=BACKEND, detail=f"{label}: no answer in time ({NO_QUORUM})")


def no_chroot(label: str, chroot: str) -> BackendUnavailable:
    """The chroot of the URL is not there."""
    detail = f"{label}: there is no {chroot}: make it first, with zkCli.sh create {chroot} ''"
    return BackendUnavailable(backend=BACKEND, detail=detail, transient=False)


def too_long(label: str, ttl: float, agreed: float) -> ConfigurationError:
    """The ensemble does not allow sessions of that length."""
    return ConfigurationError(
        f"ttl={ttl:g}: {label} allows sessions of at most {agreed:g}s (maxSessionTimeout), take a shorter ttl"
    )


def too_short(label: str, ttl: float, agreed: float) -> ConfigurationError:
    """The ensemble keeps every session longer than that."""
    return ConfigurationError(
        f"ttl={ttl:g}: {label} allows sessions of at least {agreed:g}s (minSessionTimeout), take a longer ttl"
    )


def closed() -> BackendUnavailable:
    """The client was closed meanwhile."""
    return BackendUnavailable(backend=BACKEND, detail="the client is closed")
