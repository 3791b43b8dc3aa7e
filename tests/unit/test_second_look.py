"""`make test`: what fails in the crowd is looked at once more, and only what passes alone is forgiven."""

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
MANY = """
import pytest
@pytest.mark.parametrize("n", range(6))
def test_many(n):
    raise AssertionError("wrong")
"""


@pytest.mark.parametrize(
    ("source", "status", "told"),
    [
        ("def test_good():\n    pass\n", 0, ["1 passed"]),
        (ONCE, 0, ["Once more, alone", "passed alone:\n  test_it.py::test_once"]),
        (ALWAYS, 1, ["Once more, alone"]),
        (ONCE + ALWAYS, 1, ["Once more, alone"]),
        (MANY, 1, ["6 failed"]),
        ("syntax error", 2, ["error"]),
    ],
    ids=["good", "late", "wrong", "both", "many", "broken"],
)
def test_the_verdict(source: str, status: int, told: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(source)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "tools.tests", "test_it.py"],
        cwd=tmp_path,
        env={**env, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stdout
    for words in told:
        assert words in done.stdout
    assert ("passed alone" in done.stdout) == (source == ONCE)
    assert ("Once more" in done.stdout) == (source in {ONCE, ALWAYS, ONCE + ALWAYS})
