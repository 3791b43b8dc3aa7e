"""Begins, waits for a line, and then tries to keep its result. once_paused.py URL RESULT TTL"""

from __future__ import annotations

import sys

from databases import connected
from resources import say

from holdfast import StaleToken
from holdfast.idempotency import Attempt, Store


def main(url: str, result: str, ttl: float) -> None:
    if url.startswith("redis"):
        import redis

        store = Store(redis.Redis.from_url(url), ttl=ttl)
    else:
        store = Store(lambda: connected(url), ttl=ttl)
    attempt = store.begin("k", "f", timeout=30)
    assert isinstance(attempt, Attempt)
    say(token=attempt.token, tries=attempt.tries)
    sys.stdin.readline()
    try:
        store.finish(attempt, result)
    except StaleToken as error:
        say(stale=True, newest=error.newest)
    else:
        say(stale=False)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
