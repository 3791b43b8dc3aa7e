"""What an optimistic write answers: it was done, or somebody else came first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

from fencelock.errors import Conflict, FencelockError

__all__ = ["Conflicted", "NoSuchRow", "Updated"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Updated(Generic[R]):
    """The write was done; `row` is what stands there now.

    Example:
        >>> Updated({"id": 1, "left": 9, "version": 2}).expect()["left"]
        9
    """

    row: R

    def expect(self) -> R:
        """Return the row."""
        return self.row


@dataclass(frozen=True, slots=True)
class Conflicted(Generic[R]):
    """Nothing was written: the version is not the one that was read. `row` is what stands there now.

    Example:
        >>> Conflicted({"id": 1, "left": 3, "version": 8}, "stock").expect()
        Traceback (most recent call last):
        fencelock.errors.Conflict: 'stock' was changed by someone else since it was read
    """

    row: R
    resource: str

    def expect(self) -> NoReturn:
        """Raise `Conflict`, which carries the row."""
        raise Conflict(resource=self.resource, current=self.row)


class NoSuchRow(FencelockError, LookupError):
    """There is no row of this key: it was never there, or it is gone."""

    def __init__(self, *, table: str, key: Mapping[str, Any]) -> None:
        super().__init__(f"table {table!r} has no row with {said(key)}")
        self.table = table
        self.key = dict(key)


def said(key: Mapping[str, Any]) -> str:
    """Return a key as a message shows it."""
    return " and ".join(f"{name}={value!r}" for name, value in key.items())
