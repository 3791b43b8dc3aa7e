"""Run the tests: most of them several at a time, then those about time, alone.

    python -m tools.tests --numprocesses 6 tests
    python -m tools.tests --backend "memory sqlite" --numprocesses 6

The tests start real servers and wait for real time, and there are more of them at a time than processors. A
test that asserts how long something takes has the marker `timing`: it runs after all others, with nothing
beside it, and once more if it fails. The last lines name every repeat.

Of the others a few may fail in the crowd because they were only late. They run once more, alone, and are
named; one that fails alone has failed. More than `FEW` failures count at once, and so does a crashed worker
process.

One process compiles the tests first: else each worker compiles all of them, which is half of what the first
minute takes. So bytecode is kept, whatever the environment says. Empty databases are made once, and copied
for each server. The tests have Python's own signal handlers, also where `nohup` or a shell's `&` has made
this process ignore signals: they run in a session of their own then, which no hangup reaches.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.servers.server import TEMPLATES

from fencelock.backends import known_schemes

__all__ = ["main"]

FEW = 5
FAILED, NO_TESTS = 1, 5
"""What pytest says when tests have failed and nothing else is wrong, and when it found none."""
CACHE = Path(".pytest_cache/v")
NOTED = CACHE / "cache/lastfailed"
CRASHED = CACHE / "fencelock/crashed"
ALONE = ("-p", "no:xdist")
USAGE = 2
MOUNTS = "--deselect=tests/unit/test_disk.py"
"""It mounts a file system, which needs root."""
ROWS = "FENCELOCK_ROWS"
"""The variable with the backends of which tests/conformance runs rows; all if it is not set."""
IGNORED_BY_SHELLS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def main(words: Sequence[str]) -> int:
    """Run pytest with these words; return the verdict."""
    if words[:1] == ["--backend"]:
        backends = words[1].split()
        if unknown := sorted({*backends} - {*known_schemes()}):
            print(
                f"no such backend: {' '.join(unknown)}; known: {' '.join(known_schemes())}", file=sys.stderr
            )
            return USAGE
        os.environ[ROWS] = " ".join(backends)
        words = [*words[2:], *_of(backends)]
    for note in (NOTED, CRASHED):
        note.unlink(missing_ok=True)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="fencelock-templates-") as folder:
        Path(folder).chmod(0o755)  # servers that have an account of their own read there
        os.environ[TEMPLATES] = folder
        _pytest([*ALONE, "--collect-only", "-qqq", *_paths(words)], quiet=True)
        return _in_the_crowd(words) or _about_time(words)


def _of(backends: Sequence[str]) -> list[str]:
    """Return the paths of the tests of these backends, and of all tests that need no server."""
    own = [path for name in backends for path in sorted(Path("tests/acceptance").glob(f"test_{name}_*.py"))]
    return [MOUNTS, "tests/unit", "tests/conformance", *map(str, own)]


def _in_the_crowd(words: Sequence[str]) -> int:
    status = _pytest(["-m", "not timing", *words])
    failed = _noted(NOTED) if status == FAILED else []
    if not 0 < len(failed) <= FEW or _noted(CRASHED):
        return 0 if status == NO_TESTS else status
    print(f"\n{len(failed)} failed in the crowd. Once more, alone:", flush=True)
    again = _pytest([*ALONE, *failed])
    if again == 0:
        print(f"\nRepeated alone, and passed: {len(failed)}", *failed, sep="\n  ", flush=True)
    return again


def _about_time(words: Sequence[str]) -> int:
    print("\nThe tests about time, alone:", flush=True)
    status = _pytest([*ALONE, "-m", "timing", "-p", "rerunfailures", "--reruns", "1", "-rR", *_paths(words)])
    return 0 if status == NO_TESTS else status


def _noted(file: Path) -> list[str]:
    return sorted(json.loads(file.read_text())) if file.exists() else []


def _paths(words: Sequence[str]) -> list[str]:
    return [word for word in words if Path(word.partition("::")[0]).exists()]


def _pytest(words: Sequence[str], *, quiet: bool = False) -> int:
    output = subprocess.DEVNULL if quiet else None
    ignored = [each for each in IGNORED_BY_SHELLS if signal.getsignal(each) is signal.SIG_IGN]

    def heed() -> None:
        for each in ignored:
            signal.signal(each, signal.SIG_DFL)

    return subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        check=False,
        stdout=output,
        stderr=output,
        preexec_fn=heed,
        start_new_session=bool(ignored),
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
