"""Run the tests, several at a time; what failed in the crowd is run once more, alone, and named.

    python -m tools.tests --numprocesses 6 tests

The tests start real servers and wait for real time, and there are more of them at a time than processors.
One that was only late passes alone; one that fails alone has failed. Whatever was run again is listed at the
end, so that nobody takes it for a clean run: a race that shows once in a hundred runs shows there. More than
`FEW` failures are no noise, and count at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main"]

FEW = 5
FAILED = 1
"""What pytest says when tests have failed, and nothing else is wrong."""
NOTED = Path(".pytest_cache/v/cache/lastfailed")


def main(words: Sequence[str]) -> int:
    """Run pytest with these words; return its verdict, or that of the second look."""
    NOTED.unlink(missing_ok=True)
    status = _pytest(words)
    failed = sorted(json.loads(NOTED.read_text())) if status == FAILED and NOTED.exists() else []
    if not 0 < len(failed) <= FEW:
        return status
    print(f"\n{len(failed)} failed in the crowd. Once more, alone:", flush=True)
    again = _pytest(["-p", "no:xdist", *failed])
    if again == 0:
        print("\nFailed in the crowd, passed alone:", *failed, sep="\n  ", flush=True)
    return again


def _pytest(words: Sequence[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *words], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
