"""What a backend promises, as data.

A program can refuse to start on a set-up that is too weak for it:

    >>> from fencelock import Client
    >>> with Client("memory://") as locks:
    ...     locks.guarantees.scope
    'process'
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Guarantees"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """What this backend promises, and what it does not."""

    scope: Literal["process", "host", "cluster"]
    """How far exclusion reaches."""
    use_for: Literal["efficiency", "correctness"]
    """`efficiency`: a rare double grant costs work twice. `correctness`: there is none, given fencing."""
    fencing: Literal["durable", "until-restart", "best-effort"]
    """How far tokens rise: across power loss, until the server restarts, or as well as clocks allow."""
    crash_release: Literal["ttl", "session", "connection"]
    """What frees the lock when its holder dies."""
    clock: str
    """What a clock jump can break."""
    failover: str
    """What a failover can lose."""
    fairness: Literal["fifo", "none"]
    """The order in which waiters are served."""
    wakeup: Literal["push", "poll"]
    """How a waiter learns that its turn has come."""
    min_ttl: float
    """The smallest ttl in seconds that this backend can keep."""
    max_ttl: float
    """The largest ttl in seconds that this backend can keep."""
    caveats: tuple[str, ...] = ()
    """What else an operator should know, one sentence each."""

    def as_dict(self) -> dict[str, Any]:
        """Return the guarantees as plain data, for JSON."""
        return {**asdict(self), "caveats": list(self.caveats)}
