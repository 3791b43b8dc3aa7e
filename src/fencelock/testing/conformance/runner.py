"""Running checks: several at a time, each on a thread and an event loop of its own.

Most checks wait most of the time, so many run side by side; those that count threads or
measure closely run alone, afterwards. A check that does not end in time has failed, and the
result says what it was doing. Nothing is left out in silence: what cannot apply is a result.
A failure is final, however busy the machine is. Only a check that is declared to be about time runs
once more, alone, if something in it was late; its result says so.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fencelock.core.ports import Backend
from fencelock.errors import ConfigurationError
from fencelock.testing.conformance.declared import expect_undeclared
from fencelock.testing.conformance.expect import Late
from fencelock.testing.conformance.loops import run_async
from fencelock.testing.conformance.registry import Check, checks
from fencelock.testing.conformance.target import Target
from fencelock.testing.conformance.world import World

__all__ = ["FLAVOURS", "Result", "Summary", "run"]

Outcome = Literal["passed", "failed", "not applicable"]
FLAVOURS = ("blocking", "asyncio")
PARALLEL = 12
"""Checks at a time."""
PARALLEL_IF_SLOW = 40
"""The same where a lease lasts for `SLOW` seconds at least: there they mostly wait."""
SLOW = 5.0
STUCK = 20.0
"""Seconds after its time limit at which a check is given up though its loop does not answer."""
THEMES = str(Path(__file__).parent / "themes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one check in one flavour."""

    check: Check
    flavour: str
    outcome: Outcome
    seconds: float
    detail: str = ""
    """Why it failed, why it does not apply, or what was checked instead."""
    traceback: str = ""
    """Where it failed, with the frames of the backend."""
    is_late: bool = False
    """It failed because something was late."""
    at_first: str = ""
    """What was late at first, in a check about time: this is the result of its repetition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What became of all of them."""

    results: Sequence[Result]
    seconds: float

    @property
    def passed(self) -> int:
        """How many passed."""
        return self._count("passed")

    @property
    def failed(self) -> int:
        """How many failed."""
        return self._count("failed")

    @property
    def repeated(self) -> int:
        """How many checks about time were repeated, since something was late at first."""
        return sum(bool(result.at_first) for result in self.results)

    @property
    def not_applicable(self) -> int:
        """How many cannot apply to this backend; each result says why."""
        return self._count("not applicable")

    def _count(self, outcome: Outcome) -> int:
        return sum(result.outcome == outcome for result in self.results)


def run(
    target: str | Callable[[], Backend],
    *,
    flavours: Sequence[str] = FLAVOURS,
    only: Iterable[str] | None = None,
    parallel: int | None = None,
    on_result: Callable[[Result], object] | None = None,
) -> Summary:
    """Run the checks against a URL, or against backends that a function makes.

    `only` names the checks to run, `parallel` how many at a time. `on_result` is told of each
    result as it comes, on the calling thread.
    """
    started = time.monotonic()
    chosen = _chosen(only)
    results: list[Result] = []

    def note(result: Result) -> None:
        results.append(result)
        if on_result is not None:
            on_result(result)

    with _quiet(), closing(Target(target)) as subject:
        if parallel is None:
            parallel = PARALLEL if subject.guarantees.min_ttl < SLOW else PARALLEL_IF_SLOW
        jobs = [(check, flavour) for check in chosen for flavour in flavours]
        together = [job for job in jobs if not job[0].alone]
        alone = [job for job in jobs if job[0].alone]
        if parallel <= 1:
            alone, together = together + alone, []
        late: dict[tuple[Check, str], Result] = {}

        def judge(result: Result) -> None:
            if result.is_late and result.check.timing:
                late[result.check, result.flavour] = result
            else:
                note(result)

        def judge_again(result: Result) -> None:
            note(replace(result, at_first=late[result.check, result.flavour].detail))

        _run_all(Pass(subject, parallel, judge), together)
        _run_all(Pass(subject, 1, judge), alone)
        _run_all(Pass(subject, 1, judge_again), list(late))
    return Summary(results=results, seconds=time.monotonic() - started)


def _chosen(only: Iterable[str] | None) -> list[Check]:
    everything = {check.name: check for check in checks()}
    if only is None:
        return list(everything.values())
    names = list(only)
    unknown = sorted(set(names) - set(everything))
    if unknown:
        raise ConfigurationError(f"only={unknown!r} names no check: see checks()")
    return [everything[name] for name in dict.fromkeys(names)]


