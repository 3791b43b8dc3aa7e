"""Django: views, functions, commands and checks, in a real project."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError
from django.db import connection, transaction
from django.http import HttpRequest
from django.test import AsyncClient as AsyncBrowser
from django.test import Client as Browser
from django.test import TestCase, override_settings
from tests.unit.contrib import django_project as project

from fencelock import AcquireTimeout, BackendUnavailable, Client, ConfigurationError, LeaseLost
from fencelock.contrib.calls import current_lease
from fencelock.contrib.django import ExclusiveCommand, OnceCommand, alocks, lock, locks
from fencelock.contrib.django.checks import check_reach, check_settings
from fencelock.contrib.django.conf import _per_loop, url_of
from fencelock.schedule import Schedule


@pytest.fixture(autouse=True)
def database() -> Iterator[None]:
    project.seen.clear()
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS written (pk INTEGER)")
        cursor.execute("DELETE FROM written")
    yield
    assert locks().list() == []


@pytest.fixture
def browser() -> Browser:
    return Browser(raise_request_exception=True)


def written() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM written")
        return int(cursor.fetchone()[0])


# Views ----------------------------------------------------------------------------------------


def test_a_view_is_run_under_its_lock_and_in_a_transaction_inside_of_it(browser: Browser) -> None:
    first, second = (browser.get("/report/7").json() for _ in range(2))
    assert first["name"] == "report:7" and second["token"] > first["token"]
    assert project.seen == [("report:7", True)] * 2


def test_a_view_whose_lock_is_taken_answers_423(browser: Browser) -> None:
    with locks().lock("report:7"):
        answer = browser.get("/report/7")
        assert (answer.status_code, answer["Retry-After"]) == (423, "1")
        assert "somebody else" in answer.json()["detail"]
        assert browser.get("/report/8").status_code == 200
    assert browser.get("/report/7").status_code == 200


def test_a_view_that_lost_its_lease_answers_503_and_writes_nothing(browser: Browser) -> None:
    answer = browser.get("/lost/7")
    assert answer.status_code == 503 and "was lost" in answer.json()["detail"]
    assert written() == 0


def test_a_backend_that_is_down_answers_503(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    async def down(*_: Any, **__: Any) -> Any:
        raise BackendUnavailable(backend="memory", detail="secret", transient=False)

    with monkeypatch.context() as patch:
        patch.setattr(locks()._session.backend, "acquire", down)
        answer = browser.get("/report/7")
    assert answer.status_code == 503 and "secret" not in answer.content.decode()


def test_class_based_views(browser: Browser) -> None:
    assert browser.get("/page/7").json() == {"held": 1, "atomic": True}
    with locks().lock("page:7"):
        assert browser.get("/page/7").status_code == 423
    with pytest.raises(
        ConfigurationError, match="would be released before the transaction on 'default' commits"
    ):
        browser.get("/inside/7")


def test_a_view_that_wants_no_transaction_has_none(browser: Browser) -> None:
    assert browser.get("/plain").content == browser.get("/locked-plain").content == b"False"


def test_async_views() -> None:
    async def story() -> None:
        browser = AsyncBrowser()
        assert (await browser.get("/areport/7")).json() == {"name": "report:7", "free": False}
        async with (await alocks()).lock("report:7"):
            assert (await browser.get("/areport/7")).status_code == 423
        answer = await browser.get("/alost/7")
        assert answer.status_code == 503 and "was lost" in answer.json()["detail"]

    with not_atomic():
        asyncio.run(story())
        assert _per_loop == {}, "a client ends with its loop"


@contextmanager
def not_atomic() -> Iterator[None]:
    """Async views and `ATOMIC_REQUESTS` do not go together, says Django."""
    connection.settings_dict["ATOMIC_REQUESTS"] = False
    yield
    connection.settings_dict["ATOMIC_REQUESTS"] = True


# Functions ------------------------------------------------------------------------------------


@lock("build:{pk}:{kind}", timeout=0)
def build(pk: int, kind: str = "pdf", *, lease: Any = None) -> str:
    return str(lease.name)


def test_a_function_is_run_under_its_lock_or_raises() -> None:
    assert build(7) == build(pk=7, kind="pdf") == "build:7:pdf"
    assert build("7:pdf", "x") == "build:7%3Apdf:x"
    with locks().lock("build:7:pdf"), pytest.raises(AcquireTimeout, match="lock 'build:7:pdf' not acquired"):
        build(7)


def test_a_function_that_lost_its_lease_raises() -> None:
    @lock("lost", ttl=0.2)
    def work(lease: Any) -> None:
        locks().force_release("lost")
        assert lease.lost.wait(30)

    with pytest.raises(LeaseLost):
        work()


def test_a_lock_inside_of_a_transaction_is_refused_but_for_those_of_testcases() -> None:
    with transaction.atomic(), pytest.raises(ConfigurationError, match="take it outside of atomic"):
        build(7)

    @lock("durable", durable=False)
    def knows_better() -> int:
        return 1

    with transaction.atomic():
        assert knows_better() == 1

    class Case(TestCase):
        databases = ("default", "other")

        def test(self) -> None:
            assert build(7) == "build:7:pdf"

    result = Case("test").run()
    assert result is not None and result.wasSuccessful(), result.errors


def test_async_functions_each_on_a_loop_of_its_own() -> None:
    used: list[Any] = []

    @lock("work:{pk}", timeout=0)
    async def work(pk: int, lease: Any) -> str:
        used.append(await alocks())
        return str(lease.name)

    assert [asyncio.run(work(pk)) for pk in (1, 2)] == ["work:1", "work:2"]
    assert _per_loop == {} and len(set(used)) == 2
    assert all(client._session.closed for client in used)


def test_bad_templates_and_terms_are_refused_when_the_code_is_loaded() -> None:
    with pytest.raises(ConfigurationError, match=r"field \{id\}, and \S+ has no such argument"):
        lock("report:{id}")(lambda pk: pk)
    with pytest.raises(ConfigurationError, match="status=200"):
        lock("report", status=200)


# Settings -------------------------------------------------------------------------------------


def test_aliases_have_clients_of_their_own(tmp_path: Path) -> None:
    given = {"default": {"URL": "memory://"}, "other": {"URL": f"sqlite://{tmp_path}/x.db", "NAMESPACE": "n"}}
    with override_settings(FENCELOCK=given):
        assert locks() is locks("default") and locks("other") is not locks()
        with locks("other").lock("a"), Client(f"sqlite://{tmp_path}/x.db", namespace="n") as same:
            assert same.inspect("a").holders
        assert url_of("other") == f"sqlite://{tmp_path}/x.db?namespace=n"
        with pytest.raises(ConfigurationError, match="no alias 'third', but default, other"):
            locks("third")


def test_the_short_setting_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with override_settings(FENCELOCK={}, FENCELOCK_URL="memory://"):
        assert url_of("default") == "memory://"
    monkeypatch.setenv("FENCELOCK_URL", "sqlite:///tmp/x.db?mkdir=yes")
    with override_settings(FENCELOCK={"default": {"NAMESPACE": "a&b"}}):
        assert url_of("default") == "sqlite:///tmp/x.db?mkdir=yes&namespace=a%26b"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"default": {"URL": "nonsense"}}, "FENCELOCK['default']: 'nonsense' is not a URL"),
        ({"default": {"URL": "redis://u:secret@h:port/"}}, "FENCELOCK['default']: "),
        ({"default": {"URL": "nope://x"}}, "FENCELOCK['default']: "),
        (
            {"default": {"URI": "memory://"}},
            "has the key 'URI', which is none of URL, NAMESPACE, CLIENT_NAME, RECORD",
        ),
        ({"default": "memory://"}, "give a dict"),
        ({"other": {}}, "FENCELOCK['other'] has no URL"),
        ("memory://", "FENCELOCK is 'memory://': give a dict"),
    ],
)
def test_bad_settings_are_one_line_of_check(given: Any, told: str) -> None:
    with override_settings(FENCELOCK=given):
        (found,) = check_settings()
        assert found.id == "fencelock.E001" and told in found.msg
        assert "\n" not in found.msg and "secret" not in found.msg
        assert check_reach() == []
        with pytest.raises(SystemCheckError, match=r"fencelock\.E001"):
            call_command("check")


def test_good_settings_pass_and_a_deployment_is_warned_of_memory() -> None:
    assert check_settings() == []
    (found,) = check_reach()
    assert found.id == "fencelock.W001" and "no further than one process" in found.msg


# Commands -------------------------------------------------------------------------------------


class Rebuild(ExclusiveCommand):
    lock_name = "rebuild"

    def handle(self, *args: Any, **options: Any) -> str:
        return self.lease.name


def test_a_command_runs_one_at_a_time_and_again() -> None:
    for _ in range(2):
        out = io.StringIO()
        call_command(Rebuild(stdout=out))
        assert out.getvalue() == "rebuild\n"
    with locks().lock("rebuild"):
        with pytest.raises(CommandError, match="lock 'rebuild' not acquired") as raised:
            call_command(Rebuild())
        assert raised.value.returncode == 75
        err = io.StringIO()
        skips = Rebuild(stderr=err)
        skips.lock_skip = True
        call_command(skips)
        assert err.getvalue().startswith("skipped: lock 'rebuild' not acquired")


def test_a_command_that_lost_its_lease_fails() -> None:
    class Lost(ExclusiveCommand):
        lock_ttl = 0.2

        def handle(self, *args: Any, **options: Any) -> None:
            assert self.lease.name == f"command:{__name__}"
            locks().force_release(self.lease.name)
            assert self.lease.lost.wait(30)

    with pytest.raises(CommandError, match="was lost") as raised:
        call_command(Lost())
    assert raised.value.returncode == 76


CENTURY = timedelta(days=36500)


class Nightly(OnceCommand):
    """One of its own for each test: the record is in this process."""

    once_per = CENTURY

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("words", nargs="*")
        parser.add_argument("--dry-run", action="store_true")

    def handle(self, *args: Any, **options: Any) -> str | None:
        outcome = self.outcomes.pop(0)
        self.seen.append((options["words"], options["dry_run"], self.tick.attempt))
        assert "retry_failed" not in options
        assert self.lease is self.tick.lease is current_lease() and self.lease.is_held()
        if callable(outcome):
            outcome = outcome(self)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome  # type: ignore[no-any-return]


def nightly(name: str, *outcomes: Any, **attributes: Any) -> Callable[..., tuple[int, str, str]]:
    """Return what runs a command, in its own class; it gives status, output and what was complained of."""
    given = {"once_name": name, "seen": [], "outcomes": [*outcomes], **attributes}
    kind: Any = type("Command", (Nightly,), given)

    def run(*args: str, **options: Any) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        try:
            call_command(kind(), *args, stdout=out, stderr=err, **options)
        except CommandError as error:
            return error.returncode, out.getvalue(), str(error)
        return 0, out.getvalue(), err.getvalue()

    run.seen = kind.seen  # type: ignore[attr-defined]
    return run


def test_a_command_runs_once_in_its_period() -> None:
    run = nightly("once", "done")
    assert run("a", "--dry-run") == (0, "done\n", "")
    assert run("a") == (0, "", "'once' was run in this period already\n")
    assert run("a", verbosity=0) == (0, "", "")
    assert run("--retry-failed") == (0, "", "'once' was run in this period already\n")
    assert run.seen == [(["a"], True, 1)]  # type: ignore[attr-defined]


def test_periods_come_one_after_the_other() -> None:
    run = nightly("periods", *["done"] * 20, once_per=1)
    until = time.monotonic() + 30
    while len(run.seen) < 3 and time.monotonic() < until:  # type: ignore[attr-defined]
        run()
        time.sleep(0.05)
    with Schedule(locks()) as schedule:
        ticks = [each.tick for each in schedule.history("periods")]
    assert len(ticks) >= 3 and len(set(ticks)) == len(ticks)


@pytest.mark.parametrize(
    ("outcome", "status", "told"),
    [
        (CommandError("no disk"), 1, "CommandError: no disk"),
        (CommandError("no disk", returncode=3), 3, "CommandError: no disk"),
        (SystemExit(4), 4, "CommandError: exit status 4"),
        (SystemExit("no network"), 1, "CommandError: no network"),
    ],
)
def test_a_run_that_failed_is_told_and_run_again_on_demand(outcome: Any, status: int, told: str) -> None:
    name = f"failing {told} {status}"
    run = nightly(name, outcome, CommandError("again", returncode=9), "mended")
    assert run()[0] == status
    for _ in range(2):
        found, _, complaint = run(verbosity=0)
        assert found == status
        assert complaint.startswith(f"{name!r} failed in this period ({told}), on ")
        assert complaint.endswith(": --retry-failed runs it again") and "\n" not in complaint
    assert run("--retry-failed")[0] == 9
    assert run()[0] == 9
    assert run("--retry-failed") == (0, "mended\n", "")
    assert run("--retry-failed")[0] == run()[0] == 0
    assert [attempt for _, _, attempt in run.seen] == [1, 2, 3]  # type: ignore[attr-defined]


def test_an_error_passes_as_it_is_and_counts_as_a_run() -> None:
    run = nightly("raising", ZeroDivisionError("by nothing"))
    with pytest.raises(ZeroDivisionError):
        run()
    status, _, told = run()
    assert status == 1 and "'raising' failed in this period (ZeroDivisionError: by nothing)" in told


def test_sys_exit_without_a_status_is_a_success() -> None:
    run = nightly("leaving", SystemExit(0))
    assert run() == (0, "", "")
    assert run() == (0, "", "'leaving' was run in this period already\n")


def test_a_run_that_lost_its_lease_is_told_as_lost() -> None:
    def lose(command: Any) -> str:
        locks().force_release(command.lease.name)
        assert command.lease.lost.wait(30)
        return "written without a lease"

    run = nightly("losing", lose, "mended", once_ttl=0.2)
    status, _, told = run()
    assert status == 76 and "was lost" in told
    status, _, told = run()
    assert status == 76 and told.startswith("'losing' crashed in this period (LeaseLost: ")
    assert run("--retry-failed") == (0, "mended\n", "")


def test_a_run_that_takes_too_long_is_told_as_timed_out() -> None:
    def wait(command: Any) -> None:
        assert command.lease.lost.wait(30)

    run = nightly("slow", wait, once_at_most_for=0.2)
    assert run()[0] == 76
    status, _, told = run()
    assert status == 76 and "'slow' timed out in this period (at_most_for of 0.2s is over)" in told


def test_while_another_host_runs_it() -> None:
    others: list[Any] = []

    def meanwhile(command: Any) -> str:
        others.append(run())
        return "done"

    run = nightly("busy", meanwhile)
    assert run() == (0, "done\n", "")
    assert others == [(0, "", "'busy' is running now\n")]


def test_a_run_of_an_earlier_period_that_has_not_ended() -> None:
    run = nightly("late", "done", once_timeout=0.3)
    with locks().lock("schedule:late"):
        assert run() == (75, "", "'late' is not run: the run before it has not ended")
    assert run() == (0, "done\n", "")


def test_a_host_that_fails_the_system_checks_leaves_the_run_to_others() -> None:
    run = nightly("checked", "done")
    with override_settings(FENCELOCK={"default": {"URL": "memory://", "NAMESPACE": "shop"}, "bad": {}}):
        assert "fencelock.E001" in run(skip_checks=False)[2]
    assert run() == (0, "done\n", "")


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"once_per": None}, "Command has no period: give the class once_per, such as once_per = timedelta"),
        ({"once_per": 0}, "per=0 is no whole number of seconds from 1 on"),
        ({"once_per": "daily"}, "'daily' is not a duration"),
        ({"once_timeout": -1}, "once_timeout=-1"),
        ({"once_using": "third"}, "FENCELOCK has no alias 'third'"),
        ({"once_name": "x" * 600}, "name="),
    ],
)
def test_attributes_that_cannot_be_right(attributes: Any, told: str) -> None:
    status, _, complaint = nightly("wrong", "done", **attributes)()
    assert status == 64 and told in complaint and "\n" not in complaint


def test_a_backend_that_is_down_is_status_69(tmp_path: Path) -> None:
    with override_settings(FENCELOCK_URL="redis://127.0.0.1:1", FENCELOCK={}):
        status, _, told = nightly("down", "done")()
    assert status == 69 and "127.0.0.1:1" in told


def test_the_record_may_be_kept_elsewhere(tmp_path: Path) -> None:
    record = f"sqlite://{tmp_path}/record.db"
    with override_settings(FENCELOCK={"default": {"URL": "memory://elsewhere", "RECORD": record}}):
        assert nightly("kept", "done")() == (0, "done\n", "")
        assert check_settings() == []
    with override_settings(FENCELOCK={"default": {"URL": "memory://another", "RECORD": record}}):
        assert nightly("kept")() == (0, "", "'kept' was run in this period already\n")


def test_help_touches_no_store(capsys: pytest.CaptureFixture[str]) -> None:
    with override_settings(FENCELOCK_URL="redis://127.0.0.1:1", FENCELOCK={}):
        Nightly().print_help("manage.py", "nightly")
    told = capsys.readouterr().out
    assert "--retry-failed" in told and "--dry-run" in told


def test_the_command_line_by_manage_py(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = {"default": {"URL": f"sqlite://{tmp_path}/x.db", "NAMESPACE": "shop"}}
    with override_settings(FENCELOCK=given):
        with locks().lock("a"):
            call_command("fencelock", "ls", "--json")
        assert [one["name"] for one in json.loads(capfd.readouterr().out)] == ["a"]
        with pytest.raises(CommandError, match="status 64"):
            call_command("fencelock", "nonsense")
    with pytest.raises(CommandError, match="status 64"):
        call_command("fencelock", "ls", using="third")


def test_a_request_is_known_in_a_method_too() -> None:
    class Desk:
        @lock("desk:{pk}", timeout=0)
        def serve(self, request: HttpRequest, pk: int) -> str:
            return "served"

    assert Desk().serve(HttpRequest(), 7) == "served"
    with locks().lock("desk:7"):
        assert Desk().serve(HttpRequest(), 7).status_code == 423  # type: ignore[attr-defined]
