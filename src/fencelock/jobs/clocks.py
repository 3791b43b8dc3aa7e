"""The database's clock, as statements have it: for columns of seconds and for columns of time.

Every time in the table comes from the server's clock at the start of the statement. Functions that a server
evaluates anew for each row (`clock_timestamp`, `SYSDATE`) would keep it from using an index.

    seconds    DOUBLE PRECISION and other numbers: since 1970, in UTC
    time       TIMESTAMP, DATETIME: as the session's own `now()` has it; in SQLite text, in UTC

NOT promised: SQLite has no clock of its own; there it is the wall clock of the host.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fencelock.connections import MARK, MYSQL, POSTGRESQL, SQLITE, Dialect

__all__ = ["Clock", "clock_for"]


class Clock(NamedTuple):
    """How one column of times is written and read."""

    now: str
    """The time, as the column has it."""
    later: str
    """So many seconds from now: has one `MARK`."""
    seconds: str
    """Seconds from a time in the column until now: has `{}` for the column."""


STAMP = "statement_timestamp()"
EPOCH = f"extract(epoch from {STAMP})::float8"
MICROSECONDS = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"
JULIAN = "((julianday('now') - 2440587.5) * 86400.0)"
TEXT = "strftime('%Y-%m-%d %H:%M:%f', 'now'"

NUMBERS: dict[Dialect, str] = {
    SQLITE: JULIAN,
    POSTGRESQL: EPOCH,
    MYSQL: f"({MICROSECONDS} / 1000000e0)",
}
TIMES: dict[Dialect, Clock] = {
    SQLITE: Clock(
        f"{TEXT})",
        f"{TEXT}, ({MARK} + 0.0) || ' seconds')",
        "((julianday('now') - julianday({})) * 86400.0)",
    ),
    POSTGRESQL: Clock(
        STAMP,
        f"({STAMP} + {MARK} * interval '1 second')",
        f"extract(epoch from {STAMP} - {{}})::float8",
    ),
    MYSQL: Clock(
        "NOW(6)",
        f"(NOW(6) + INTERVAL {MARK} SECOND)",
        "(TIMESTAMPDIFF(MICROSECOND, {}, NOW(6)) / 1000000e0)",
    ),
}
LOCAL = Clock(
    f"{STAMP}::timestamp",
    f"({STAMP}::timestamp + {MARK} * interval '1 second')",
    f"extract(epoch from {STAMP}::timestamp - {{}})::float8",
)
"""PostgreSQL's TIMESTAMP without a time zone: that of the session, as its DEFAULT now() would have it."""


def clock_for(dialect: Dialect, kind: Any) -> Clock:
    """Return the clock for a column of this type of SQLAlchemy's."""
    from sqlalchemy import types

    if isinstance(kind, types.Integer | types.Numeric | types.Float):
        now = NUMBERS[dialect]
        return Clock(now, f"({now} + {MARK})", f"({now} - {{}})")
    if dialect == POSTGRESQL and not getattr(kind, "timezone", False):
        return LOCAL
    return TIMES[dialect]
