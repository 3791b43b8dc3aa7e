"""What statements have in common: the codes of errors, tables that are made or missing, bounded waits."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from fencelock.backends import RIGHTS
from fencelock.connections.door import MARK, MYSQL, POSTGRESQL, Door
from fencelock.errors import ConfigurationError

__all__ = ["LONGEST_WAIT", "codes", "lacks_right", "lock_timeout", "make_table", "needs_table"]

NO_TABLE = {"42P01", 1146}
"""PostgreSQL's and MySQL's codes for it. SQLite has words."""
FORBIDDEN = {"42501", 1044, 1142, 1143, 1227, 1370}
"""PostgreSQL's and MySQL's codes for a right that is missing."""
UNWRITABLE = ("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_CANTOPEN")
ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(7453010313000001)"
"""CREATE TABLE IF NOT EXISTS fails in PostgreSQL if two do it at the same moment."""
LONGEST_WAIT = 2**31 - 1
"""Milliseconds: more than that `lock_timeout` does not take."""


def codes(error: BaseException) -> set[str | int]:
    """Return the codes of a driver's error, also of one that SQLAlchemy has wrapped."""
    found: set[str | int] = set()
    for cause in (error, getattr(error, "orig", None)):
        found.update(getattr(cause, field, None) or "" for field in ("sqlstate", "pgcode"))
        found.update(code for code in getattr(cause, "args", ())[:1] if isinstance(code, int))
    return found


def lacks_right(error: BaseException) -> str:
    """Return what to say of an error that means a missing right; else ''. Asking again cannot help."""
    cause = getattr(error, "orig", None) or error
    if not FORBIDDEN & codes(error) and not getattr(cause, "sqlite_errorname", "").startswith(UNWRITABLE):
        return ""
    words = cause.args[1] if len(cause.args) > 1 and isinstance(cause.args[0], int) else cause
    return f"this user may not do that: {' '.join(str(words).split())[:200]} (see {RIGHTS})"


@contextmanager
def needs_table(table: str, otherwise: str) -> Iterator[None]:
    """Turn the error that a table is not there into one clear line."""
    try:
        yield
    except Exception as error:
        told = str(error).lower()
        missing = NO_TABLE & codes(error) or "no such table" in told
        if missing and table.rpartition(".")[2].lower() in told:
            raise ConfigurationError(otherwise) from error
        raise


async def make_table(door: Door, *statements: str) -> None:
    """Run statements that make a table if it is not there. Any number may do so at the same time."""
    if door.dialect == MYSQL and door.in_transaction():
        raise ConfigurationError(
            "making a table would commit your transaction: commit it or roll it back before create_table"
        )
    if door.dialect == POSTGRESQL:
        await door.run(ONE_AT_A_TIME)
    for statement in statements:
        await door.run(statement)


@asynccontextmanager
async def lock_timeout(door: Door, seconds: float) -> AsyncIterator[None]:
    """Wait for locks of PostgreSQL no longer than that, behind a savepoint: the transaction can go on.

    Rolling back to the savepoint undoes the setting, releasing the savepoint does not.
    """
    limit = max(1, min(LONGEST_WAIT, math.ceil(seconds * 1000)))
    await door.run("SAVEPOINT fencelock")
    try:
        (old,) = (await door.run("SELECT current_setting('lock_timeout') AS old")).rows
        setting = f"SELECT set_config('lock_timeout', {MARK}, true)"
        await door.run(setting, [f"{limit}ms"])
        yield
        await door.run(setting, [old["old"]])
    except BaseException:
        with suppress(Exception):  # the first error tells more
            await door.run("ROLLBACK TO SAVEPOINT fencelock")
            await door.run("RELEASE SAVEPOINT fencelock")
        raise
    await door.run("RELEASE SAVEPOINT fencelock")
