"""What kazoo and ZooKeeper say when something is wrong, in holdfast's words. Never a password."""

from __future__ import annotations

from kazoo import exceptions

from holdfast.errors import BackendUnavailable, ConfigurationError

__all__ = ["BACKEND", "closed", "no_answer", "said", "too_long"]

BACKEND = "zookeeper"

LASTING: dict[type[Exception], str] = {
    exceptions.AuthFailedError: "the user name or the password is wrong",
    exceptions.NoAuthError: "this user may not make and read znodes below /holdfast: give it the rights, "
    "or write zookeeper://USER:PASSWORD@…",
    exceptions.InvalidACLError: "it does not take the access list that was asked for",
}


def said(label: str, error: Exception) -> BackendUnavailable:
    """Return an error of kazoo's in one line."""
    for kind, meaning in LASTING.items():
        if isinstance(error, kind):
            return BackendUnavailable(backend=BACKEND, detail=f"{label}: {meaning}", transient=False)
    words = " ".join(str(error).split())[:200] or type(error).__name__
    return BackendUnavailable(backend=BACKEND, detail=f"{label}: {words}")


def no_answer(label: str) -> BackendUnavailable:
    """No answer by the deadline."""
    detail = f"{label}: no answer in time (is it up, and has it a quorum?)"
    return BackendUnavailable(backend=BACKEND, detail=detail)


def too_long(label: str, ttl: float, agreed: float) -> ConfigurationError:
    """The ensemble does not allow sessions of that length."""
    return ConfigurationError(
        f"ttl={ttl:g}: {label} allows sessions of at most {agreed:g}s (maxSessionTimeout), take a shorter ttl"
    )


def closed() -> BackendUnavailable:
    """The client was closed meanwhile."""
    return BackendUnavailable(backend=BACKEND, detail="the client is closed")
