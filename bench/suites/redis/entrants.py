"""Who takes part."""

from __future__ import annotations

from bench.peers import Entry

__all__ = [
    "AIOREDLOCK",
    "FENCELOCK",
    "POTTERY",
    "PYTHON_REDIS_LOCK",
    "REDIS_PY",
    "REDLOCK_NG",
    "SCRIPTS",
    "SHERLOCK",
    "TOOZ",
]

FENCELOCK = Entry("fencelock", "ours", "fencelock")
SCRIPTS = Entry("fencelock's scripts, bare sockets", "scripts", "beside")
REDIS_PY = Entry("redis-py Lock", "redis_py", environment="redis-py")
REDLOCK_NG = Entry("redlock-ng, one node", "redlock_ng", environment="redlock-ng")
PYTHON_REDIS_LOCK = Entry("python-redis-lock", "python_redis_lock", environment="python-redis-lock")
TOOZ = Entry("tooz", "tooz", environment="tooz")
SHERLOCK = Entry("sherlock", "sherlock", environment="sherlock")
POTTERY = Entry("pottery, one node", "pottery", environment="pottery")
AIOREDLOCK = Entry("aioredlock, one node", "aioredlock", environment="aioredlock")
