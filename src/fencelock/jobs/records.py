"""What is seen of jobs from outside, and what is asked for: counts, lists, another attempt, an end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fencelock.connections import MARK, MYSQL, POSTGRESQL, Answer, Door
from fencelock.errors import ConfigurationError
from fencelock.jobs.shape import ENDED, STATUSES, Shape
from fencelock.jobs.statements import Statements
from fencelock.jobs.steps import decoded
from fencelock.names import check_limit, shown

__all__ = ["AT_ONCE", "JobState", "cancel", "counts", "get", "ls", "purge", "retry"]

AT_ONCE = 1000
SHOWN = (
    "id",
    "kind",
    "status",
    "attempts",
    "token",
    "priority",
    "reason",
    "payload",
    "progress",
    "key",
    "worker",
)


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as it stands in the table.

    `due_in` is in how many seconds it may be begun (pending) or is given up (running); what is negative has
    passed, and for a job that has ended says when. `age` is since it was added, where the table knows.
    """

    id: Any
    kind: str
    status: str
    attempts: int
    token: int
    due_in: float
    priority: int
    reason: str | None
    payload: Any
    progress: Any
    key: str | None
    worker: str | None
    age: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can carry it, but for an id that is not a number or a string."""
        return asdict(self)


# Looking ----------------------------------------------------------------------------------------


async def counts(door: Door, shape: Shape) -> dict[str, int]:
    """Return how many jobs there are of each status."""
    status = shape.columns["status"]
    rows = (await door.run(f"SELECT {status} AS s, count(*) AS n FROM {shape.table} GROUP BY {status}")).rows
    found = dict.fromkeys(STATUSES, 0)
    for row in rows:
        word = shape.word(row["s"])
        found[word] = found.get(word, 0) + int(row["n"])
    return found


async def ls(door: Door, shape: Shape, status: str | None, kind: str | None, limit: int) -> list[JobState]:
    """Return jobs, those that were due first, first."""
    check_limit(limit)
    conditions, values = [], list[Any]()
    if status is not None:
        if status not in STATUSES:
            raise ConfigurationError(f"status={shown(status)} is none of {', '.join(STATUSES)}")
        conditions.append(f"{shape.columns['status']} = {MARK}")
        values.append(shape.statuses[status])
    if kind is not None and shape.kind is None:
        conditions.append(f"{shape.columns['kind']} = {MARK}")
        values.append(kind)
    elif kind not in {None, shape.kind}:
        return []
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    found = await _seen(
        door, shape, f"{where}ORDER BY {shape.columns['due']}, {shape.columns['id']} LIMIT {limit}", values
    )
    return [_state(row, shape) for row in found.rows]


async def get(door: Door, shape: Shape, id_: Any) -> JobState | None:
    """Return one job."""
    row = (await _seen(door, shape, f"WHERE {shape.columns['id']} = {MARK}", [shape.own_id(id_)])).row
    return None if row is None else _state(row, shape)


async def _seen(door: Door, shape: Shape, rest: str, values: list[Any]) -> Answer:
    listed = Statements(shape).listed(SHOWN)
    times = f"{shape.clock.seconds.format(shape.columns['due'])} AS since_due"
    if shape.made is not None:
        times += f", {shape.made.seconds.format(shape.columns['created'])} AS age"
    return await door.run(f"SELECT {listed}, {times} FROM {shape.table} {rest}", values)


def _state(row: dict[str, Any], shape: Shape) -> JobState:
    payload, wrong = decoded(row["payload"])
    age, since = row.get("age"), row["since_due"]
    return JobState(
        id=row["id"],
        kind=str(row.get("kind", shape.kind)),
        status=shape.word(row["status"]),
        attempts=int(row["attempts"]),
        token=int(row["token"]),
        due_in=0.0 if since is None else -float(since),
        priority=int(row.get("priority") or 0),
        reason=row["reason"],
        payload=str(row["payload"]) if wrong else payload,
        progress=decoded(row.get("progress"))[0],
        key=row.get("unique_key"),
        worker=row.get("worker"),
        age=None if age is None else float(age),
    )


# Changing ---------------------------------------------------------------------------------------


async def retry(door: Door, shape: Shape, id_: Any) -> None:
    """Let a job that is dead or cancelled begin anew, now. Raises `ConfigurationError` for others."""
    await _moved(
        door,
        shape,
        id_,
        {"dead", "cancelled", "pending"},
        {
            "running": "is running: wait until it ends, or cancel it first",
            "done": "is done: enqueue it again",
        },
        f"{shape.columns['status']} = {MARK}, {shape.columns['attempts']} = 0, "
        f"{shape.columns['reason']} = NULL, {shape.columns['due']} = {shape.clock.now}",
        "pending",
    )


async def cancel(door: Door, shape: Shape, id_: Any) -> None:
    """End a job that has not ended; one that is running cannot complete any more."""
    await _moved(
        door,
        shape,
        id_,
        {"pending", "running"},
        {"done": "is done already", "dead": "is dead already", "cancelled": "is cancelled already"},
        f"{shape.columns['status']} = {MARK}, {shape.columns['due']} = {shape.clock.now}",
        "cancelled",
    )


async def _moved(
    door: Door, shape: Shape, id_: Any, of: set[str], otherwise: dict[str, str], changes: str, to: str
) -> None:
    columns = shape.columns
    words = [shape.statuses[word] for word in sorted(of)]
    done = await door.run(
        f"UPDATE {shape.table} SET {changes} WHERE {columns['id']} = {MARK} "
        f"AND {columns['status']} IN ({', '.join([MARK] * len(words))})",
        [shape.statuses[to], shape.own_id(id_), *words],
    )
    if done.touched == 1:
        return
    found = await get(door, shape, id_)
    if found is None:
        raise ConfigurationError(f"there is no job {shown(id_)} in {shown(shape.shown_table)}")
    if found.status not in of:  # otherwise it has been changed just now to what it was to be
        raise ConfigurationError(f"job {shown(id_)} {otherwise.get(found.status, 'is ' + found.status)}")


async def purge(door: Door, shape: Shape, older_than: float, limit: int = AT_ONCE) -> int:
    """Delete jobs that ended so many seconds ago; at most `limit`. Returns how many."""
    check_limit(limit)
    columns = shape.columns
    words = [shape.statuses[word] for word in ENDED]
    ended = f"{columns['status']} IN ({', '.join([MARK] * len(words))})"
    old = f"{ended} AND {columns['due']} <= {shape.clock.later}"
    values = [*words, -older_than]
    if door.dialect == MYSQL:
        chosen = f"{old} LIMIT {limit}"
    else:
        latest = " FOR UPDATE SKIP LOCKED" if door.dialect == POSTGRESQL else ""
        found = f"SELECT {columns['id']} FROM {shape.table} WHERE {old} LIMIT {limit}{latest}"
        chosen = f"{columns['id']} IN ({found})"
    return (await door.run(f"DELETE FROM {shape.table} WHERE {chosen}", values)).touched
