"""Who takes part, and how a target is put into words."""

from __future__ import annotations

from collections.abc import Sequence

from bench.measure import Figure
from bench.peers import Entry

__all__ = [
    "AIOREDLOCK",
    "HOLDFAST",
    "POTTERY",
    "PYTHON_REDIS_LOCK",
    "REDIS_PY",
    "REDLOCK_NG",
    "SHERLOCK",
    "TOOZ",
    "at_least",
    "at_most",
    "best_peer",
    "named",
    "to_limit",
]

TO_LIMIT = "holdfast to the limit"
HOLDFAST = Entry("holdfast", "ours", "holdfast")
REDIS_PY = Entry("redis-py Lock", "redis_py", environment="redis-py")
REDLOCK_NG = Entry("redlock-ng, one node", "redlock_ng", environment="redlock-ng")
PYTHON_REDIS_LOCK = Entry("python-redis-lock", "python_redis_lock", environment="python-redis-lock")
TOOZ = Entry("tooz", "tooz", environment="tooz")
SHERLOCK = Entry("sherlock", "sherlock", environment="sherlock")
POTTERY = Entry("pottery, one node", "pottery", environment="pottery")
AIOREDLOCK = Entry("aioredlock, one node", "aioredlock", environment="aioredlock")


def named(figures: Sequence[Figure], name: str) -> Figure | None:
    return next((figure for figure in figures if figure.name == name), None)


def best_peer(figures: Sequence[Figure]) -> Figure | None:
    peers = [figure for figure in figures if figure.role == "peer"]
    return min(peers, key=lambda figure: figure.median, default=None)


def to_limit(figures: Sequence[Figure], target: float | None) -> list[str]:
    """Say how far holdfast is from the limit; also by the fastest rounds, which noise touches least."""
    limit = next((figure for figure in figures if figure.role == "limit"), None)
    ours = named(figures, HOLDFAST.label)
    if limit is None or ours is None:
        return []
    ratio = ours.median / limit.median
    shown = f"{TO_LIMIT}: {ratio:.2f}" if target is None else at_most(TO_LIMIT, ratio, target)
    return [f"{shown} (fastest rounds: {min(ours.rounds) / min(limit.rounds):.2f})"]


def at_most(what: str, value: float, target: float, unit: str = "") -> str:
    verdict = "met" if value <= target else "missed"
    return f"{what}: {value:.2f}{unit}; target at most {target:g}{unit}: {verdict}"


def at_least(what: str, value: float, target: float, unit: str = "") -> str:
    verdict = "met" if value >= target else "missed"
    return f"{what}: {value:.2f}{unit}; target at least {target:g}{unit}: {verdict}"
