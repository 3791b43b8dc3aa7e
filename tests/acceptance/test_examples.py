"""Every file in examples/ runs by itself, says something and ends well, on a file and in memory.

A story that the list below promises and that is not there is an error, and so is a file that is
there and not on the list: none is left out of the run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from crew import wait_until

import fencelock

EXAMPLES = Path(__file__).parents[2] / "examples"
STORIES = {
    "asyncio_lock": "100 tasks have added one each: 100",
    "cron_on_three_hosts": "3 ticks, 3 hosts, 3 runs",
    "cache": "with a flight",
    "dashboard_in_your_app": "nightly is held by worker",
    "decorator": "rebuilt by task 3",
    "email_worker": "22 jobs, 4 workers: 21 e-mails to 21 recipients",
    "fencing": "balance 150",
    "first_lock": "now it is free: True",
    "inspect_and_break": "verify() says False",
    "leader": "9 orders, each once, by 3 hosts",
    "loss": "the body was cancelled",
    "multi": "together 300",
    "offline": "together: berlin 42, lima 42",
    "payments": "8 requests under a lock: 8 payments; 8 with one key: 1 payment",
    "readers_writer": "writer, late reader",
    "semaphore": "at most 3 at a time",
    "stock": "12 buyers, 5 items: 5 sold, 0 left",
    "unique_job": "50 jobs, 6 workers, 50 e-mails, 0 locks left",
}


def test_none_is_missing() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == STORIES.keys()


@pytest.mark.parametrize("url", [None, "memory://"], ids=["file", "memory"])
@pytest.mark.parametrize("story", STORIES)
def test_it_runs(story: str, url: str | None, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "FENCELOCK_URL"}
    environment |= {"TMPDIR": str(tmp_path), "PYTHONWARNINGS": "error"}
    environment |= {} if url is None else {"FENCELOCK_URL": url}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{story}.py")],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert STORIES[story] in done.stdout
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [], "it left something behind"


@pytest.mark.parametrize(
    ("story", "lock"),
    [("fencing", "account"), ("loss", "report"), ("asyncio_lock", "total"), ("leader", "orders")],
)
def test_sigterm_ends_it_in_an_orderly_way(story: str, lock: str, tmp_path: Path) -> None:
    """It waits for a lock that is held here. Its folder is removed, and its waiters are gone."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    url = f"sqlite://{tmp_path}/locks.db"
    environment = {**os.environ, "FENCELOCK_URL": url, "TMPDIR": str(folder)}
    with fencelock.Client(url) as locks, locks.lock(lock):
        with subprocess.Popen([sys.executable, str(EXAMPLES / f"{story}.py")], env=environment) as example:
            wait_until(lambda: locks.inspect(lock).waiters, "it waits")
            assert list(folder.iterdir()), "it has a folder"
            example.terminate()
            assert example.wait(60) == -signal.SIGTERM
        assert locks.inspect(lock).waiters == ()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("story", STORIES)
def test_it_is_short_and_tells_its_story(story: str) -> None:
    text = (EXAMPLES / f"{story}.py").read_text()
    assert text.startswith('"""')
    assert 'if __name__ == "__main__":' in text
    assert len(text.splitlines()) <= 65, "an example is read at one glance"
