"""Tools for proving that a lock is one: histories, their checks, and faults to provoke them with.

Nothing here needs a test framework. Record a run with ``History`` (or ``HistoryFile``, from many
processes), break things with ``TCPProxy``, ``paused`` and ``kill``, and ask ``check``. ``run`` is
the conformance suite: what the contract promises, checked on any backend.
"""

from fencelock.testing.brute import BRUTE_LIMIT, SearchTooLarge, brute_check
from fencelock.testing.checker import (
    Report,
    Rule,
    Violation,
    check,
    check_available,
    check_exclusion,
    check_fifo,
    check_guard,
    check_loss,
    check_token_order,
    check_unique_tokens,
    compatible,
    lost_updates,
)
from fencelock.testing.conformance import Check, Result, Summary, World, checks, run
from fencelock.testing.events import Event, HistoryError, Kind, Mode, boottime
from fencelock.testing.faults import (
    Counters,
    Fault,
    TCPProxy,
    kill,
    pause,
    paused,
    process_states,
    resume,
    wait_state,
)
from fencelock.testing.history import History, Instant, Operation
from fencelock.testing.holds import Hold, definite_holds
from fencelock.testing.recorder import Attempt, HistoryFile, LeaseLike, Recorder

__all__ = [
    "BRUTE_LIMIT",
    "Attempt",
    "Check",
    "Counters",
    "Event",
    "Fault",
    "History",
    "HistoryError",
    "HistoryFile",
    "Hold",
    "Instant",
    "Kind",
    "LeaseLike",
    "Mode",
    "Operation",
    "Recorder",
    "Report",
    "Result",
    "Rule",
    "SearchTooLarge",
    "Summary",
    "TCPProxy",
    "Violation",
    "World",
    "boottime",
    "brute_check",
    "check",
    "check_available",
    "check_exclusion",
    "check_fifo",
    "check_guard",
    "check_loss",
    "check_token_order",
    "check_unique_tokens",
    "checks",
    "compatible",
    "definite_holds",
    "kill",
    "lost_updates",
    "pause",
    "paused",
    "process_states",
    "resume",
    "run",
    "wait_state",
]
