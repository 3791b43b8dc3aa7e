"""Ratios to the limit and to the best peer, as verdicts: with a target, or only told.

A verdict has a key where it has a target: the docs find it, and the reason for a miss, by that of the result
and its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.measure import Figure, best_peer, limit_of, named
from bench.verdict import Verdict

__all__ = [
    "at_least",
    "at_most",
    "best_peer",
    "named",
    "parts_of_limit",
    "ratio",
    "times_faster",
    "to_limit",
    "to_peer",
]


def to_limit(
    figures: Sequence[Figure], target: float | None, ours: str = "fencelock", key: str = "limit"
) -> list[Verdict]:
    """Say how far ours is from the limit; also by the fastest rounds, which noise touches least."""
    return ratio(f"{ours} to the limit", named(figures, ours), limit_of(figures), target, key)


def to_peer(figures: Sequence[Figure]) -> list[Verdict]:
    """Say how far fencelock is from the best peer."""
    peer = best_peer(figures)
    if peer is None:
        return []
    return ratio(f"fencelock to the best peer ({peer.name})", named(figures, "fencelock"), peer, None)


def ratio(
    what: str, ours: Figure | None, other: Figure | None, target: float | None, key: str = ""
) -> list[Verdict]:
    """Say how long ours takes, in times of the other; also by the fastest rounds."""
    if ours is None or other is None:
        return []
    several = len(ours.rounds) > 1
    aside = f"fastest rounds: {min(ours.rounds) / min(other.rounds):.2f}" if several else ""
    return [Verdict(what, ours.median / other.median, target, key=key, aside=aside)]


def times_faster(
    what: str, ours: Figure | None, other: Figure | None, target: float | None, key: str
) -> list[Verdict]:
    """Say how many times as fast ours is as the other."""
    if ours is None or other is None:
        return []
    return [Verdict(what, other.median / ours.median, target, "least", key=key)]


def parts_of_limit(figures: Sequence[Figure], target: float | None = None) -> list[Verdict]:
    """Say which part of the limit's rate each form of fencelock reaches, the first one with a target.

    Without a limit, say only how it compares with the best peer.
    """
    limit, peer = limit_of(figures), best_peer(figures)
    forms = [figure for figure in figures if figure.role == "fencelock"]
    said = []
    for form in forms:
        if limit is None:
            break
        wanted = target if form is forms[0] else None
        part = limit.median / form.median
        said.append(Verdict(f"{form.name}: part of the limit", part, wanted, "least", key="limit"))
    if peer is not None:
        said += [
            Verdict(f"{form.name}: times {peer.name}, the best peer", peer.median / form.median)
            for form in forms
        ]
    return said


def at_most(what: str, value: float, target: float, unit: str = "", *, key: str) -> Verdict:
    return Verdict(what, value, target, "most", unit, key)


def at_least(what: str, value: float, target: float, unit: str = "", *, key: str) -> Verdict:
    return Verdict(what, value, target, "least", unit, key)
