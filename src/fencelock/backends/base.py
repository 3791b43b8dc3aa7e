"""The contract of a backend, for those who write one: the public names, and where to read what they mean.

The text, with every postcondition, is `fencelock/core/ports.py`; what `doctor` and `pulse` return is in
`fencelock/findings.py`. fencelock's own code imports from there.
"""

from __future__ import annotations

from fencelock.backends.resent import as_sent
from fencelock.core.ports import (
    CAPABILITIES,
    LONGEST_TTL,
    Backend,
    Busy,
    Grant,
    Origin,
    Outcome,
    PoolExhausted,
    Renewal,
    Request,
    patience,
)
from fencelock.findings import Finding, Pulse

__all__ = [
    "CAPABILITIES",
    "LONGEST_TTL",
    "Backend",
    "Busy",
    "Finding",
    "Grant",
    "Origin",
    "Outcome",
    "PoolExhausted",
    "Pulse",
    "Renewal",
    "Request",
    "as_sent",
    "patience",
]
