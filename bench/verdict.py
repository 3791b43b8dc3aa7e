"""What was wanted of a figure, what it is, and whether that is enough: for the terminal and for the docs.

A value is judged as it is shown, with two digits behind the point: 1.404 meets a target of 1.4, since the
table says 1.40. A verdict without a target is a figure that is worth telling; it is neither met nor missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

__all__ = ["Verdict"]


@dataclass(frozen=True)
class Verdict:
    """One value, and its target if there is one."""

    what: str
    value: float
    target: float | None = None
    bound: Literal["most", "least"] = "most"
    unit: str = ""
    key: str = ""
    """By which the docs know it; it stays when the words change."""
    aside: str = ""
    """What else there is to say, shown in brackets."""

    @property
    def met(self) -> bool | None:
        """Return whether the target is reached, None if there is none."""
        if self.target is None:
            return None
        shown = round(self.value, 2)
        return shown <= self.target if self.bound == "most" else shown >= self.target

    @property
    def shown(self) -> str:
        """Return the value with its unit; a count has nothing behind the point."""
        digits = 0 if float(self.value).is_integer() else 2
        return f"{self.value:,.{digits}f}{self.unit}"

    @property
    def wanted(self) -> str:
        """Return the target in words, '' if there is none."""
        return "" if self.target is None else f"at {self.bound} {self.target:,g}{self.unit}"

    @property
    def word(self) -> str:
        return {True: "met", False: "missed", None: ""}[self.met]

    def __str__(self) -> str:
        judged = f"; target {self.wanted}: {self.word}" if self.wanted else ""
        return f"{self.what}: {self.shown}{judged}" + (f" ({self.aside})" if self.aside else "")

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON keeps it, the verdict included."""
        return {**asdict(self), "met": self.met}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return what `as_dict` has kept; whether it is met is judged anew."""
        return cls(**{key: value for key, value in data.items() if key != "met"})
