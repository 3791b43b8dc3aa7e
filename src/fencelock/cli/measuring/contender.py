"""One contender in a process of its own: `python -m fencelock.cli.measuring.contender`.

It is told what to do in lines of JSON on stdin, and answers in lines of JSON on stdout:

    1. {"url", "namespace", "name", "own", "ttl"}    it connects            {"ready": true}
    2. {"until"}, on the monotonic clock             it races until then    {"taken": [[token, when], …]}

An error is the answer {"error", "backend"}; `backend` is the backend's name, if it is an error of one. The
end of stdin ends it: it gives back what it has. The URL comes through the pipe because everybody on the host
can read a command line, and a URL may have a password.
"""

from __future__ import annotations

import contextlib
import json
import select
import sys
from typing import Any

from fencelock.cli.measuring.course import PATIENCE
from fencelock.cli.measuring.race import Taken, contend
from fencelock.client import Client
from fencelock.errors import BackendError

__all__ = ["main"]


def main() -> None:
    """Race once."""
    try:
        answer: dict[str, Any] = {"taken": _race(json.loads(sys.stdin.readline()))}
    except BackendError as error:
        answer = {"error": error.detail, "backend": error.backend}
    except Exception as error:  # noqa: BLE001 - whoever started this process says it
        answer = {"error": f"{type(error).__name__}: {error}", "backend": None}
    with contextlib.suppress(BrokenPipeError):  # nobody listens any more
        _say(answer)


def _race(told: dict[str, Any]) -> list[Taken]:
    with Client(told["url"], namespace=told["namespace"]) as locks:
        locks.lock(told["own"], ttl=told["ttl"], timeout=PATIENCE).acquire().release()
        lock = locks.lock(told["name"], ttl=told["ttl"])
        _say({"ready": True})
        go = sys.stdin.readline()
        return contend(lock, json.loads(go)["until"], _hung_up) if go else []


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def _hung_up() -> bool:
    # Nothing more is said on stdin: it is readable when it has ended.
    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    main()
