"""What is to be done now: a pure function of the record, the clocks and the policy.

A tick is due when this host's wall clock has reached it and it is later than the record's cursor. Nothing
else is asked of wall clocks, so what their errors can do is bounded:

- *fast*: the host runs a tick early, by its own error. The cursor stands at that tick then, so no other host
  runs it again; and the cursor stands at no later one, so none is skipped. A host that is ahead of the record
  store's clock by more than `SKEW` is held back to that: it cannot run next year's ticks and have all hosts
  wait for a year.
- *slow*: the host finds the cursor at the tick or beyond it, and does nothing. If it is the only one left,
  ticks come late by its error, and all of them come.
- *set back or forward*: the cursor never falls, so a tick is not run again; those that were jumped over are
  missed ones, and `catch_up` decides.

A run that crashed is due again when `at_most_for` has passed since it began, by the record store's clock. A
store that has none (etcd, Consul, ZooKeeper) is judged by this host's monotonic clock, from when it first saw
that run: later than by a common clock, never sooner.

A caller may name a run, by its token, that is to be run again if it did not end well. Once another host has
begun to, the last run has another token: of many that ask for the same run again, one gets it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fencelock.schedule.records import CRASHED, RUNNING, Record, Run
from fencelock.schedule.ticks import Times

__all__ = ["GRACE", "SKEW", "AfterCrash", "CatchUp", "Moment", "Plan", "Policy", "plan"]

SKEW = 60.0
"""Seconds by which a host's wall clock may be ahead of the record store's."""
GRACE = 60.0
"""Seconds for which a tick counts as new: with `catch_up="none"` an older one is not run."""
ATTEMPTS = 3
"""A tick that has crashed so often is left alone: it may be what kills its hosts."""
FAR = 3600.0

CatchUp = Literal["last", "all", "none"]
AfterCrash = Literal["again", "skip"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What was said of a schedule when it was made."""

    times: Times
    catch_up: CatchUp = "last"
    catch_up_limit: int = 100
    after_crash: AfterCrash = "again"
    at_least_for: float = 0.0
    at_most_for: float | None = None
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class Moment:
    """What the clocks say."""

    wall: float
    """This host's idea of the time."""
    store: float | None
    """The record store's, if it has one."""
    since_crash: float
    """Seconds since the last run began, as far as anybody can tell."""

    @property
    def until(self) -> float:
        """The instant up to which ticks are due."""
        return self.wall if self.store is None else min(self.wall, self.store + SKEW)


@dataclass(frozen=True, slots=True)
class Plan:
    """The tick to run now, if any; else when to look again."""

    tick: int | None
    wait: float
    is_unclear: bool = False
    """Whether somebody seems to be at it: who has the lock knows better."""
    last: Run | None = None
    """The newest run, where the record was read for this plan."""

    @property
    def is_worth_a_try(self) -> bool:
        """Whether to try the lock."""
        return self.tick is not None or self.is_unclear


def plan(policy: Policy, record: Record, moment: Moment, retry: int | None = None) -> Plan:
    """Say what is to be done now; `retry` is the token of a run to run again, unless it ended well."""
    until = moment.until
    most = policy.catch_up_limit if policy.catch_up == "all" else 1
    due = policy.times.missed(record.cursor, until, most)
    if policy.catch_up == "none":
        due = [tick for tick in due if until - tick <= GRACE]
    upcoming = policy.times.after(max(record.cursor, until))
    wait = FAR if upcoming is None else max(0.0, upcoming - until)
    last = record.last
    if not due and last is not None and last.token == retry and last.has_failed:
        return Plan(last.tick, 0.0)
    left = _until_again(policy, record, moment)
    if left is not None and (not due or policy.catch_up == "all"):
        assert last is not None
        return Plan(last.tick, 0.0) if left <= 0 else Plan(None, left if due else min(left, wait))
    is_unclear = last is not None and last.state == RUNNING
    if due:
        return Plan(due[0] if policy.catch_up == "all" else due[-1], 0.0, is_unclear)
    return Plan(None, wait, is_unclear)


def _until_again(policy: Policy, record: Record, moment: Moment) -> float | None:
    """Return in how many seconds a run that crashed is due again; `None` if never."""
    last = record.last
    if last is None or last.state != CRASHED or last.tick != record.cursor or last.attempt >= ATTEMPTS:
        return None
    if policy.after_crash == "skip" or policy.at_most_for is None:
        return None
    return policy.at_most_for - moment.since_crash
