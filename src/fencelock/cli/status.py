"""Exit statuses: one number per way to end, the same in every command.

1 and 2 are verdicts: a check that was made, and found something. 64 to 76 are those of
sysexits.h; 126 to 128 those of the shell.
"""

from __future__ import annotations

from typing import NamedTuple

from fencelock.errors import (
    AcquireTimeout,
    BackendError,
    ConfigurationError,
    FencelockError,
    LeaseLost,
    Unsupported,
)

__all__ = ["MEANINGS", "Meaning", "by_signal", "of_error"]

OK = 0
WARNINGS = 1
CRITICAL = 2
USAGE = 64
UNAVAILABLE = 69
INTERNAL = 70
NOT_ACQUIRED = 75
LOST = 76
NOT_EXECUTABLE = 126
NOT_FOUND = 127


class Meaning(NamedTuple):
    """What a status says, for help texts and docs."""

    code: str
    text: str


MEANINGS: dict[int, Meaning] = {
    WARNINGS: Meaning(
        "1",
        "`doctor --fail-on warning`: warnings; `conform`: a check failed; `break`: nothing to break; "
        "`once`: the run of this period failed and has no status",
    ),
    CRITICAL: Meaning("2", "`doctor`: something is critical"),
    USAGE: Meaning("64", "wrong usage: an option, a name, a URL"),
    UNAVAILABLE: Meaning("69", "the backend is unavailable, or a package of the extra `cli` is"),
    INTERNAL: Meaning("70", "a bug in fencelock; `fencelock --debug …` shows where"),
    NOT_ACQUIRED: Meaning("75", "the lock was not acquired in time (or the code of -E)"),
    LOST: Meaning("76", "the lease was lost; the command was stopped"),
    NOT_EXECUTABLE: Meaning("126", "the command cannot be executed"),
    NOT_FOUND: Meaning("127", "the command was not found"),
}


def by_signal(signum: int) -> int:
    """Return the status of something that a signal ended."""
    return 128 + signum


def of_error(error: FencelockError) -> int:
    """Return the status that tells of an error."""
    if isinstance(error, ConfigurationError | Unsupported):
        return USAGE
    if isinstance(error, AcquireTimeout):
        return NOT_ACQUIRED
    if isinstance(error, LeaseLost):
        return LOST
    if isinstance(error, BackendError):
        return UNAVAILABLE
    return INTERNAL
