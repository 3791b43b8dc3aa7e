"""The shape of a table of jobs: which column plays which role, checked against the table itself.

    id        says which job it is                    token      of its last attempt; only rises
    kind      says which handler it is for            attempts   begun so far
    payload   JSON                                    due        when to look at it; see below
    status    pending, running, done, dead,           reason     why it is to be tried again, or dead
              cancelled

    priority  higher goes first                       key        unique: the same job is not added twice
    progress  JSON, what a handler has kept           created    when it was added
                                                      worker     who has, or had, its last attempt

The first eight are needed, `kind` unless the table is of one kind only. `due` is when the job may be begun
while it is pending, when its attempt is given up while it is running, and when it ended after that: so what
is to be done is what is pending or running, and due.

The ready-made table has them all, under these names but for `unique_key`. In a table of the user's nothing
is read or written but what the mapping names: a column `token` may be anything there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fencelock.connections import MYSQL, POSTGRESQL, SQLITE, Dialect, Door
from fencelock.errors import ConfigurationError
from fencelock.jobs.clocks import Clock, clock_for
from fencelock.names import shown

__all__ = ["ENDED", "STATUSES", "TABLE", "Mapped", "Shape", "Statuses", "shape_of"]

TABLE = "fencelock_jobs"
NEEDED = ("id", "kind", "payload", "status", "token", "attempts", "due", "reason")
OPTIONAL = ("priority", "progress", "key", "created", "worker")
READY = {role: role for role in (*NEEDED, *OPTIONAL)} | {"key": "unique_key"}
STATUSES = ("pending", "running", "done", "dead", "cancelled")
ENDED = ("done", "dead", "cancelled")
LONGEST_REASON = 500

TYPES: dict[str, dict[Dialect, str]] = {
    "token": dict.fromkeys((SQLITE, POSTGRESQL, MYSQL), "BIGINT NOT NULL DEFAULT 0"),
    "attempts": dict.fromkeys((SQLITE, POSTGRESQL, MYSQL), "INTEGER NOT NULL DEFAULT 0"),
    "due": dict.fromkeys((SQLITE, POSTGRESQL, MYSQL), "DOUBLE PRECISION NOT NULL DEFAULT 0"),
    "reason": dict.fromkeys((SQLITE, POSTGRESQL, MYSQL), f"VARCHAR({LONGEST_REASON})"),
    "priority": dict.fromkeys((SQLITE, POSTGRESQL, MYSQL), "INTEGER NOT NULL DEFAULT 0"),
    "progress": {SQLITE: "TEXT", POSTGRESQL: "TEXT", MYSQL: "LONGTEXT"},
    "key": dict.fromkeys((SQLITE, POSTGRESQL, MYSQL), "VARCHAR(255) UNIQUE"),
    "created": dict.fromkeys((SQLITE, POSTGRESQL, MYSQL), "DOUBLE PRECISION"),
    "worker": dict.fromkeys((SQLITE, POSTGRESQL, MYSQL), "VARCHAR(255)"),
}
"""What to add to a table that lacks it."""

Statuses = Mapping[str, str | int]


@dataclass(frozen=True)
class Mapped:
    """What the user says of a table: checked in itself, not yet against the table."""

    table: str
    columns: Mapping[str, str]
    statuses: Statuses
    kind: str | None
    is_ready_made: bool

    @staticmethod
    def given(
        table: str, columns: Mapping[str, str] | None, statuses: Statuses | None, kind: str | None
    ) -> Mapped:
        """Check what was given. Raises `ConfigurationError`."""
        chosen = READY if columns is None else dict(columns)
        unknown = [shown(role) for role in chosen if role not in READY]
        if unknown:
            raise ConfigurationError(
                f"columns has {', '.join(unknown)}: known are {', '.join((*NEEDED, *OPTIONAL))}"
            )
        words: dict[str, str | int] = {status: status for status in STATUSES}
        for status, value in (statuses or {}).items():
            if status not in words:
                raise ConfigurationError(f"statuses has {shown(status)}: known are {', '.join(STATUSES)}")
            words[status] = value
        if len(set(map(str, words.values()))) < len(words):
            raise ConfigurationError("statuses gives two of them the same value: give each its own")
        if kind is not None and "kind" in chosen and columns is not None:
            raise ConfigurationError("kind is given twice, as a column and as one word: give one of them")
        if kind is not None:
            chosen = {role: name for role, name in chosen.items() if role != "kind"}
        return Mapped(table, chosen, words, kind, columns is None)


@dataclass(frozen=True)
class Shape:
    """A mapping that fits its table: names as statements have them, and what the columns can take."""

    dialect: Dialect
    table: str
    shown_table: str
    columns: Mapping[str, str]
    kind: str | None
    statuses: Statuses
    clock: Clock
    made: Clock | None
    """The clock for `created`."""
    as_text: frozenset[str] = frozenset()
    """Roles whose column is to be cast to text before it is read."""
    nullable: frozenset[str] = frozenset()
    longest_reason: int = LONGEST_REASON
    whole_ids: bool = False
    advice: Sequence[str] = field(default_factory=tuple)

    def has(self, role: str) -> bool:
        """Whether a column plays that role."""
        return role in self.columns

    def word(self, value: object) -> str:
        """Return what a status of the table means."""
        for status, stored in self.statuses.items():
            if str(stored) == str(value):
                return status
        return str(value)

    def own_id(self, given: Any) -> Any:
        """Return an id as its column has it: a command line has only text."""
        if self.whole_ids and isinstance(given, str):
            return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else -1
        return given


def shape_of(door: Door, conn: Any, mapped: Mapped) -> Shape:
    """Look at the table itself. Raises `ConfigurationError` that says what is missing and what to add."""
    from sqlalchemy import inspect, types
    from sqlalchemy.exc import NoSuchTableError

    schema, _, name = mapped.table.rpartition(".")
    table = door.table(mapped.table)
    try:
        found = {each["name"]: each for each in inspect(conn).get_columns(name, schema=schema or None)}
    except NoSuchTableError:
        found = {}
    if not found:
        hint = "make it once, with create()" if mapped.is_ready_made else "make it, or give its name"
        raise ConfigurationError(f"there is no table {shown(mapped.table)}: {hint}")
    _check_columns(door, mapped, table, found)
    kinds = {role: found[column]["type"] for role, column in mapped.columns.items()}
    _check_token(door.dialect, mapped, table, kinds["token"])
    as_text = {
        role
        for role in ("payload", "progress")
        if door.dialect == POSTGRESQL and isinstance(kinds.get(role), types.JSON)
    }
    limit = getattr(kinds["reason"], "length", None) or LONGEST_REASON
    return Shape(
        dialect=door.dialect,
        table=table,
        shown_table=mapped.table,
        columns={role: door.quoted(column, "column") for role, column in mapped.columns.items()},
        kind=mapped.kind,
        statuses=mapped.statuses,
        clock=clock_for(door.dialect, kinds["due"]),
        made=clock_for(door.dialect, kinds["created"]) if "created" in kinds else None,
        as_text=frozenset(as_text),
        nullable=frozenset(role for role, column in mapped.columns.items() if found[column]["nullable"]),
        longest_reason=min(limit, LONGEST_REASON),
        whole_ids=isinstance(kinds["id"], types.Integer),
        advice=_advice(door, conn, mapped, table, name, schema),
    )


def _check_columns(door: Door, mapped: Mapped, table: str, found: Mapping[str, Any]) -> None:
    absent = [column for column in mapped.columns.values() if column not in found]
    if absent and not mapped.is_ready_made:
        raise ConfigurationError(
            f"table {shown(mapped.table)} has no column {', '.join(map(shown, absent))}: it has "
            f"{', '.join(map(str, found))}"
        )
    if absent:
        raise ConfigurationError(
            f"table {shown(mapped.table)} has no column {', '.join(map(shown, absent))}: "
            "map the columns that it has, with columns={…}, or give another name"
        )
    missing = [role for role in NEEDED if role not in mapped.columns]
    if mapped.kind is not None and "kind" in missing:
        missing.remove("kind")
    if not missing:
        return
    added = "; ".join(
        f"ALTER TABLE {table} ADD COLUMN {door.quoted(f'job_{role}', 'column')} {TYPES[role][door.dialect]}"
        for role in missing
        if role in TYPES
    )
    hint = f"; where there is none, add it: {added}" if added else ""
    if "kind" in missing:
        hint = f", or give kind='…' if all of them are of one kind{hint}"
    raise ConfigurationError(
        f"columns for table {shown(mapped.table)} does not say which one is {', '.join(missing)}: "
        f"map them{hint}"
    )


def _check_token(dialect: Dialect, mapped: Mapped, table: str, kind: Any) -> None:
    from sqlalchemy import types

    is_wide = isinstance(kind, types.BigInteger) or dialect == SQLITE
    if isinstance(kind, types.Integer) and not is_wide:
        name = mapped.columns["token"]
        change = f"MODIFY {name} BIGINT" if dialect == MYSQL else f"ALTER COLUMN {name} TYPE BIGINT"
        raise ConfigurationError(
            f"column {shown(name)} has too few bits for a token: ALTER TABLE {table} {change}"
        )


def _advice(door: Door, conn: Any, mapped: Mapped, table: str, name: str, schema: str) -> Sequence[str]:
    from sqlalchemy import inspect

    indexes = inspect(conn).get_indexes(name, schema=schema or None)
    wanted = mapped.columns["status"]
    if any((index["column_names"] or [None])[0] == wanted for index in indexes):
        return ()
    parts = [door.quoted(mapped.columns[role], "column") for role in ("status", "due")]
    if "priority" in mapped.columns:
        parts.insert(1, f"{door.quoted(mapped.columns['priority'], 'column')} DESC")
    index = door.quoted(f"{name[:50]}_jobs", "index")
    return (f"every poll reads the whole table: CREATE INDEX {index} ON {table} ({', '.join(parts)})",)
