"""What is kept of a schedule: how far it has come, who was the last, and the runs of late.

    cursor   the last tick that was run or passed over; only later ones are run
    token    the newest fencing token that has written here; an older one is refused
    runs     the last 20, newest first

The state of a run goes from `running` to one of the others and stays there:

    done        it returned, or its command ended with status 0
    failed      it raised, or its command ended with another status
    timed out   it took longer than `at_most_for` and was stopped
    crashed     its host died or lost its lease: written by whoever had the lock next, or by the host itself

Every change is a pure function of the record before it; `book.py` writes it only if nobody has written
meanwhile.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Final

from fencelock.errors import BackendError, StaleToken

__all__ = [
    "CRASHED",
    "DONE",
    "FAILED",
    "RUNNING",
    "TIMED_OUT",
    "Record",
    "Run",
    "decoded",
    "encoded",
    "exit_status_of",
]

RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
TIMED_OUT: Final = "timed out"
CRASHED: Final = "crashed"
KEPT = 20
LONGEST_DETAIL = 200
LONGEST_HOST = 200


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one tick."""

    tick: int
    """The scheduled instant, in seconds since 1970."""
    token: int
    """The fencing token of the lease it ran under."""
    state: str
    """`running`, `done`, `failed`, `timed out` or `crashed`."""
    host: str
    """Where it ran: host and process."""
    attempt: int
    """1, or more if earlier attempts at this tick did not end well."""
    started: float
    """When it began, by the clock of the store that keeps the record."""
    ended: float | None = None
    """When it ended, or was found to have crashed."""
    detail: str = ""
    """Why it did not end well."""
    exit_status: int | None = None
    """What a command that failed exited with; for functions the `returncode` of an error that has one."""

    @property
    def has_failed(self) -> bool:
        """Whether it has ended, and not well: `failed`, `timed out` or `crashed`."""
        return self.state in {FAILED, TIMED_OUT, CRASHED}

    @property
    def at(self) -> datetime:
        """The scheduled instant, in UTC."""
        return datetime.fromtimestamp(self.tick, UTC)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, as JSON can carry it."""
        return {name: getattr(self, name) for name in FIELDS}


FIELDS = tuple(field.name for field in fields(Run))


@dataclass(frozen=True, slots=True)
class Record:
    """What is kept of one schedule."""

    name: str
    cursor: int
    token: int = 0
    runs: tuple[Run, ...] = ()

    @property
    def last(self) -> Run | None:
        """The newest run."""
        return self.runs[0] if self.runs else None

    def claimed(self, token: int, now: float) -> Record:
        """Return it as whoever has the lock now finds it: what another has left running has crashed."""
        self._check(token)
        last = self.last
        if last is None or last.state != RUNNING or last.token == token:
            return self
        crashed = replace(last, state=CRASHED, ended=now, detail="its host died or lost the lease")
        return replace(self, token=token, runs=(crashed, *self.runs[1:]))

    def begun(self, tick: int, token: int, host: str, now: float) -> Record:
        """Return it with a run of a tick added."""
        self._check(token)
        last = self.last
        attempt = last.attempt + 1 if last is not None and last.tick == tick else 1
        run = Run(tick, token, RUNNING, host[:LONGEST_HOST], attempt, now)
        cursor = max(self.cursor, tick)
        return replace(self, cursor=cursor, token=token, runs=(run, *self.runs)[:KEPT])

    def withdrawn(self, token: int, cursor: int) -> Record:
        """Return it as it was before a run that has done nothing. Raises `StaleToken`, as `ended` does."""
        last = self._run_of(token)
        return replace(self, cursor=cursor, runs=self.runs[1:]) if last.state == RUNNING else self

    def ended(
        self, token: int, state: str, detail: str, now: float, exit_status: int | None = None
    ) -> Record:
        """Return it with the run of that token ended. Raises `StaleToken` if another has written since."""
        last = self._run_of(token)
        if last.state != RUNNING:
            return self  # it timed out before it came to its end
        detail = detail[:LONGEST_DETAIL]
        over = replace(last, state=state, ended=now, detail=detail, exit_status=exit_status)
        return replace(self, runs=(over, *self.runs[1:]))

    def _run_of(self, token: int) -> Run:
        last = self.last
        if last is None or self.token != token or last.token != token:
            raise StaleToken(resource=self.name, token=token, newest=self.token)
        return last

    def _check(self, token: int) -> None:
        if token < self.token:
            raise StaleToken(resource=self.name, token=token, newest=self.token)


def exit_status_of(error: BaseException | None) -> int | None:
    """Return the exit status that an error has: `CalledProcessError`, and Django's `CommandError`."""
    status = getattr(error, "returncode", None)
    return status if isinstance(status, int) and 0 < status < 256 else None


def encoded(record: Record) -> str:
    """Return a record as it is kept."""
    runs = [run.as_dict() for run in record.runs]
    found = {"version": 1, "name": record.name, "cursor": record.cursor, "token": record.token, "runs": runs}
    return json.dumps(found, separators=(",", ":"))


def decoded(text: str, where: str) -> Record:
    """Return a record that was kept. Raises `BackendError` for what is none."""
    try:
        found: dict[str, Any] = json.loads(text)
        runs = tuple(Run(**run) for run in found["runs"])
        return Record(str(found["name"]), int(found["cursor"]), int(found["token"]), runs)
    except (ValueError, TypeError, KeyError) as error:
        raise BackendError(
            backend=where, detail="the record of a schedule cannot be read: delete it"
        ) from error
