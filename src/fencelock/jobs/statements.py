"""The statements of a worker, written once for each table.

What is to be done is looked for in two halves, pending and running, each in the order of one index
(status, priority, due): a condition `status IN (…)` would make every server sort all that is there.

An attempt begins with an UPDATE that raises the token, and whatever ends it names that token: who was
overtaken changes nothing. A row that somebody has locked at that moment is passed over, not waited for: its
owner may be a process that was stopped in the middle of a transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from fencelock.connections import MARK, MYSQL, POSTGRESQL, SQLITE
from fencelock.jobs.shape import Shape

__all__ = ["Statements"]

ALIASES = {"key": "unique_key"}
"""KEY is a word of MySQL's own."""
READ = ("id", "kind", "payload", "token", "attempts", "progress")


class Statements:
    """What is asked of one table, for handlers of these kinds."""

    def __init__(self, shape: Shape, kinds: Sequence[str] = ()) -> None:
        self.shape = shape
        self.kinds = tuple(kinds) if shape.kind is None else ()

    # Parts ------------------------------------------------------------------------------------

    def column(self, role: str, of: str = "") -> str:
        """Return a column as it is read: as text, and a number instead of NULL."""
        column = f"{of}{self.shape.columns[role]}"
        if role in self.shape.as_text:
            return f"CAST({column} AS text)"
        if role in {"token", "attempts", "priority"} and role in self.shape.nullable:
            return f"COALESCE({column}, 0)"
        return column

    def listed(self, roles: Sequence[str], of: str = "") -> str:
        """Return columns for a SELECT, under the names of their roles."""
        return ", ".join(
            f"{self.column(role, of)} AS {ALIASES.get(role, role)}" for role in roles if self.shape.has(role)
        )

    @cached_property
    def is_due(self) -> str:
        due = self.shape.columns["due"]
        passed = f"{due} <= {self.shape.clock.now}"
        return f"({due} IS NULL OR {passed})" if "due" in self.shape.nullable else passed

    @cached_property
    def order(self) -> str:
        due = self.shape.columns["due"]
        return f"{self.shape.columns['priority']} DESC, {due}" if self.shape.has("priority") else due

    def _half(self, read: str, count: int, locked: str = "", but: str = "") -> str:
        columns = self.shape.columns
        kinds = f" AND {columns['kind']} IN ({', '.join([MARK] * len(self.kinds))})" if self.kinds else ""
        return (
            f"SELECT {read} FROM {self.shape.table} WHERE {columns['status']} = {MARK} AND {self.is_due}"
            f"{kinds}{but} ORDER BY {self.order} LIMIT {count}{locked}"
        )

    @cached_property
    def half_values(self) -> tuple[Any, ...]:
        """The values of both halves."""
        words = self.shape.statuses
        return (words["pending"], *self.kinds, words["running"], *self.kinds)

    # Looking ----------------------------------------------------------------------------------

    def poll(self, count: int) -> str:
        """Find up to twice `count` jobs that are to be done; `again` is one that somebody has left."""
        half = self._half(self.listed(("id", "kind", "priority")), count)
        return (
            f"SELECT p.*, 0 AS again FROM ({half}) AS p UNION ALL SELECT r.*, 1 AS again FROM ({half}) AS r"
        )

    @cached_property
    def other_kinds(self) -> str:
        """Which kinds there are to be done."""
        columns = self.shape.columns
        return (
            f"SELECT DISTINCT {columns['kind']} AS kind FROM {self.shape.table} "
            f"WHERE {columns['status']} IN ({MARK}, {MARK})"
        )

    @cached_property
    def look(self) -> str:
        """How one job stands."""
        return (
            f"SELECT {self.listed(('token', 'status'))} FROM {self.shape.table} "
            f"WHERE {self.shape.columns['id']} = {MARK}"
        )

    # Claiming ---------------------------------------------------------------------------------

    def _begun(self, of: str = "") -> str:
        """Values: running, the least token, ttl, worker."""
        columns = self.shape.columns
        highest = "max" if self.shape.dialect == SQLITE else "GREATEST"
        changes = [
            f"{columns['status']} = {MARK}",
            f"{columns['token']} = {highest}({self.column('token', of)} + 1, {MARK})",
            f"{columns['attempts']} = {self.column('attempts', of)} + 1",
            f"{columns['due']} = {self.shape.clock.later}",
        ]
        if self.shape.has("worker"):
            changes.append(f"{columns['worker']} = {MARK}")
        return ", ".join(changes)

    def begun_values(self, floor: int, ttl: float, worker: str) -> list[Any]:
        values: list[Any] = [self.shape.statuses["running"], floor, ttl]
        return [*values, worker] if self.shape.has("worker") else values

    @cached_property
    def live_values(self) -> tuple[Any, Any]:
        return self.shape.statuses["pending"], self.shape.statuses["running"]

    @cached_property
    def _claimable(self) -> str:
        """Values: id, pending, running."""
        columns = self.shape.columns
        return f"{columns['id']} = {MARK} AND {columns['status']} IN ({MARK}, {MARK}) AND {self.is_due}"

    def _not_locked(self, chosen: str) -> str:
        """Return a condition on one row that passes it over if somebody has it locked."""
        if self.shape.dialect != POSTGRESQL:
            return chosen
        key = self.shape.columns["id"]
        return f"{key} = (SELECT {key} FROM {self.shape.table} WHERE {chosen} FOR UPDATE SKIP LOCKED)"

    @cached_property
    def claim(self) -> str:
        """Begin an attempt at one job and read it. Values: `begun_values`, id, pending, running."""
        chosen = self._not_locked(self._claimable)
        return f"UPDATE {self.shape.table} SET {self._begun()} WHERE {chosen} RETURNING {self.listed(READ)}"

    @cached_property
    def claim_locked(self) -> str:
        """MySQL, first half: read one job and lock it. Values: id, pending, running."""
        return (
            f"SELECT {self.listed(READ)} FROM {self.shape.table} WHERE {self._claimable} "
            "FOR UPDATE SKIP LOCKED"
        )

    @cached_property
    def claim_written(self) -> str:
        """MySQL, second half. Values: `begun_values`, id."""
        return f"UPDATE {self.shape.table} SET {self._begun()} WHERE {self.shape.columns['id']} = {MARK}"

    def claim_many(self, count: int, *, ending: bool = False) -> str:
        """PostgreSQL: find, begin and read up to `count` jobs.

        With `ending` another job is completed by the same statement, and so by the same commit.
        Values: those of `end` if `ending`; both halves, then that job's id; `begun_values`.
        """
        table, columns = self.shape.table, self.shape.columns
        read = f"{columns['id']} AS id, {columns['due']} AS due"
        read += f", {columns['priority']} AS priority" if self.shape.has("priority") else ", 0 AS priority"
        found = read, count, " FOR UPDATE SKIP LOCKED"
        # The halves look at rows as they were before this statement: the one that it ends is running there.
        but = f" AND {columns['id']} <> {MARK}" if ending else ""
        half, other = self._half(*found), self._half(*found, but)
        ended = f"ended AS ({self.end} RETURNING {columns['id']} AS id), " if ending else ""
        told = ", (SELECT count(*) FROM ended) AS ended" if ending else ""
        listed = self.listed(READ, "j.")
        claimed = (
            f"WITH {ended}p AS MATERIALIZED ({half}), r AS MATERIALIZED ({other}), "
            "f AS (SELECT r.*, 1 AS again FROM r UNION ALL SELECT p.*, 0 AS again FROM p), "
            f"c AS (SELECT id FROM f ORDER BY priority DESC, again DESC, due LIMIT {count}), "
            f"begun AS (UPDATE {table} AS j SET {self._begun('j.')} FROM c "
            f"WHERE j.{columns['id']} = c.id RETURNING {listed}) "
        )
        if not ending:
            return f"{claimed}SELECT * FROM begun"
        # A row even where nothing is begun: somebody wants to know whether the other was ended.
        return f"{claimed}SELECT begun.*{told} FROM (SELECT 1) AS one LEFT JOIN begun ON true"

    # Holding and ending -----------------------------------------------------------------------

    @cached_property
    def own(self) -> str:
        """Values: id, token, running."""
        columns = self.shape.columns
        return f"{columns['id']} = {MARK} AND {columns['token']} = {MARK} AND {columns['status']} = {MARK}"

    @cached_property
    def renew(self) -> str:
        """Let an attempt have more time. Values: ttl, id, token, running."""
        due = f"{self.shape.columns['due']} = {self.shape.clock.later}"
        return f"UPDATE {self.shape.table} SET {due} WHERE {self._not_locked(self.own)}"

    @cached_property
    def end(self) -> str:
        """End an attempt. Values: status, seconds until it is due, reason, id, token, running."""
        columns = self.shape.columns
        return (
            f"UPDATE {self.shape.table} SET {columns['status']} = {MARK}, "
            f"{columns['due']} = {self.shape.clock.later}, {columns['reason']} = {MARK} WHERE {self.own}"
        )

    @cached_property
    def give_back(self) -> str:
        """End an attempt as if it had not been begun. Values: pending, id, token, running."""
        columns = self.shape.columns
        return (
            f"UPDATE {self.shape.table} SET {columns['status']} = {MARK}, {columns['due']} = "
            f"{self.shape.clock.now}, {columns['attempts']} = {self.column('attempts')} - 1 WHERE {self.own}"
        )

    @cached_property
    def checkpoint(self) -> str:
        """Keep progress. Values: JSON, id, token, running."""
        return f"UPDATE {self.shape.table} SET {self.shape.columns['progress']} = {MARK} WHERE {self.own}"

    @property
    def is_two_steps(self) -> bool:
        """Whether a claim is a transaction of two statements."""
        return self.shape.dialect == MYSQL
