"""Rows with a version: written only if nobody else has written since they were read.

The table has a column of whole numbers, by default `version`, that every write raises by one. An update names
the version that was read. If it is still there the row is changed, and the answer is `Updated` with the new
row; if not, nothing is changed and the answer is `Conflicted` with the row as it stands.

- PostgreSQL: one statement. An UPDATE that waited for another transaction looks at the new row and finds
  another version. The statement's own snapshot is from before that wait, so a plain SELECT beside it would
  show the row as it was; a SELECT with a row lock follows the row to its newest form. FOR KEY SHARE would
  not, since it minds no such update; and two who have FOR SHARE deadlock when both go on to update.
- SQLite: UPDATE … RETURNING, and a SELECT after it where nothing was changed.
- MySQL and MariaDB: SELECT … FOR UPDATE, which reads past the snapshot of the transaction, then UPDATE and
  SELECT under the row's lock. Where every statement stands alone (autocommit), a transaction is put around.

NOT promised: nothing is committed here, so the answer holds if and when your transaction does. On servers a
conflict leaves the row locked until that ends, so that the row shown stays true: end it soon. A transaction
in REPEATABLE READ or SERIALIZABLE may get the driver's serialization failure instead of an answer, as ever:
run it again. Writers who do not raise the version are not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencelock.connections import MARK, POSTGRESQL, SQLITE, Door, Row, ask, ask_async
from fencelock.errors import ConfigurationError
from fencelock.names import shown
from fencelock.optimistic.results import Conflicted, NoSuchRow, Updated, said

if TYPE_CHECKING:
    from fencelock.connections import Asyncio, Blocking

__all__ = ["Change", "read", "read_async", "update", "update_async", "update_many", "update_many_async"]

HIGHEST = 2**63 - 2
AT_ONCE = 50
"""Changes in one statement, on PostgreSQL."""
TAG = "fencelock_change"
"""The column of PostgreSQL's answer that says which change a row belongs to, and whether it was made."""

