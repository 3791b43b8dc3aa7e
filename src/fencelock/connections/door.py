"""What is asked of a connection, whatever driver made it: statements, rows, names, and its transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from fencelock.errors import ConfigurationError
from fencelock.names import shown

__all__ = ["MARK", "MYSQL", "POSTGRESQL", "SQLITE", "Answer", "Dialect", "Door", "Row"]

Dialect = Literal["sqlite", "postgresql", "mysql"]
SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"
MYSQL: Final = "mysql"
Row = dict[str, Any]
"""A row, by the names of its columns."""

MARK = "\0"
"""Where a value goes."""
LONGEST_NAME = 63
"""Bytes. PostgreSQL cuts off what is longer, and another name may begin with the same."""
QUOTES: dict[Dialect, str] = {SQLITE: "`", POSTGRESQL: '"', MYSQL: "`"}
"""SQLite takes "x" for a string where no column x is, and then compares with that; `x` is always a name."""


class Answer(NamedTuple):
    """What a statement did: the rows it gave, how many it touched, and MySQL's LAST_INSERT_ID after it."""

    rows: list[Row]
    touched: int = 0
    last_id: int = 0

    @property
    def row(self) -> Row | None:
        """The first of its rows, if any."""
        return self.rows[0] if self.rows else None


class Door(ABC):
    """A connection of some driver."""

    dialect: Dialect
    advice = "begin one"

    @abstractmethod
    async def run(self, statement: str, values: Sequence[Any] = ()) -> Answer:
        """Run a statement that has `MARK` for each value."""

    @abstractmethod
    def in_transaction(self) -> bool:
        """Whether a transaction is open at the server, as far as the driver has heard."""

    @abstractmethod
    def autocommits(self) -> bool:
        """Whether nobody begins a transaction before the next statement."""

    def commits_at_once(self) -> bool:
        """Whether the next statement would be a transaction of its own."""
        return self.autocommits() and not self.in_transaction()

    def check_transaction(self, otherwise: str) -> None:
        """Raise `ConfigurationError` where no transaction would hold statements together."""
        if self.commits_at_once():
            raise ConfigurationError(f"there is no transaction (autocommit), so {otherwise}: {self.advice}")

    def flush(self) -> None:
        """Write what a session has changed. For who looks at the user's rows; a lock comes before writes."""

    def quoted(self, name: str, what: str) -> str:
        """Return a name as a statement has it: as it is stored, case and all."""
        try:
            fits = isinstance(name, str) and MARK not in name and 0 < len(name.encode()) <= LONGEST_NAME
        except UnicodeEncodeError:  # a lone surrogate
            fits = False
        if not fits:
            raise ConfigurationError(
                f"{what}={shown(name)} is no name: give 1 to {LONGEST_NAME} bytes of UTF-8, without NUL"
            )
        quote = QUOTES[self.dialect]
        return f"{quote}{name.replace(quote, quote * 2)}{quote}"

    def table(self, name: str) -> str:
        """Return a table's name, with its schema if it has one, as a statement has it."""
        parts = name.split(".") if isinstance(name, str) else [name]
        if len(parts) > 2:
            raise ConfigurationError(f"table={shown(name)} has too many dots: give 'table' or 'schema.table'")
        return ".".join(self.quoted(part, "table") for part in parts)
