"""Every error that fencelock raises.

Errors are built from required keyword fields, so that no call site can forget what a
reader of the message needs, and so that a program can look at the fields instead of
taking the text apart. They survive pickling: a worker may send them to its parent.

"Held by someone else" (`AcquireTimeout`) and "the backend is down" (`BackendUnavailable`)
are different branches of the tree and are never confused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencelock.state import Entry

__all__ = [
    "AcquireCancelled",
    "AcquireTimeout",
    "BackendError",
    "BackendUnavailable",
    "ConfigurationError",
    "Conflict",
    "FencelockError",
    "LeaseLost",
    "NotHeld",
    "QuorumNotReached",
    "StaleToken",
    "Unsupported",
]


DROPPED_HERE = (
    "this process acquired it and dropped the lease: keep what acquire() returns, or use a `with` block"
)


class FencelockError(Exception):
    """The root: catch it to catch everything fencelock raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def cannot_be_pickled(thing: object, remedy: str) -> TypeError:
    """Return the error of pickling something that belongs to one process."""
    return TypeError(f"a {type(thing).__name__} cannot be pickled, it belongs to this process: {remedy}")


def _rebuild(cls: type[FencelockError], args: tuple[Any, ...], fields: dict[str, Any]) -> FencelockError:
    error = cls.__new__(cls, *args)
    error.args = args  # an OSError, as TimeoutError is one, does not take them from __new__
    error.__dict__.update(fields)
    return error


class AcquireTimeout(FencelockError, TimeoutError):
    """The lock was not acquired in time: somebody else held it, or stood before us.

    Example:
        >>> error = AcquireTimeout(name="invoices", waited=5.0)
        >>> str(error)
        "lock 'invoices' not acquired within 5s"
    """

    def __init__(
        self, *, name: str, waited: float, holder: Entry | None = None, dropped: bool = False
    ) -> None:
        by = f" (held by {holder.summary()})" if holder is not None else ""
        hint = f"; {DROPPED_HERE}" if dropped else ""
        super().__init__(f"lock {name!r} not acquired within {waited:.3g}s{by}{hint}")
        self.name = name
        self.waited = waited
        self.holder = holder


class AcquireCancelled(FencelockError):
    """The wait for a lock was called off, for instance because the client was closed meanwhile."""

    def __init__(self, *, name: str, waited: float, reason: str) -> None:
        super().__init__(f"lock {name!r} not acquired: {reason} after {waited:.3g}s of waiting")
        self.name = name
        self.waited = waited
        self.reason = reason


class LeaseLost(FencelockError):
    """The lease ended before it was released: somebody else may hold the lock now."""

    def __init__(self, *, name: str, token: int, reason: str) -> None:
        super().__init__(f"lease on {name!r} (token {token}) was lost: {reason}")
        self.name = name
        self.token = token
        self.reason = reason


class NotHeld(FencelockError):
    """The call needs a lease that is held, and this one was released."""

    def __init__(self, *, name: str) -> None:
        super().__init__(f"lock {name!r} is not held: the lease was released")
        self.name = name


class StaleToken(FencelockError):
    """A resource refused a token because it has seen a newer one."""

    def __init__(self, *, resource: str, token: int, newest: int) -> None:
        super().__init__(f"token {token} for {resource!r} is stale: {newest} was seen already")
        self.resource = resource
        self.token = token
        self.newest = newest


class Conflict(FencelockError):
    """An optimistic update lost the race; `current` is the row as it stands now."""

    def __init__(self, *, resource: str, current: Any) -> None:
        super().__init__(f"{resource!r} was changed by someone else since it was read")
        self.resource = resource
        self.current = current


class BackendError(FencelockError):
    """The backend failed; `__cause__` is the driver's exception."""

    def __init__(self, *, backend: str, detail: str) -> None:
        super().__init__(f"{backend}: {detail}")
        self.backend = backend
        self.detail = detail


class BackendUnavailable(BackendError):
    """The backend cannot be reached or cannot answer now.

    `transient` says whether asking again may help: a waiter rides out a short outage,
    but not a file that cannot be opened.
    """

    def __init__(self, *, backend: str, detail: str, transient: bool = True) -> None:
        super().__init__(backend=backend, detail=detail)
        self.transient = transient


class QuorumNotReached(BackendError):
    """Fewer nodes than a majority answered; `votes` says what each one did."""

    def __init__(self, *, backend: str, votes: Mapping[str, str]) -> None:
        told = ", ".join(f"{node}: {vote}" for node, vote in votes.items())
        super().__init__(backend=backend, detail=f"no quorum ({told})")
        self.votes = dict(votes)


class Unsupported(FencelockError):
    """This backend cannot do that, and does not pretend to."""

    def __init__(self, *, capability: str, backend: str) -> None:
        super().__init__(f"the {backend} backend does not support {capability}")
        self.capability = capability
        self.backend = backend


class ConfigurationError(FencelockError, ValueError):
    """A value is wrong; the message names it and says what would be right."""
