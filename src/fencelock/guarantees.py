"""What a backend promises, as data.

A program can refuse to start on a set-up that is too weak for it:

    >>> from fencelock import Client
    >>> with Client("memory://") as locks:
    ...     locks.guarantees.scope
    'process'

Every field that a program, or a verdict, may decide by is an enumeration. The reasons, and what else there is
to know, are in `caveats`. No program should depend on their words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

__all__ = ["VALUES", "Guarantees"]


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
    clock: Literal["nothing", "exclusion"]
    """What a clock jump can break. `exclusion`: it ends leases early, so a lock may have two holders."""
    failover: Literal["nothing", "exclusion", "exclusion-and-tokens"]
    """What a failover can break. `exclusion`: grants may be forgotten, but tokens rise as long as the clocks
    of the servers agree. `exclusion-and-tokens`: tokens may fall or repeat even then."""
    restart: Literal["nothing", "exclusion"] = "exclusion"
    """What a restart or a power loss of the server can break. `exclusion`: grants may be forgotten. How far
    tokens rise across it is `fencing`."""
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


VALUES: Mapping[str, tuple[str, ...]] = {
    field: get_args(hint) for field, hint in get_type_hints(Guarantees).items() if get_origin(hint) is Literal
}
"""The fields that are enumerations, each with its values."""
