"""Django in several processes: commands that run once, `manage.py fencelock`, and a server that forks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from crew import PATIENCE, Crew, Member, wait_until
from tools.servers import start

NIGHTLY = "command:shop.management.commands.nightly"

FILES = {
    "settings.py": """
import os
SECRET_KEY = "of the tests"
INSTALLED_APPS = ["fencelock.contrib.django", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}
ROOT_URLCONF = "shop.urls"
ALLOWED_HOSTS = ["*"]
FENCELOCK = {"default": {"URL": os.environ["LOCKS"], "NAMESPACE": "shop"}}
""",
    "manage.py": """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
""",
    "shop/__init__.py": "",
    "shop/management/__init__.py": "",
    "shop/management/commands/__init__.py": "",
    "shop/management/commands/nightly.py": """
import os, sys
from datetime import timedelta
from fencelock.contrib.django import OnceCommand

class Command(OnceCommand):
    once_per = timedelta(seconds=int(os.environ["PER"]))

    def add_arguments(self, parser):
        parser.add_argument("word")
        parser.add_argument("--fails", type=int, default=0)

    def handle(self, *args, **options):
        with open("notes", "a") as file:
            file.write(f"{options['word']} {self.tick.instant} {self.tick.attempt}\\n")
        if options["fails"]:
            sys.exit(options["fails"])
""",
    "shop/management/commands/rebuild.py": """
import json, os, time
from django.core.management.base import BaseCommand
from fencelock.contrib.django import ExclusiveCommand

class Command(ExclusiveCommand, BaseCommand):
    lock_ttl = 2
    lock_timeout = 60 if os.environ.get("WAITS") else 0

    def handle(self, *args, **options):
        with open("notes", "a") as file:
            file.write(f"begun {self.lease.token} {os.getpid()}\\n")
        while not os.path.exists("go"):
            self.lease.check()
            time.sleep(0.01)
        with open("notes", "a") as file:
            file.write(f"ended {self.lease.token} {os.getpid()}\\n")
""",
    "shop/urls.py": """
import os, time
from django.http import HttpResponse
from django.urls import path
from fencelock.contrib.django import lock

@lock("count:{name}", timeout=60)
def count(request, name):
    seen = int(open(name).read()) if os.path.exists(name) else 0
    time.sleep(0.002)
    with open(name, "w") as file:
        file.write(str(seen + 1))
    return HttpResponse(str(seen + 1))

urlpatterns = [path("count/<slug:name>", count)]
""",
    "prefork.py": """
# A server as gunicorn is with --preload: it loads the application, uses it, and forks its workers.
import json, os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django
django.setup()
from django.test import Client
assert Client().get("/count/n").status_code == 200
children = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        statuses = {Client().get("/count/n").status_code for _ in range(int(sys.argv[1]))}
        os._exit(0 if statuses == {200} else 1)
    children.append(pid)
assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
assert Client().get("/count/n").status_code == 200
print(json.dumps(int(open("n").read())))
""",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKS", f"sqlite://{tmp_path}/locks.db")
    (tmp_path / "notes").touch()
    return tmp_path


def manage(crew: Crew, *args: str) -> Member:
    return crew._started("manage.py", [sys.executable, "manage.py", *args])


def managed(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "manage.py", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def notes(project: Path) -> list[list[str]]:
    return [line.split() for line in (project / "notes").read_text().splitlines()]


CENTURY = str(36500 * 86400)
APART = 0.6
"""Seconds between the starts of two hosts."""


@pytest.fixture(params=["sqlite", "redis"])
def hosts(
    project: Path, crew: Crew, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Callable[..., list[Member]]]:
    """Run the command on three hosts, one after the other."""

    def run(*args: str) -> list[Member]:
        started = []
        for _ in range(3):
            started.append(manage(crew, "nightly", *args))
            time.sleep(APART)
        for member in started:
            member.process.wait(PATIENCE)
        return started

    with ExitStack() as stack:
        if request.param != "sqlite":
            monkeypatch.setenv("LOCKS", str(stack.enter_context(start(request.param)).url))
        yield run


def test_three_hosts_run_a_command_once_in_a_period(
    project: Path, hosts: Callable[..., list[Member]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PER", CENTURY)
    ended = hosts("hello")
    assert [member.end() for member in ended] == [0, 0, 0], [member.errors for member in ended]
    assert notes(project) == [["hello", "0", "1"]]
    told = [f"'{NIGHTLY}' was run in this period already", f"'{NIGHTLY}' is running now"]
    assert sum(any(line in member.errors for line in told) for member in ended) == 2


def test_three_hosts_run_a_command_once_in_each_of_two_periods(
    project: Path, hosts: Callable[..., list[Member]], monkeypatch: pytest.MonkeyPatch
) -> None:
    per = 5
    monkeypatch.setenv("PER", str(per))
    for _ in range(2):
        time.sleep(per - time.time() % per)
        assert {member.end() for member in hosts("hello")} == {0}
    ticks = [int(tick) for _, tick, _ in notes(project)]
    assert len(ticks) >= 2 and ticks == sorted(set(ticks)), "a period was run twice"


def test_three_hosts_tell_of_a_run_that_failed_until_one_repeats_it(
    project: Path, hosts: Callable[..., list[Member]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PER", CENTURY)
    for member in hosts("broken", "--fails", "7"):
        assert member.end() == 7, member.errors
        assert "Traceback" not in member.errors
    assert notes(project) == [["broken", "0", "1"]]
    assert managed("nightly", "word", "--fails", "7").stderr.count("--retry-failed runs it again") == 1
    assert {member.end() for member in hosts("--retry-failed", "mended")} == {0}
    assert notes(project) == [["broken", "0", "1"], ["mended", "0", "2"]]
    listed = json.loads(managed("fencelock", "cron", "--ls", NIGHTLY, "--json").stdout)
    assert [(run["state"], run["attempt"]) for run in listed] == [("done", 2), ("failed", 1)]
    told = managed("nightly", "--help")
    assert told.returncode == 0 and "--retry-failed" in told.stdout and "--fails" in told.stdout
    assert managed("nightly").returncode == 2, "an argument is missing"


def test_an_exclusive_command_is_followed_when_it_is_killed(
    project: Path, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [manage(crew, "rebuild") for _ in range(2)]
    wait_until(lambda: notes(project), "one has begun")
    wait_until(lambda: any(member.process.poll() is not None for member in first), "the other has ended")
    running = next(member for member in first if str(member.pid) == notes(project)[0][2])
    refused = next(member for member in first if member is not running)
    assert refused.end() == 75
    assert "lock 'command:shop.management.commands.rebuild' not acquired" in refused.errors
    assert "Traceback" not in refused.errors

    listed = managed("fencelock", "ls", "--json")
    assert [one["name"] for one in json.loads(listed.stdout)] == ["command:shop.management.commands.rebuild"]

    monkeypatch.setenv("WAITS", "1")
    waiting = manage(crew, "rebuild")
    wait_until(lambda: json.loads(managed("fencelock", "ls", "--json").stdout)[0]["waiters"], "one waits")
    running.signal(signal.SIGKILL)
    wait_until(lambda: len(notes(project)) == 2, "the one who waited has begun")
    (project / "go").touch()
    assert waiting.end() == 0, waiting.errors
    begun, again, ended = notes(project)
    assert int(again[1]) > int(begun[1]) and again[1:] == ended[1:]


def test_a_server_that_forks_its_workers(project: Path) -> None:
    each = 10
    done = subprocess.run(
        [sys.executable, "prefork.py", str(each)],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == 3 * each + 2


def test_the_command_line_has_the_urls_of_the_settings(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = managed(
        "fencelock", "run", "a b", "--", "sh", "-c", 'echo "$FENCELOCK_NAME $FENCELOCK_URL"; exit 3'
    )
    assert told.stdout == f"a b sqlite://{project}/locks.db?namespace=shop\n"
    assert told.returncode == 3
    monkeypatch.setenv("LOCKS", "redis://me:secret@host:port")
    for command in (["check"], ["fencelock", "ls"]):
        failed = managed(*command)
        assert failed.returncode != 0
        assert "Traceback" not in failed.stderr and "secret" not in failed.stderr + failed.stdout
        assert os.fspath(project) not in failed.stderr
    assert "(fencelock.E001) FENCELOCK['default']: " in managed("check").stderr
