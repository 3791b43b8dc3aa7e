"""What `inspect` and `list` show: who holds a lock, who waits for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fencelock.names import MARK

__all__ = ["Entry", "LockState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One holder or one waiter."""

    owner: str
    """The random id of this acquisition."""
    token: int
    mode: str
    """`exclusive`, `shared` or `permit`."""
    client: str
    host: str
    pid: int
    since: float
    """When it began to hold, or to wait: seconds since the epoch, by the backend's clock."""
    expires_in: float
    """Seconds until it is gone unless it is renewed."""
    metadata: Any = None
    age: float = 0.0
    """Seconds since `since`, by the backend's clock."""
    limit: int = 1
    """How many may hold together: 1, the limit of a semaphore, 0 for readers (no limit)."""
    kind: str = "lock"
    """What it is for: `leader`, `job`, `schedule`, `flight`; `lock` where nobody has said."""

    def __post_init__(self) -> None:
        metadata = self.metadata
        if type(metadata) is dict and MARK in metadata:
            object.__setattr__(self, "kind", str(metadata[MARK]))
            object.__setattr__(self, "metadata", metadata.get("metadata"))

    def summary(self) -> str:
        """Return one phrase for messages, whatever the host calls itself: `host-a:812 for 12s`."""
        host = self.host if self.host.isprintable() else repr(self.host)[1:-1]
        return f"{host}:{self.pid} for {self.age:.3g}s"

    def as_dict(self) -> dict[str, Any]:
        """Return the entry as plain data, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockState:
    """A lock as it stood at one moment: its holders, and its waiters in order."""

    name: str
    holders: tuple[Entry, ...] = ()
    waiters: tuple[Entry, ...] = ()

    @property
    def is_free(self) -> bool:
        """Whether nobody holds it and nobody waits."""
        return not self.holders and not self.waiters

    def as_dict(self) -> dict[str, Any]:
        """Return the state as plain data, for JSON."""
        return {
            "name": self.name,
            "holders": [entry.as_dict() for entry in self.holders],
            "waiters": [entry.as_dict() for entry in self.waiters],
        }
