"""Django in several processes: commands that run once, `manage.py fencelock`, and a server that forks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from crew import PATIENCE, Crew, Member, wait_until

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
import json, os, time
from django.core.management.base import BaseCommand
from fencelock.contrib.django import OnceCommand

class Command(OnceCommand, BaseCommand):
    once_ttl = 2
    once_timeout = 60 if os.environ.get("WAITS") else 0

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


def test_a_command_is_run_by_one_of_three_and_followed_when_it_is_killed(
    project: Path, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [manage(crew, "nightly") for _ in range(2)]
    wait_until(lambda: notes(project), "one has begun")
    wait_until(lambda: any(member.process.poll() is not None for member in first), "the other has ended")
    running = next(member for member in first if str(member.pid) == notes(project)[0][2])
    refused = next(member for member in first if member is not running)
    assert refused.end() == 75
    assert "lock 'command:shop.management.commands.nightly' not acquired" in refused.errors
    assert "Traceback" not in refused.errors

    listed = managed("fencelock", "ls", "--json")
    assert [one["name"] for one in json.loads(listed.stdout)] == ["command:shop.management.commands.nightly"]

    monkeypatch.setenv("WAITS", "1")
    waiting = manage(crew, "nightly")
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