@contextmanager
def _quiet() -> Iterator[None]:
    """Losing and dropping leases is what many checks are about: no need to warn of it on the terminal."""
    handler = logging.NullHandler()
    logger = logging.getLogger("fencelock")
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the lease on .* was dropped", ResourceWarning)
            yield
    finally:
        logger.removeHandler(handler)


@dataclass(frozen=True, slots=True)
class Pass:
    """One way of going through checks."""

    target: Target
    parallel: int
    note: Callable[[Result], object]

    def limit(self, check: Check) -> float:
        """Return the seconds that a check may take."""
        return check.limit + 10 * self.target.guarantees.min_ttl


def _run_all(way: Pass, jobs: Sequence[tuple[Check, str]]) -> None:
    results: queue.Queue[Result] = queue.Queue()
    waiting = list(reversed(jobs))
    running: dict[tuple[str, str], tuple[Check, float]] = {}

    def work(check: Check, flavour: str) -> None:
        results.put(_result(way, check, flavour))

    while waiting or running:
        while waiting and len(running) < way.parallel:
            check, flavour = waiting.pop()
            running[check.name, flavour] = (check, time.monotonic())
            threading.Thread(target=work, args=(check, flavour), name="conform-check", daemon=True).start()
        try:
            result = results.get(timeout=1.0)
            if running.pop((result.check.name, result.flavour), None) is not None:
                way.note(result)
        except queue.Empty:
            for stuck in _stuck(way, running):
                del running[stuck.check.name, stuck.flavour]
                way.note(stuck)


def _stuck(way: Pass, running: dict[tuple[str, str], tuple[Check, float]]) -> list[Result]:
    now = time.monotonic()
    return [
        Result(
            check=check,
            flavour=flavour,
            outcome="failed",
            seconds=now - begun,
            detail="it does not end, not even after its time limit: its event loop is blocked",
        )
        for (_, flavour), (check, begun) in running.items()
        if now - begun > way.limit(check) + STUCK
    ]


def _result(way: Pass, check: Check, flavour: str) -> Result:
    started = time.monotonic()
    outcome: Outcome = "passed"
    where, is_late = "", False
    detail = _not_applicable(way.target, check)
    if detail:
        outcome = "not applicable"
    else:
        try:
            detail = run_async(_perform(way, check, flavour))
        except BaseException as error:
            outcome, detail, is_late = "failed", _told(error), isinstance(error, Late)
            where = "".join(traceback.format_exception(error))
    return Result(
        check=check,
        flavour=flavour,
        outcome=outcome,
        seconds=time.monotonic() - started,
        detail=detail,
        traceback=where,
        is_late=is_late,
    )


def _not_applicable(target: Target, check: Check) -> str:
    if check.relayed and target.unrelayed:
        return target.unrelayed
    if not check.processes:
        return ""
    if target.url is None:
        return "needs other processes, and they need a URL to find this backend"
    if check.processes == "many" and target.guarantees.scope == "process":
        return "needs other processes, and this backend reaches no further than its own"
    return ""


async def _perform(way: Pass, check: Check, flavour: str) -> str:
    world = World(way.target, flavour, exact=way.parallel == 1)
    undeclared = check.needs - way.target.capabilities
    limit = way.limit(check)
    detail = ""
    try:
        async with asyncio.timeout(limit) as clock:
            if undeclared:
                detail = await expect_undeclared(world, undeclared)
            else:
                await check.body(world)
    except BaseException as error:
        doing = world.doing()
        await world.abort()
        if clock.expired():
            raise Late(f"not done within {limit:g}s; under way: {doing}") from error
        raise
    await world.close()
    await world.expect_nothing_left()
    return detail


def _told(error: BaseException) -> str:
    """Return one line on what went wrong and where in the check that was."""
    frames = traceback.extract_tb(error.__traceback__)
    if error.__cause__ is not None:
        frames += traceback.extract_tb(error.__cause__.__traceback__)
    where = [frame for frame in frames if frame.filename.startswith(THEMES)]
    place = f" ({Path(where[-1].filename).name}:{where[-1].lineno})" if where else ""
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    return f"{kind}{error}{place}"
