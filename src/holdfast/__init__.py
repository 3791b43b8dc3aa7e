"""holdfast: distributed locks with fencing tokens, over what you already run.

Example:
    >>> import holdfast
    >>> with holdfast.Client("memory://") as locks:
    ...     with locks.lock("invoice:42", ttl=30) as lease:
    ...         lease.is_held()
    True
"""

from holdfast._version import __version__
from holdfast.aio import AsyncClient
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
