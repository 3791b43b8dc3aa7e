"""What a request is told when it does not get its lock, in whatever framework.

Nothing of it names the holder or the backend: what goes on inside is not for the world. It stands in the log.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from fencelock.durations import Duration, duration, optional_duration
from fencelock.errors import AcquireTimeout, BackendError, ConfigurationError, LeaseLost

__all__ = ["LOCKED", "RETRY_AFTER", "TIMEOUT", "TTL", "Refusal", "Terms"]

TTL = 30.0
TIMEOUT = 10.0
LOCKED = 423
RETRY_AFTER = 1.0
UNAVAILABLE = 503

log = logging.getLogger("fencelock")


@dataclass(frozen=True)
class Refusal:
    """An answer in place of the application's."""

    status: int
    detail: str
    headers: dict[str, str]


@dataclass(frozen=True)
class Terms:
    """On what terms a request gets a lock. Checked when the application is made, not at its first request."""

    ttl: Duration = TTL
    timeout: Duration | None = TIMEOUT
    status: int = LOCKED
    retry_after: Duration = RETRY_AFTER

    def __post_init__(self) -> None:
        """Check them."""
        duration(self.ttl, "ttl")
        optional_duration(self.timeout, "timeout")
        duration(self.retry_after, "retry_after")
        if isinstance(self.status, bool) or not isinstance(self.status, int) or not 400 <= self.status <= 599:
            raise ConfigurationError(f"status={self.status!r} is no refusal: give 423, 409 or the like")

    def refusal(self, error: AcquireTimeout | BackendError | LeaseLost) -> Refusal:
        """Return what a request is told of an error of its lock."""
        headers = {"Retry-After": str(max(1, math.ceil(duration(self.retry_after, "retry_after"))))}
        if isinstance(error, AcquireTimeout):
            return Refusal(self.status, "somebody else is at it, try again later", headers)
        if isinstance(error, LeaseLost):
            log.warning("a request has lost its lock: %s", error)
            return Refusal(UNAVAILABLE, "the lock was lost on the way, look before you try again", headers)
        log.warning("no lock for a request: %s", error)
        return Refusal(UNAVAILABLE, "locks cannot be had just now, try again later", headers)
