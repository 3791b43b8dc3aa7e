"""holdfast: distributed locks with fencing tokens, over what you already run.

Example:
    >>> import holdfast
    >>> with holdfast.Client("memory://") as locks:
    ...     with locks.lock("invoice:42", ttl=30) as lease:
    ...         lease.is_held()
    True
"""

import logging
from typing import TYPE_CHECKING, Any

from holdfast._version import __version__
from holdfast.client import Client
from holdfast.election import AsyncElection, Election
from holdfast.errors import (
    AcquireTimeout,
    BackendError,
    BackendUnavailable,
    ConfigurationError,
    Conflict,
    HoldfastError,
    LeaseLost,
    NotHeld,
    QuorumNotReached,
    StaleToken,
    Unsupported,
)
from holdfast.guarantees import Guarantees
from holdfast.lease import AsyncLease, Lease
from holdfast.lock import AsyncLock, AsyncRWLock, Lock, RWLock
from holdfast.multi import AsyncMultiLease, AsyncMultiLock, MultiLease, MultiLock
from holdfast.state import Entry, LockState

if TYPE_CHECKING:
    from holdfast.aio import AsyncClient

logging.getLogger("holdfast").addHandler(logging.NullHandler())  # a library does not print by itself

__all__ = [
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
    "Guarantees",
    "HoldfastError",
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
]


def __getattr__(name: str) -> Any:
    # asyncio is more than half of what importing this package would cost; who needs it, asks for it.
    if name == "AsyncClient":
        from holdfast.aio import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
