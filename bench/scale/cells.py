"""How the page on scale writes figures and tables."""

from __future__ import annotations

__all__ = ["few", "room", "row", "seconds", "table", "two"]


def seconds(value: float) -> str:
    """Return a time with two digits.

    Example:
        >>> [seconds(0.0000042), seconds(0.00042), seconds(0.0042), seconds(0.42), seconds(4.2)]
        ['4.2 µs', '420 µs', '4.2 ms', '420 ms', '4.2 s']
    """
    for size, unit in ((1, "s"), (1e-3, "ms")):
        if value >= size:
            return f"{two(value / size)} {unit}"
    return f"{two(value * 1e6)} µs"


def two(value: float) -> str:
    """Return a number with two digits."""
    return f"{float(f'{value:.2g}'):,g}"


def table(*heads: str) -> list[str]:
    return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def room(value: float) -> str:
    """Return so many bytes."""
    return f"{two(value / 1024)} KiB" if value >= 1024 else "not seen"


def few(value: float) -> str:
    """Return how many there are, where a half counts.

    Example:
        >>> [few(2.03), few(0.026), few(1.5), few(-0.2)]
        ['2', '0', '1.5', '0']
    """
    return f"{max(round(value, 1), 0):g}"
