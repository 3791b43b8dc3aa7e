"""`python -m bench.peers.child ADAPTER DRILL URL OPTIONS`: does as told through a pipe, until it closes.

A line of standard input is a number; the answer is a line of JSON: `{"answer": …}` or `{"error": …}`. The
first answer, unasked, says that the adapter is ready.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from bench.peers import contests, drills


def main(adapter: str, drill: str, url: str, options: str) -> None:
    # Whatever a library prints must not end up between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        with _prepare(adapter, drill, url, json.loads(options)) as run:
            print(json.dumps({"answer": "ready"}), file=answers)
            for line in sys.stdin:
                print(json.dumps({"answer": run(int(line))}), file=answers)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers)
        raise


def _prepare(
    adapter: str, drill: str, url: str, options: dict[str, Any]
) -> AbstractContextManager[drills.Run]:
    module = import_module(f"bench.peers.{adapter}")
    manager: AbstractContextManager[drills.Run]
    if own := getattr(module, drill, None):
        manager = own(url, **options)
    else:
        manager = getattr(contests if hasattr(contests, drill) else drills, drill)(module, url, **options)
    return manager


if __name__ == "__main__":
    main(*sys.argv[1:])
