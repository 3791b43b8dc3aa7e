"""`python conform.py SCHEME FLAVOURS CHECKS`: start a server, run these checks on it, and tell as JSON.

Runs in a process of its own, which imports the copy of fencelock that is to be judged.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "conformance")]

from rows import ROWS  # noqa: E402

from fencelock.testing.conformance import run  # noqa: E402


def main(scheme: str, flavours: str, names: str) -> None:
    """Print a list of [check, flavour, outcome, detail]."""
    with tempfile.TemporaryDirectory() as folder:
        told = []
        try:
            with ROWS[scheme](Path(folder)) as url:
                summary = run(url, flavours=flavours.split(","), only=names.split(","))
                told = [[one.check.name, one.flavour, one.outcome, one.detail] for one in summary.results]
        except AssertionError as error:  # what is left in the end is for the row to say
            told.append(["row", "", "failed", str(error)])
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
