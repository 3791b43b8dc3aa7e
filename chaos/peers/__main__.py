"""Try each peer on a real server, without faults: it is granted, excludes, times out and releases."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

from tools.servers import start

from chaos.subject import Ask, load
from chaos.subjects import SUBJECTS

SERVERS = {"redis": "redis", "redlock": "redlock", "zookeeper": "zookeeper3"}


def main(words: list[str]) -> int:
    """Return 0 if all that were tried do what a lock does."""
    failed = 0
    for word, peer in SUBJECTS.items():
        if not any(factory.startswith("chaos.peers") for factory in peer.factories):
            continue
        for backend in sorted(peer.backends) if not words or word in words else ():
            for factory in peer.factories:
                why = _tried(factory, backend)
                failed += bool(why)
                print(f"{'failed' if why else 'works ':6} {factory} on {backend} {why}", flush=True)
    return 1 if failed else 0


def _tried(factory: str, backend: str) -> str:
    with start(SERVERS[backend]) as group, asyncio.Runner() as runner:

        def call(function: Callable[..., Any], *args: Any) -> Any:
            async def awaited() -> Any:
                found = function(*args)
                return await found if asyncio.iscoroutine(found) else found

            return runner.run(awaited())

        try:
            one, other = (load(factory)(group.url, name) for name in ("one", "other"))
            _drill(one, other, call)
            call(one.close)
            call(other.close)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return ""


def _drill(one: Any, other: Any, call: Callable[..., Any]) -> None:
    ask = Ask("job", "exclusive", None, 2.0, 0.3)
    lease = call(one.acquire, ask)
    assert lease is not None, "not granted though it was free"
    assert lease.is_held(), "granted and not held"
    assert 0 < lease.remaining() <= ask.ttl, f"{lease.remaining()} s remaining"
    began = time.monotonic()
    assert call(other.acquire, ask) is None, "granted twice"
    assert time.monotonic() - began < 3, "the timeout was not honoured"
    call(lease.release)
    assert not lease.is_held(), "released and held"
    again = call(other.acquire, ask)
    assert again is not None, "not granted after a release"
    call(again.release)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
