"""How a ratio and a target are put into words."""

from __future__ import annotations

from collections.abc import Sequence

from bench.measure import Figure

__all__ = ["at_least", "at_most", "best_peer", "named", "parts_of_limit", "ratio", "to_limit", "to_peer"]


def named(figures: Sequence[Figure], name: str) -> Figure | None:
    return next((figure for figure in figures if figure.name == name), None)


def best_peer(figures: Sequence[Figure]) -> Figure | None:
    peers = [figure for figure in figures if figure.role == "peer"]
    return min(peers, key=lambda figure: figure.median, default=None)


def to_limit(figures: Sequence[Figure], target: float | None) -> list[str]:
    """Say how far holdfast is from the limit; also by the fastest rounds, which noise touches least."""
    limit = next((figure for figure in figures if figure.role == "limit"), None)
    return ratio("holdfast to the limit", named(figures, "holdfast"), limit, target)


def to_peer(figures: Sequence[Figure]) -> list[str]:
    """Say how far holdfast is from the best peer."""
    peer = best_peer(figures)
    if peer is None:
        return []
    return ratio(f"holdfast to the best peer ({peer.name})", named(figures, "holdfast"), peer, None)


def ratio(what: str, ours: Figure | None, other: Figure | None, target: float | None) -> list[str]:
    """Say how long ours takes, in times of the other; also by the fastest rounds."""
    if ours is None or other is None:
        return []
    value = ours.median / other.median
    shown = f"{what}: {value:.2f}" if target is None else at_most(what, value, target)
    return [f"{shown} (fastest rounds: {min(ours.rounds) / min(other.rounds):.2f})"]


def parts_of_limit(figures: Sequence[Figure], target: float | None = None) -> list[str]:
    """Say which part of the limit's rate each form of holdfast reaches, the first one with a target.

    Without a limit, say only how it compares with the best peer.
    """
    limit, peer = next((one for one in figures if one.role == "limit"), None), best_peer(figures)
    forms = [figure for figure in figures if figure.role == "holdfast"]
    notes = []
    for form in forms:
        if limit is None:
            break
        what, part = f"{form.name}: part of the limit", limit.median / form.median
        is_aimed = target is not None and form is forms[0]
        notes.append(at_least(what, part, target or 0) if is_aimed else f"{what}: {part:.2f}")
    if peer is not None:
        notes += [
            f"{form.name}: {peer.median / form.median:.2f} times {peer.name}, the best peer" for form in forms
        ]
    return notes


def at_most(what: str, value: float, target: float, unit: str = "") -> str:
    verdict = "met" if value <= target else "missed"
    return f"{what}: {value:.2f}{unit}; target at most {target:g}{unit}: {verdict}"


def at_least(what: str, value: float, target: float, unit: str = "") -> str:
    verdict = "met" if value >= target else "missed"
    return f"{what}: {value:.2f}{unit}; target at least {target:g}{unit}: {verdict}"
