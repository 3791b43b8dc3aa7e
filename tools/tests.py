"""Run the tests, several at a time; what failed in the crowd is run once more, alone, and named.

    python -m tools.tests --numprocesses 6 tests

The tests start real servers and wait for real time, and there are more of them at a time than processors.
One that was only late passes alone; one that fails alone has failed. Whatever was run again is listed at the
end, so that nobody takes it for a clean run: a race that shows once in a hundred runs shows there. More than
`FEW` failures are no noise, and count at once.

The tests are compiled first, by one process: each worker would do all of it again, and half of what the first
minute takes would be that. So bytecode is kept, whatever the environment says. Empty databases are made once,
and copied for each server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.servers.server import TEMPLATES

__all__ = ["main"]

FEW = 5
FAILED = 1
"""What pytest says when tests have failed, and nothing else is wrong."""
NOTED = Path(".pytest_cache/v/cache/lastfailed")


def main(words: Sequence[str]) -> int:
    """Run pytest with these words; return its verdict, or that of the second look."""
    NOTED.unlink(missing_ok=True)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="fencelock-templates-") as folder:
        Path(folder).chmod(0o755)  # servers that have an account of their own read there
        os.environ[TEMPLATES] = folder
        return _run(words)


def _run(words: Sequence[str]) -> int:
    _pytest(["-p", "no:xdist", "--collect-only", "-qqq", *_paths(words)], quiet=True)
    status = _pytest(words)
    failed = sorted(json.loads(NOTED.read_text())) if status == FAILED and NOTED.exists() else []
    if not 0 < len(failed) <= FEW:
        return status
    print(f"\n{len(failed)} failed in the crowd. Once more, alone:", flush=True)
    again = _pytest(["-p", "no:xdist", *failed])
    if again == 0:
        print("\nFailed in the crowd, passed alone:", *failed, sep="\n  ", flush=True)
    return again


def _paths(words: Sequence[str]) -> list[str]:
    return [word for word in words if Path(word.partition("::")[0]).exists()]


def _pytest(words: Sequence[str], *, quiet: bool = False) -> int:
    output = subprocess.DEVNULL if quiet else None
    command = [sys.executable, "-m", "pytest", *words]
    return subprocess.run(command, check=False, stdout=output, stderr=output).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
