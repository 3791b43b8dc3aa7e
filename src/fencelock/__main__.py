"""The console script `fencelock`, and `python -m fencelock`.

The command line needs the packages of the extra `cli`, the library needs none. This module imports the
command line only after it has found them: without them it says in one line what to install.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from fencelock.extras import FLOORS, too_old

__all__ = ["main"]

UNAVAILABLE = 69
"""As in sysexits.h: a program that this one needs is not there."""


def main(args: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    for package in FLOORS["cli"]:
        if find_spec(package) is None:
            return _refuse(f"the command line needs the package {package!r}: pip install 'fencelock[cli]'")
    try:
        from fencelock.cli import main as run
    except (ImportError, AttributeError, TypeError):
        if old := too_old("cli", "the command line"):
            return _refuse(old)
        raise
    return run(args)


def _refuse(message: str) -> int:
    print(f"fencelock: {message}", file=sys.stderr)
    return UNAVAILABLE


if __name__ == "__main__":
    sys.exit(main())
