"""Every backend passes every check, in both flavours; and the checks notice what is broken.

One row per scheme. A row is run as a whole, many checks at a time, for the first of its results that is
asked for; the others are read from what that wrote. Each result is a test of its own, and so is the end of a
row: that its servers stop, and that nothing is left on them. `make test` gives a row to one worker; where it
is dealt out to several, they wait for the first.

A row that is another way to a backend with a row of its own has one check in eight, in turn for the one and
the other flavour, and starts its servers once for both. `FENCELOCK_CHECKS=all` runs all of them.
"""

from __future__ import annotations

import fcntl
import json
import os
import warnings
from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from fencelock.backends import OWN, known_schemes
from fencelock.backends.base import Busy, Grant, Request
from fencelock.errors import ConfigurationError
from fencelock.guarantees import Guarantees
from fencelock.testing.conformance import FLAVOURS, NUMBERED, PROMISES, Check, checks, run
from fencelock.testing.conformance.expect import HANGING

from .broken import BACKENDS, CLIENTS, Broken, GrantsToEverybody
from .rows import ALIASES, ROWS, UNRELAYED
from .troubles import TROUBLES, silent

CHECKS = {check.name: check for check in checks()}
ALL = os.environ.get("FENCELOCK_CHECKS") == "all"
IN_ALIASES = 8
END = "end"
PASSED = {"outcome": "passed", "detail": "", "at_first": ""}


def is_run(scheme: str, flavour: str, number: int) -> bool:
    """Whether a check is run: one in `IN_ALIASES` on another way to a backend, for one flavour."""
    turn, rest = divmod(number, IN_ALIASES)
    return ALL or scheme not in ALIASES or (rest == 0 and flavour == FLAVOURS[turn % len(FLAVOURS)])


def cases(schemes: Iterable[str], flavours: Iterable[str] = FLAVOURS) -> list[Any]:
    """Return the checks of these rows."""
    return [
        pytest.param(scheme, flavour, check, id=f"{scheme}-{flavour}-{check.name}")
        for scheme in schemes
        for flavour in flavours
        for number, check in enumerate(CHECKS.values())
        if is_run(scheme, flavour, number)
    ]


def ends(schemes: Iterable[str]) -> list[Any]:
    """Return the ends of these rows."""
    return [
        pytest.param(scheme, flavour, id=f"{scheme}-{flavour}-{END}")
        for scheme in schemes
        for flavour in FLAVOURS
    ]


class Rows:
    """The results of whole rows, shared by all workers through files."""

    def __init__(self, folder: Path, wanted: dict[tuple[str, str], list[str]]) -> None:
        self.folder = folder
        self.wanted = wanted

    def result(self, scheme: str, flavour: str, name: str) -> dict[str, Any]:
        """Return one result; run the row for it if nobody has."""
        flavours = FLAVOURS if scheme in ALIASES else (flavour,)
        file = self.folder / f"conformance-{'-'.join((scheme, *flavours))}.json"
        with file.with_suffix(".lock").open("w") as latch:
            fcntl.flock(latch, fcntl.LOCK_EX)
            if not file.exists():
                file.write_text(json.dumps(self._run(scheme, flavours, file.with_suffix(""))))
        results = json.loads(file.read_text())
        found: dict[str, Any] = results.get(f"{flavour}-{name}") or {"outcome": "failed", **results[END]}
        return found

    def _run(self, scheme: str, flavours: Iterable[str], folder: Path) -> dict[str, Any]:
        folder.mkdir()
        wanted = {
            flavour: self.wanted[scheme, flavour] for flavour in flavours if (scheme, flavour) in self.wanted
        }
        results: dict[str, Any] = {END: PASSED}
        try:
            with ROWS[scheme](folder) as url:
                for flavour, names in wanted.items():
                    for result in run(url, flavours=[flavour], only=names).results:
                        results[f"{flavour}-{result.check.name}"] = {
                            "outcome": result.outcome,
                            "detail": f"{result.detail}\n{result.traceback}".rstrip(),
                            "at_first": result.at_first,
                        }
        except Exception as error:  # what has no result yet gets this one
            results[END] = {"outcome": "failed", "detail": repr(error), "at_first": ""}
        return results | {f"{flavour}-{END}": results[END] for flavour in flavours}


