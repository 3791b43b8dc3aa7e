"""`python -m bench.peers.counted ADAPTER FLAVOUR URL COUNT OPTIONS`: that many pairs, to be counted.

Nothing is timed here. The garbage collector is off, so that what one pair leaves is not paid for by another;
some pairs go before, in which the interpreter adapts to the code.
"""

from __future__ import annotations

import gc
import json
import sys
from importlib import import_module
from typing import Any

from bench.peers.drills import looping

WARM = 30


def blocking(adapter: Any, url: str, count: int, options: dict[str, Any]) -> None:
    with adapter.blocking(url, **options) as make:
        section = make("counted")
        for _ in range(WARM + count):
            with section:
                pass


def asynchronous(adapter: Any, url: str, count: int, options: dict[str, Any]) -> None:
    async def pairs(section: Any) -> None:
        for _ in range(WARM + count):
            async with section:
                pass

    with looping(adapter, url, 1, options) as (loop, make):
        loop.run_until_complete(pairs(make("counted")))


def main(adapter: str, flavour: str, url: str, count: str, options: str) -> None:
    gc.disable()
    run = blocking if flavour == "blocking" else asynchronous
    run(import_module(f"bench.peers.{adapter}"), url, int(count), json.loads(options))


if __name__ == "__main__":
    main(*sys.argv[1:])
