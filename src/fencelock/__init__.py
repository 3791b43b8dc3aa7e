"""fencelock: distributed locks with fencing tokens, over what you already run.

Example:
    >>> import fencelock
    >>> with fencelock.Client("memory://") as locks:
    ...     with locks.lock("invoice:42", ttl=30) as lease:
    ...         lease.is_held()
    True
"""

import logging
from typing import TYPE_CHECKING, Any

from fencelock._version import __version__
from fencelock.client import Client
from fencelock.election import AsyncElection, Election
from fencelock.errors import (
    AcquireCancelled,
    AcquireTimeout,
    BackendError,
    BackendUnavailable,
    ConfigurationError,
    Conflict,
    FencelockError,
    LeaseLost,
    NotHeld,
    QuorumNotReached,
    StaleToken,
    Unsupported,
)
from fencelock.guarantees import Guarantees
from fencelock.lease import AsyncLease, Lease
from fencelock.lock import AsyncLock, AsyncRWLock, Lock, RWLock
from fencelock.multi import AsyncMultiLease, AsyncMultiLock, MultiLease, MultiLock
from fencelock.signals import release_on_exit
from fencelock.state import Entry, LockState

if TYPE_CHECKING:
    from fencelock.aio import AsyncClient

logging.getLogger("fencelock").addHandler(logging.NullHandler())  # a library does not print by itself

__all__ = [
    "AcquireCancelled",
    "AcquireTimeout",
    "AsyncClient",
    "AsyncElection",
    "AsyncLease",
    "AsyncLock",
    "AsyncMultiLease",
    "AsyncMultiLock",
    "AsyncRWLock",
    "BackendError",
    "BackendUnavailable",
    "Client",
    "ConfigurationError",
    "Conflict",
    "Election",
    "Entry",
    "FencelockError",
    "Guarantees",
    "Lease",
    "LeaseLost",
    "Lock",
    "LockState",
    "MultiLease",
    "MultiLock",
    "NotHeld",
    "QuorumNotReached",
    "RWLock",
    "StaleToken",
    "Unsupported",
    "__version__",
    "release_on_exit",
]


def __getattr__(name: str) -> Any:
    # asyncio is more than half of what importing this package would cost; who needs it, asks for it.
    if name == "AsyncClient":
        from fencelock.aio import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
