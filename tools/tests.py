"""Run the tests: most of them several at a time, then those about time, alone.

    python -m tools.tests --numprocesses 6 tests
    python -m tools.tests --backend "memory sqlite" --numprocesses 6

The tests start real servers and wait for real time, and there are more of them at a time than processors. So
a test that asserts how long something takes has the marker `timing`: it runs after all others, with nothing
beside it. Only such a test may run once more, and only if it failed with `Late`; any other failure is final,
and so is a crashed worker process. Both parts run in any case. The last lines count and name the repeats.

One process compiles the tests first: else each worker compiles all of them, which is half of what the first
minute takes. So bytecode is kept, whatever the environment says. Empty databases are made once, and copied
for each server. Where `nohup` or a shell's `&` has made this process ignore signals, which the tests do not,
they run in a session of their own that no hangup reaches. SIGTERM ends the tests as Ctrl-C does.
"""

from __future__ import annotations

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

NO_TESTS = 5
"""What pytest says when it found none."""
REPEATS = "FENCELOCK_REPEATS"
"""The variable with the file in which tests/conftest.py names what ran once more."""
ALONE = ("-p", "no:xdist")
NEVER_AGAIN = ("-p", "no:rerunfailures")
ONCE_MORE = ("-p", "rerunfailures", "--reruns", "1", "--only-rerun", "^Late: ", "-rR")
USAGE = 2
WITHOUT_ROOT = " and not root"
OF_THE_WHOLE = (
    "unit/test_docs",
    "unit/test_extras",
    "unit/test_verdict",
    "unit/test_wheel",
    "conformance/test_promises",
)
"""What chosen backends leave out, for a developer's machine: what needs root, and tests of the project as a
whole, which take two fifths of the time."""
ROWS = "FENCELOCK_ROWS"
"""The variable with the backends of which tests/conformance runs rows; all if it is not set."""
IGNORED_BY_SHELLS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def main(words: Sequence[str]) -> int:
    """Run pytest with these words; return the verdict."""
    chosen, without = "", list[str]()
    if words[:1] == ["--backend"]:
        chosen, without = WITHOUT_ROOT, [f"--ignore=tests/{name}.py" for name in OF_THE_WHOLE]
        backends = words[1].split()
        if unknown := sorted({*backends} - {*known_schemes()}):
            print(
                f"no such backend: {' '.join(unknown)}; known: {' '.join(known_schemes())}", file=sys.stderr
            )
            return USAGE
        os.environ[ROWS] = " ".join(backends)
        words = [*words[2:], *_of(backends)]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    apart = any(signal.getsignal(number) is signal.SIG_IGN for number in IGNORED_BY_SHELLS)
    signal.signal(signal.SIGTERM, _end)
    with tempfile.TemporaryDirectory(prefix="fencelock-templates-") as folder:
        Path(folder).chmod(0o755)  # servers that have an account of their own read there
        repeats = Path(folder, "repeats")
        os.environ |= {TEMPLATES: folder, REPEATS: str(repeats)}
        _pytest([*ALONE, "--collect-only", "-qqq", *without, *_paths(words)], apart=apart, quiet=True)
        status = _pytest([*NEVER_AGAIN, "-m", f"not timing{chosen}", *without, *words], apart=apart)
        print("\nThe tests about time, alone:", flush=True)
        late = _pytest([*ALONE, *ONCE_MORE, "-m", f"timing{chosen}", *without, *_paths(words)], apart=apart)
        names = repeats.read_text().splitlines() if repeats.exists() else []
        print(f"\nrepeated, since they are about time: {len(names)}", *names, sep="\n  ", flush=True)
    if status == late == NO_TESTS:
        return NO_TESTS
    return next((each for each in (status, late) if each not in {0, NO_TESTS}), 0)


def _end(signum: int, frame: object) -> None:
    raise SystemExit(128 + signum)


def _of(backends: Sequence[str]) -> list[str]:
    """Return the paths of the tests of these backends, and of all tests that need no server."""
    own = [path for name in backends for path in sorted(Path("tests/acceptance").glob(f"test_{name}_*.py"))]
    return ["tests/unit", "tests/conformance", *map(str, own)]


def _paths(words: Sequence[str]) -> list[str]:
    return [word for word in words if Path(word.partition("::")[0]).exists()]


def _pytest(words: Sequence[str], *, apart: bool, quiet: bool = False) -> int:
    output = subprocess.DEVNULL if quiet else None
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *words], stdout=output, stderr=output, start_new_session=apart
    ) as tests:
        try:
            status = tests.wait()
        except SystemExit:
            tests.send_signal(signal.SIGINT)
            raise
        except KeyboardInterrupt:  # the terminal has told the tests too
            tests.wait()
            raise SystemExit(128 + signal.SIGINT) from None
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