@pytest.fixture(scope="session")
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        folder = folder.parent  # shared by all workers
    wanted: dict[tuple[str, str], list[str]] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.originalname.startswith("test_conforms"):
            values = item.callspec.params
            names = wanted.setdefault((values["scheme"], values["flavour"]), [])
            if "check" in values:
                names.append(values["check"].name)
    for (scheme, flavour), names in wanted.items():
        if not names:  # only the end was asked for, and it is the end of something
            names += [check.name for *_, check in map(attrgetter("values"), cases([scheme], [flavour]))]
    return Rows(folder, wanted)


class RepeatedWarning(UserWarning):
    """In a check about time something was late; its repetition is the verdict."""


@pytest.mark.filterwarnings("default::conformance.test_conformance.RepeatedWarning")
@pytest.mark.parametrize(
    ("scheme", "flavour", "check"), cases(scheme for scheme in ROWS if scheme not in ALIASES)
)
def test_conforms(rows: Rows, scheme: str, flavour: str, check: Check) -> None:
    judge(rows, scheme, flavour, check)


@pytest.mark.filterwarnings("default::conformance.test_conformance.RepeatedWarning")
@pytest.mark.parametrize(("scheme", "flavour", "check"), cases(ALIASES))
def test_conforms_too(rows: Rows, scheme: str, flavour: str, check: Check) -> None:
    judge(rows, scheme, flavour, check)


@pytest.mark.parametrize(("scheme", "flavour"), ends(scheme for scheme in ROWS if scheme not in ALIASES))
def test_conforms_to_the_end(rows: Rows, scheme: str, flavour: str) -> None:
    result = rows.result(scheme, flavour, END)
    assert result["outcome"] == "passed", result["detail"]


@pytest.mark.parametrize(("scheme", "flavour"), ends(ALIASES))
def test_conforms_too_to_the_end(rows: Rows, scheme: str, flavour: str) -> None:
    result = rows.result(scheme, flavour, END)
    assert result["outcome"] == "passed", result["detail"]


def judge(rows: Rows, scheme: str, flavour: str, check: Check) -> None:
    result = rows.result(scheme, flavour, check.name)
    if result["at_first"]:
        warnings.warn(RepeatedWarning(result["at_first"]), stacklevel=1)
    assert result["outcome"] != "failed", result["detail"]
    applies = not (check.relayed and scheme in UNRELAYED) and (scheme, check.processes) != ("memory", "many")
    assert applies == (result["outcome"] != "not applicable"), result["detail"]


def test_every_alias_is_one() -> None:
    for alias, scheme in ALIASES.items():
        package, other = (OWN[one.partition("@")[0]].partition(":")[0] for one in (alias, scheme))
        assert package.startswith(other)


def test_every_scheme_has_a_row() -> None:
    assert sorted({row.partition("@")[0] for row in ROWS}) == known_schemes()


def test_there_are_enough_checks() -> None:
    assert len(CHECKS) >= 60


def test_every_numbered_promise_is_covered() -> None:
    assert sorted(NUMBERED.values()) == list(range(1, 14))
    assert {check.promise for check in CHECKS.values()} == PROMISES


def test_every_check_says_what_it_shows() -> None:
    for check in CHECKS.values():
        assert check.doc.endswith("."), check.name
        assert len(check.doc) <= 120, check.name
    assert len({check.doc for check in CHECKS.values()}) == len(CHECKS)


def test_known_bugs_of_other_libraries_are_looked_for() -> None:
    assert sum(bool(check.bug) for check in CHECKS.values()) >= 20


def test_checks_can_be_chosen() -> None:
    name = "tokens_are_plain_integers"
    seen: list[str] = []
    summary = run("memory://", only=[name], on_result=lambda result: seen.append(result.check.name))
    assert (summary.passed, summary.failed, summary.not_applicable) == (2, 0, 0)
    assert seen == [name, name]
    with pytest.raises(ConfigurationError, match="no_such_check"):
        run("memory://", only=["no_such_check"])


