"""The steps of a worker on its table: each a statement, or a short transaction, at one door."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from fencelock.connections import Door, Row
from fencelock.errors import LeaseLost, StaleToken
from fencelock.jobs.shape import Shape
from fencelock.jobs.statements import Statements

__all__ = [
    "Candidate",
    "Claimed",
    "Ending",
    "checkpoint",
    "claim",
    "claim_many",
    "end",
    "ended_as",
    "find",
    "give_back",
    "own_or_raise",
    "renew",
]


class Candidate(NamedTuple):
    """A job that was to be done when it was looked for."""

    id: Any
    kind: str
    priority: int = 0
    again: bool = False
    """It says running, and its attempt is over: whoever had it is gone."""

    @property
    def name(self) -> str:
        """The name of its lock."""
        return f"{self.id}#{self.kind}"


class Claimed(NamedTuple):
    """A job whose attempt has begun: what its row says."""

    id: Any
    kind: str
    token: int
    attempt: int
    payload: Any
    progress: Any
    unreadable: str | None = None
    """Why the payload cannot be read."""

    @property
    def name(self) -> str:
        """The name of its lock."""
        return f"{self.id}#{self.kind}"


class Ending(NamedTuple):
    """How an attempt ends: with which status, when the job is due again, and why."""

    status: str
    after: float = 0.0
    reason: str | None = None


async def find(door: Door, say: Statements, count: int) -> list[Candidate]:
    """Return jobs that are to be done: the highest priority first, then what somebody has left behind."""
    found = await door.run(say.poll(count), say.half_values)
    candidates = [
        Candidate(
            row["id"],
            str(row.get("kind", say.shape.kind)),
            int(row.get("priority") or 0),
            bool(row["again"]),
        )
        for row in found.rows
    ]
    return sorted(candidates, key=lambda candidate: (-candidate.priority, not candidate.again))


async def claim(
    door: Door, say: Statements, wanted: Candidate, floor: int, ttl: float, worker: str
) -> Claimed | None:
    """Begin an attempt, with a token that is higher than the last and not below `floor`.

    `None` if there is nothing to begin any more, or if somebody has the row locked.
    """
    id_, begun = wanted.id, say.begun_values(floor, ttl, worker)
    if not say.is_two_steps:
        row = (await door.run(say.claim, [*begun, id_, *say.live_values])).row
        return None if row is None else claimed(row, say.shape)
    row = (await door.run(say.claim_locked, [id_, *say.live_values])).row
    if row is None:
        return None
    await door.run(say.claim_written, [*begun, id_])
    row = {**row, "token": max(int(row["token"]) + 1, floor), "attempts": int(row["attempts"]) + 1}
    return claimed(row, say.shape)


async def claim_many(
    door: Door, say: Statements, count: int, ttl: float, worker: str, done: Claimed | None = None
) -> tuple[list[Claimed], bool]:
    """Find jobs and begin attempts, in one statement of PostgreSQL; `done` is completed by the same one.

    Returns the attempts, and whether `done` was completed.
    """
    begun = say.begun_values(0, ttl, worker)
    if done is None:
        values = [*say.half_values, *begun]
    else:
        values = [*_end_values(say.shape, done, Ending("done")), *say.half_values, done.id, *begun]
    rows = (await door.run(say.claim_many(count, ending=done is not None), values)).rows
    ended = bool(rows and rows[0].get("ended"))
    return [claimed(row, say.shape) for row in rows if row["id"] is not None], ended


def claimed(row: Row, shape: Shape) -> Claimed:
    payload, wrong = decoded(row["payload"])
    progress, _ = decoded(row.get("progress"))
    kind = str(row.get("kind", shape.kind))
    return Claimed(row["id"], kind, int(row["token"]), int(row["attempts"]), payload, progress, wrong)


def decoded(stored: Any) -> tuple[Any, str | None]:
    """Return what a column of JSON says, or why it cannot be read."""
    if stored is None or not isinstance(stored, str | bytes | bytearray | memoryview):
        return stored, None
    try:
        return json.loads(bytes(stored) if isinstance(stored, memoryview) else stored), None
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        return None, f"the payload cannot be read: {error}"


async def renew(door: Door, say: Statements, held: Sequence[Claimed], ttl: float) -> list[Claimed]:
    """Let attempts have `ttl` seconds from now on. Returns those that are over: taken, ended or deleted."""
    over = []
    for job in held:
        own = [job.id, job.token, say.shape.statuses["running"]]
        if (await door.run(say.renew, [ttl, *own])).touched != 1 and await _is_over(door, say, job):
            over.append(job)
    return over


async def end(door: Door, say: Statements, job: Claimed, ending: Ending) -> bool:
    """End an attempt; say whether it was still the last one, and running."""
    return (await door.run(say.end, _end_values(say.shape, job, ending))).touched == 1


async def ended_as(door: Door, say: Statements, job: Claimed) -> str | None:
    """Return the status of a job whose last attempt this is: the answer to its `end` may have been lost."""
    row = (await door.run(say.look, [job.id])).row
    return say.shape.word(row["status"]) if row is not None and int(row["token"]) == job.token else None


async def give_back(door: Door, say: Statements, job: Claimed) -> bool:
    """End an attempt as if it had not been begun."""
    words = say.shape.statuses
    values = [words["pending"], job.id, job.token, words["running"]]
    return (await door.run(say.give_back, values)).touched == 1


async def checkpoint(door: Door, say: Statements, job: Claimed, progress: str) -> None:
    """Keep progress. Raises `StaleToken` if the attempt is over."""
    done = await door.run(say.checkpoint, [progress, job.id, job.token, say.shape.statuses["running"]])
    if done.touched != 1:
        await own_or_raise(door, say, job)


async def own_or_raise(door: Door, say: Statements, job: Claimed) -> None:
    """Raise what has become of an attempt that cannot be written any more."""
    row = (await door.run(say.look, [job.id])).row
    if row is None:
        raise LeaseLost(name=job.name, token=job.token, reason="the job was deleted")
    if int(row["token"]) != job.token:
        raise StaleToken(resource=job.name, token=job.token, newest=int(row["token"]))
    status = say.shape.word(row["status"])
    if status != "running":
        raise LeaseLost(name=job.name, token=job.token, reason=f"the job is {status}")


async def _is_over(door: Door, say: Statements, job: Claimed) -> bool:
    try:
        await own_or_raise(door, say, job)
    except (LeaseLost, StaleToken):
        return True
    return False  # somebody had the row locked


def _end_values(shape: Shape, job: Claimed, ending: Ending) -> list[Any]:
    reason = None if ending.reason is None else ending.reason[: shape.longest_reason]
    words = shape.statuses
    return [words[ending.status], ending.after, reason, job.id, job.token, words["running"]]
