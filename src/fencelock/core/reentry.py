"""Re-entry: which thread or task holds which lock, and may enter it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencelock.errors import ConfigurationError

if TYPE_CHECKING:
    from fencelock.core.hold import Hold, Terms
    from fencelock.runtime.base import Runtime

__all__ = ["Reentry", "check_mode"]


class Reentry:
    """The holds that can be entered again, by the thread or task that has them and by name."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._holds: dict[tuple[object, str], Hold] = {}

    def __len__(self) -> int:
        return len(self._holds)

    def all(self) -> list[Hold]:
        """Return the holds that can be entered again."""
        return list(self._holds.values())

    def find(self, name: str) -> Hold | None:
        """Return the hold that this thread or task has on the lock; it may have ended since."""
        return self._holds.get((self._runtime.current(), name))

    def note(self, hold: Hold) -> None:
        """Let this thread or task enter again."""
        hold.entrant = (self._runtime.current(), hold.request.name)
        self._holds[hold.entrant] = hold

    def forget(self, hold: Hold) -> None:
        """The hold cannot be entered again."""
        if hold.entrant is not None and self._holds.get(hold.entrant) is hold:
            del self._holds[hold.entrant]


def check_mode(hold: Hold, terms: Terms) -> None:
    """Raise unless a lock that is held like this can be entered on those terms."""
    if hold.request.mode not in {terms.mode, "exclusive"}:
        raise ConfigurationError(
            f"lock {terms.name!r} is held in mode {hold.request.mode!r} here and cannot be entered again "
            f"as {terms.mode!r}: it would wait for itself, release it first"
        )