def expect_caught(broken: type[Broken], subject: type[Broken]) -> None:
    """Fail unless every check that is to notice the mistake does so, in both flavours."""
    try:
        results = run(subject.factory(), only=broken.caught_by).results
    finally:
        subject.clean_up()
    caught = {(result.check.name, result.flavour) for result in results if result.outcome == "failed"}
    assert caught == {(name, flavour) for name in broken.caught_by for flavour in FLAVOURS}


@pytest.mark.parametrize("broken", BACKENDS, ids=lambda broken: broken.__name__)
def test_a_broken_backend_is_caught(broken: type[Broken]) -> None:
    expect_caught(broken, broken)


@pytest.mark.parametrize("trouble", sorted(TROUBLES if ALL else TROUBLES.keys() - {"loaded"}))
@pytest.mark.parametrize(
    "broken", BACKENDS if ALL else BACKENDS[::IN_ALIASES], ids=lambda broken: broken.__name__
)
def test_a_broken_backend_is_caught_on_a_machine_in_trouble(broken: type[Broken], trouble: str) -> None:
    """Nothing excuses a broken promise.

    `FENCELOCK_CHECKS=all` breaks all of them, also under a load that would be in the way of other tests here.
    """
    with TROUBLES[trouble](broken) as subject:
        expect_caught(broken, subject)


@pytest.mark.parametrize("mistake", CLIENTS)
def test_a_broken_client_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it, caught_by = CLIENTS[mistake]
    with break_it(monkeypatch):
        summary = run("memory://", only=caught_by)
    assert [result.outcome for result in summary.results] == ["failed"] * len(summary.results)


class Tokenless(Broken):
    """A backend that gives the first grant no token."""

    times = 1

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        answer = await super().acquire(request, wait=wait, deadline=deadline)
        if Tokenless.times > 0 and isinstance(answer, Grant):
            Tokenless.times -= 1
            return Grant(0, answer.validity)
        return answer


def test_a_promise_that_was_broken_once_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokenless, "times", 1)
    [result] = run(Tokenless.factory(), only=["tokens_are_plain_integers"], flavours=["asyncio"]).results
    assert (result.outcome, result.at_first) == ("failed", "")


def test_a_store_that_did_not_answer_once_is_a_failure() -> None:
    with silent(Broken) as subject:
        [result] = run(subject.factory(), only=["lock_has_one_holder"], flavours=["asyncio"]).results
    assert (result.outcome, result.at_first) == ("failed", "")
    assert "no answer in time" in result.detail
    assert "in acquire" in result.traceback, "the frames of the backend are told"


class LateOnce(Broken):
    """A backend whose first grant comes late."""

    times = 1

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        if LateOnce.times > 0:
            LateOnce.times -= 1
            await self.runtime.sleep(HANGING + 1)
        return await super().acquire(request, wait=wait, deadline=deadline)


@pytest.mark.parametrize(
    ("name", "outcome", "again"),
    [("lost_acquire_reply_is_recognised", "passed", True), ("readers_hold_together", "failed", False)],
)
def test_only_what_is_about_time_may_be_late_once(
    name: str, outcome: str, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LateOnce, "times", 1)
    summary = run(LateOnce.factory(), only=[name], flavours=["asyncio"])
    [result] = summary.results
    assert (result.outcome, summary.repeated) == (outcome, int(again))
    assert "not done within" in (result.at_first if again else result.detail)


def test_a_promise_that_a_check_about_time_sees_broken_is_final() -> None:
    name = "try_acquire_never_waits"
    assert CHECKS[name].timing
    for result in run(GrantsToEverybody.factory(), only=[name]).results:
        assert (result.outcome, result.at_first) == ("failed", "")


class Bare(Broken):
    """A backend that can do nothing but exclusive locks, and says so."""

    capabilities = frozenset({"exclusive"})

    @property
    def guarantees(self) -> Guarantees:
        return replace(super().guarantees, fairness="none")


def test_what_is_not_declared_must_be_refused() -> None:
    summary = run(Bare.factory())
    assert [
        (result.check.name, result.detail) for result in summary.results if result.outcome == "failed"
    ] == []
    replaced = [result for result in summary.results if result.detail.startswith("not declared")]
    assert len(replaced) > 60
