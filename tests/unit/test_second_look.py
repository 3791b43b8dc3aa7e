"""`make test`: what runs once more, what is final, and that it does not matter how it was started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ONCE = """
from pathlib import Path
def test_once():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError("late")
"""
ALWAYS = "def test_always():\n    raise AssertionError('wrong')\n"
TIMING = "import pytest\npytestmark = pytest.mark.timing\n"
CRASH = """
import os
from pathlib import Path
def test_crash():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        os.abort()
"""
SIGNALS = """
import signal
def test_signals():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGQUIT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
"""
MANY = """
import pytest
@pytest.mark.parametrize("n", range(6))
def test_many(n):
    raise AssertionError("wrong")
"""


def verdict(folder: Path, source: str, *words: str, before: tuple[str, ...] = ()) -> tuple[int, str]:
    """Return what a run of this test file ends with, and what it prints."""
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = timing\n")
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    done = subprocess.run(
        [*before, sys.executable, "-m", "tools.tests", *words, "test_it.py"],
        cwd=folder,
        env={**env, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("source", "status", "told"),
    [
        ("def test_good():\n    pass\n", 0, ["1 passed"]),
        (ONCE, 0, ["Once more, alone", "Repeated alone, and passed: 1\n  test_it.py::test_once"]),
        (ALWAYS, 1, ["Once more, alone"]),
        (ONCE + ALWAYS, 1, ["Once more, alone"]),
        (MANY, 1, ["6 failed"]),
        ("syntax error", 2, ["error"]),
    ],
    ids=["good", "late", "wrong", "both", "many", "broken"],
)
def test_the_verdict(source: str, status: int, told: list[str], tmp_path: Path) -> None:
    returned, said = verdict(tmp_path, source)
    assert returned == status, said
    for words in told:
        assert words in said
    assert ("and passed" in said) == (source == ONCE)
    assert ("Once more" in said) == (source in {ONCE, ALWAYS, ONCE + ALWAYS})


@pytest.mark.parametrize(
    ("source", "status", "told"),
    [(ONCE, 0, "RERUN test_it.py::test_once\n"), (ALWAYS, 1, "FAILED test_it.py::test_always")],
    ids=["late", "wrong"],
)
def test_what_is_about_time_runs_once_more(source: str, status: int, told: str, tmp_path: Path) -> None:
    returned, said = verdict(tmp_path, TIMING + source)
    assert returned == status, said
    assert told in said and "1 rerun" in said.splitlines()[-1]
    assert "Once more" not in said


def test_a_crashed_worker_is_final(tmp_path: Path) -> None:
    returned, said = verdict(tmp_path, CRASH, "-p", "xdist", "--numprocesses", "1")
    assert returned == 1, said
    assert "crashed" in said and "Once more" not in said


def test_it_does_not_matter_how_the_run_was_started(tmp_path: Path) -> None:
    ignoring = ("sh", "-c", 'trap "" INT QUIT HUP; exec "$@"', "sh")
    returned, said = verdict(tmp_path, SIGNALS, before=ignoring)
    assert returned == 0, said
