"""`make test`: what runs once more, what is final, and that it does not matter how it was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAILS_ONCE = """
import pytest
from pathlib import Path
from fencelock.testing.conformance.expect import Late
def fail_once(error):
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        raise error
"""
LATE_ONCE = FAILS_ONCE + "@pytest.mark.timing\ndef test_late():\n    fail_once(Late('5 s'))\n"
WRONG_ONCE = FAILS_ONCE + "@pytest.mark.timing\ndef test_wrong():\n    fail_once(AssertionError('two'))\n"
UNMARKED = FAILS_ONCE + "def test_unmarked():\n    fail_once(Late('5 s'))\n"
FLAKY = FAILS_ONCE + "@pytest.mark.flaky(reruns=3)\ndef test_flaky():\n    fail_once(Late('5 s'))\n"
LATE = FAILS_ONCE + "@pytest.mark.timing\ndef test_late():\n    raise Late('5 s')\n"
GOOD = "def test_good():\n    pass\n"
WRONG = "def test_wrong():\n    raise AssertionError('wrong')\n"
BOTH = f"import pytest\n@pytest.mark.timing\n{GOOD}{WRONG}"
WARNS = """
import warnings
class RepeatedWarning(UserWarning):
    pass
def test_check():
    warnings.warn(RepeatedWarning("late"))
"""
KILLED = "import os\ndef test_killed():\n    os.kill(os.getpid(), 9)\n"
CRASH = """
import os
def test_first():
    pass
def test_crash():
    os.abort()
def test_last():
    pass
"""
SIGNALS = """
import signal
def test_signals():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGQUIT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
"""
LONG = """
import pytest, time
from pathlib import Path
@pytest.fixture
def server():
    yield
    Path("stopped").touch()
def test_long(server):
    Path("started").touch()
    time.sleep(300)
"""
REPEATED = "repeated, since they are about time: "


@contextmanager
def run_of(
    folder: Path, *words: str, before: tuple[str, ...] = (), **files: str
) -> Iterator[subprocess.Popen[str]]:
    """Start a run of these test files."""
    for name, source in files.items():
        (folder / f"{name}.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n timing\n root\n")
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    with subprocess.Popen(
        [*before, sys.executable, "-m", "tools.tests", *words, "."],
        cwd=folder,
        env={**env, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        try:
            yield run
        finally:
            run.terminate()


def verdict(folder: Path, *words: str, before: tuple[str, ...] = (), **files: str) -> tuple[int, str]:
    """Return what a run of these test files ends with, and what it prints."""
    with run_of(folder, *words, before=before, **files) as run:
        said, _ = run.communicate(timeout=120)
    return run.returncode, said


@pytest.mark.parametrize(
    ("source", "status", "repeats", "told"),
    [
        (GOOD, 0, [], "1 passed"),
        (WRONG, 1, [], "1 failed"),
        (UNMARKED, 1, [], "1 failed"),
        (FLAKY, 1, [], "1 failed"),
        (LATE_ONCE, 0, ["test_it.py::test_late"], "1 passed, 1 rerun"),
        (LATE, 1, ["test_it.py::test_late"], "1 failed, 1 rerun"),
        (WRONG_ONCE, 1, [], "AssertionError: two"),
        (BOTH, 1, [], "1 passed, 1 deselected"),
        (WARNS, 0, ["test_it.py::test_check"], "1 passed"),
        ("syntax error", 2, [], "error"),
        (KILLED, 256 - signal.SIGKILL, [], ""),
        ("", 5, [], "no tests ran"),
    ],
    ids=[
        "good",
        "wrong",
        "unmarked",
        "flaky",
        "late-once",
        "late",
        "wrong-once",
        "both",
        "check",
        "broken",
        "killed",
        "none",
    ],
)
def test_the_verdict(source: str, status: int, repeats: list[str], told: str, tmp_path: Path) -> None:
    returned, said = verdict(tmp_path, test_it=source)
    assert returned == status, said
    assert told in said
    assert said.endswith("\n".join([f"\n{REPEATED}{len(repeats)}", *(f"  {one}" for one in repeats), ""])), (
        said
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_a_crashed_worker_is_final_and_the_others_go_on(workers: int, tmp_path: Path) -> None:
    words = ("-p", "xdist", "--numprocesses", str(workers), "--dist", "loadscope")
    returned, said = verdict(tmp_path, *words, test_a=CRASH, test_b=CRASH, test_c=GOOD)
    assert returned == 1, said
    assert "2 failed, 5 passed" in said, said
    assert said.count("crashed while running") >= 2 and said.endswith(f"{REPEATED}0\n")


def test_it_does_not_matter_how_the_run_was_started(tmp_path: Path) -> None:
    ignoring = ("sh", "-c", 'trap "" INT QUIT HUP; exec "$@"', "sh")
    returned, said = verdict(tmp_path, before=ignoring, test_it=SIGNALS)
    assert returned == 0, said


def test_a_run_that_is_terminated_ends_its_tests(tmp_path: Path) -> None:
    with run_of(tmp_path, test_it=LONG) as run:
        while not (tmp_path / "started").exists() and run.poll() is None:
            time.sleep(0.05)
        run.terminate()
        said, _ = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGTERM, said
    assert (tmp_path / "stopped").exists(), said


def test_chosen_backends_are_rows_of_the_suite_and_leave_out_no_unit_test() -> None:
    """A unit test may have a parameter of the same name, and other folders are none of its business."""
    files = ["tests/conformance/test_conformance.py", "tests/unit/backends/test_closed.py"]
    options = ["--collect-only", "-o", "addopts=", "-q", "-p", "no:xdist"]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=ROOT,
        env={**os.environ, "FENCELOCK_ROWS": "sqlite"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    names = [line for line in found.stdout.splitlines() if "::" in line]
    rows = [name for name in names if name.startswith(files[0])]
    assert rows
    assert all("test_conforms" in name and "[sqlite-" in name for name in rows)
    assert any("[memory" in name for name in names if name not in rows)