Result = Updated[Row] | Conflicted[Row]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of many: what `update` takes, as a value.

    Example:
        >>> Change(key={"id": 1}, version=3, set={"left": 9}).version
        3
    """

    key: Mapping[str, Any]
    version: int
    set: Mapping[str, Any]


def read(conn: Blocking, table: str, *, key: Mapping[str, Any]) -> Row:
    """Return the row of a key, as a dict. Raises `NoSuchRow`."""
    _check_key(key)
    return ask(conn, lambda door: _read(door, table, key))


async def read_async(conn: Asyncio, table: str, *, key: Mapping[str, Any]) -> Row:
    """Do the same as `read`, for asynchronous connections."""
    _check_key(key)
    return await ask_async(conn, lambda door: _read(door, table, key))


def update(
    conn: Blocking,
    table: str,
    *,
    key: Mapping[str, Any],
    version: int,
    set: Mapping[str, Any],  # noqa: A002 - the word of SQL
    version_column: str = "version",
) -> Updated[Row] | Conflicted[Row]:
    """Change the row of `key` if it still has this version, and raise the version by one.

    Answers `Updated` with the new row, or `Conflicted` with the current one. Raises `NoSuchRow` if there is
    none, and `ConfigurationError` for a version that the row has never had or a key that several rows have.
    """
    change = _checked(Change(key, version, set), version_column)
    return ask(conn, lambda door: _update_all(door, table, [change], version_column))[0]


async def update_async(
    conn: Asyncio,
    table: str,
    *,
    key: Mapping[str, Any],
    version: int,
    set: Mapping[str, Any],  # noqa: A002
    version_column: str = "version",
) -> Updated[Row] | Conflicted[Row]:
    """Do the same as `update`, for asynchronous connections."""
    change = _checked(Change(key, version, set), version_column)
    return (await ask_async(conn, lambda door: _update_all(door, table, [change], version_column)))[0]


def update_many(
    conn: Blocking, table: str, changes: Sequence[Change], *, version_column: str = "version"
) -> list[Updated[Row] | Conflicted[Row]]:
    """Make each of these changes whose row still has its version; answer for each, in the same order.

    A conflict of one does not keep the others back: roll back if you want all or none. Rows are locked in the
    order of their keys, so that two of these calls do not wait for each other.
    """
    checked = _all_checked(changes, version_column)
    return ask(conn, lambda door: _update_all(door, table, checked, version_column))


async def update_many_async(
    conn: Asyncio, table: str, changes: Sequence[Change], *, version_column: str = "version"
) -> list[Updated[Row] | Conflicted[Row]]:
    """Do the same as `update_many`, for asynchronous connections."""
    checked = _all_checked(changes, version_column)
    return await ask_async(conn, lambda door: _update_all(door, table, checked, version_column))


# What is asked for ----------------------------------------------------------------------------


def _check_key(key: Mapping[str, Any]) -> None:
    if not isinstance(key, Mapping) or not key:
        raise ConfigurationError(f"key={shown(key)} names no row: give its columns, as in {{'id': 42}}")
    for name, value in key.items():
        if value is None:
            raise ConfigurationError(f"key={shown(key)} has no value for {name!r}: NULL is equal to nothing")


def _checked(change: Change, version_column: str) -> Change:
    _check_key(change.key)
    version = change.version
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= HIGHEST:
        raise ConfigurationError(
            f"version={shown(version)} is no version: give the whole number that was read with the row"
        )
    if not isinstance(change.set, Mapping) or not change.set:
        raise ConfigurationError(f"set={shown(change.set)} changes nothing: give columns and their values")
    for name in change.set:
        if name == version_column:
            raise ConfigurationError(f"set has {name!r}: the version is raised for you, leave it out")
        if name in change.key:
            raise ConfigurationError(f"set has {name!r}, which is part of the key: a key stays as it is")
    return change


def _all_checked(changes: Sequence[Change], version_column: str) -> list[Change]:
    if isinstance(changes, str) or not isinstance(changes, Sequence):
        raise ConfigurationError(f"changes={shown(changes)} is not a list of changes")
    seen: list[tuple[Any, ...]] = []
    for change in changes:
        if not isinstance(change, Change):
            raise ConfigurationError(
                f"{shown(change)} is no Change: give optimistic.Change(key, version, set)"
            )
        _checked(change, version_column)
        seen.append(_order(change))
    for before, after in zip(sorted(seen), sorted(seen)[1:], strict=False):
        if before == after:
            raise ConfigurationError("two changes have the same key: make one of them")
    return list(changes)


def _order(change: Change) -> tuple[Any, ...]:
    return tuple((name, type(value).__name__, repr(value)) for name, value in sorted(change.key.items()))


# The steps ----------------------------------------------------------------------------------


def _where(door: Door, key: Mapping[str, Any]) -> str:
    return " AND ".join(f"{door.quoted(name, 'key')} = {MARK}" for name in key)


async def _read(door: Door, table: str, key: Mapping[str, Any]) -> Row:
    statement = f"SELECT * FROM {door.table(table)} WHERE {_where(door, key)}"
    door.flush()
    return _only((await door.run(statement, list(key.values()))).rows, table, key)


def _only(rows: Sequence[Row], table: str, key: Mapping[str, Any]) -> Row:
    if not rows:
        raise NoSuchRow(table=table, key=key)
    if len(rows) > 1:
        raise ConfigurationError(
            f"table {table!r} has several rows with {said(key)}: give a key that only one row has"
        )
    return rows[0]


class Step:
    """A change, on a table of one dialect."""

    def __init__(self, door: Door, table: str, change: Change, version_column: str) -> None:
        self.change = change
        self.name = table
        self.table = door.table(table)
        self.where = _where(door, change.key)
        self.column = version_column
        self.version = door.quoted(version_column, "version_column")
        sets = [f"{door.quoted(name, 'set')} = {MARK}" for name in change.set]
        self.sets = ", ".join([*sets, f"{self.version} = {self.version} + 1"])
        self.key = list(change.key.values())
        self.wanted = list(change.set.values())

    @property
    def one(self) -> str:
        """The condition that the key names one row: several are refused, not changed."""
        return f"(SELECT count(*) FROM (SELECT 1 FROM {self.table} WHERE {self.where} LIMIT 2) AS one) = 1"

    def told(self, rows: Sequence[Row]) -> Conflicted[Row]:
        """Return the answer for a change that was not made."""
        row = _only(rows, self.name, self.change.key)
        if self.column not in row:
            raise ConfigurationError(f"table {self.name!r} has no column {self.column!r}")
        current = row[self.column]
        if current is None or current < self.change.version:
            raise ConfigurationError(
                f"version={self.change.version} of {self.name!r} with {said(self.change.key)} does not "
                f"exist: the row has version {current}"
            )
        return Conflicted(row, self.name)


async def _update_all(door: Door, table: str, changes: Sequence[Change], version_column: str) -> list[Result]:
    steps = [Step(door, table, change, version_column) for change in changes]
    door.flush()
    places = sorted(range(len(steps)), key=lambda place: _order(changes[place]))
    ordered = [steps[place] for place in places]
    if door.dialect == POSTGRESQL:
        answers = [
            answer
            for at in range(0, len(ordered), AT_ONCE)
            for answer in await _by_one_statement(door, ordered[at : at + AT_ONCE])
        ]
    elif door.dialect == SQLITE:
        answers = [await _returning(door, step) for step in ordered]
    else:
        answers = await _under_a_lock(door, ordered)
    results: dict[int, Result] = dict(zip(places, answers, strict=True))
    return [results[place] for place in range(len(steps))]


async def _by_one_statement(door: Door, steps: Sequence[Step]) -> list[Result]:
    parts, selects, values = [], [], []
    for number, step in enumerate(steps):
        parts.append(
            f"c{number} AS (UPDATE {step.table} SET {step.sets} WHERE {step.where} "
            f"AND {step.version} = {MARK} AND {step.one} RETURNING *), "
            f"s{number} AS (SELECT * FROM {step.table} WHERE {step.where} FOR NO KEY UPDATE)"
        )
        values += [*step.wanted, *step.key, step.change.version, *step.key, *step.key]
        selects.append(f"SELECT {2 * number + 1} AS {TAG}, c{number}.* FROM c{number}")
        selects.append(
            f"SELECT {2 * number} AS {TAG}, s{number}.* FROM s{number} "
            f"WHERE NOT EXISTS (SELECT FROM c{number})"
        )
    answer = await door.run(f"WITH {', '.join(parts)} {' UNION ALL '.join(selects)}", values)
    found: dict[int, list[Row]] = {}
    for row in answer.rows:
        found.setdefault(row.pop(TAG), []).append(row)
    return [
        Updated(found[2 * number + 1][0]) if 2 * number + 1 in found else step.told(found.get(2 * number, []))
        for number, step in enumerate(steps)
    ]


async def _returning(door: Door, step: Step) -> Result:
    done = await door.run(
        f"UPDATE {step.table} SET {step.sets} WHERE {step.where} AND {step.version} = {MARK} AND {step.one} "
        "RETURNING *",
        [*step.wanted, *step.key, step.change.version, *step.key],
    )
    if done.row is not None:
        return Updated(done.row)
    found = await door.run(f"SELECT * FROM {step.table} WHERE {step.where} LIMIT 2", step.key)
    return step.told(found.rows)


async def _under_a_lock(door: Door, steps: Sequence[Step]) -> list[Result]:
    if not door.commits_at_once():
        return [await _locked(door, step) for step in steps]
    answers: list[Result] = []
    for step in steps:  # each is a transaction, as each statement of such a connection is
        await door.run("START TRANSACTION")
        try:
            answers.append(await _locked(door, step))
        except BaseException:
            await door.run("ROLLBACK")
            raise
        await door.run("COMMIT")
    return answers


async def _locked(door: Door, step: Step) -> Result:
    seen = await door.run(f"SELECT * FROM {step.table} WHERE {step.where} LIMIT 2 FOR UPDATE", step.key)
    if len(seen.rows) != 1 or seen.rows[0].get(step.column) != step.change.version:
        return step.told(seen.rows)
    await door.run(f"UPDATE {step.table} SET {step.sets} WHERE {step.where}", [*step.wanted, *step.key])
    now = await door.run(f"SELECT * FROM {step.table} WHERE {step.where}", step.key)
    return Updated(_only(now.rows, step.name, step.change.key))
