"""Locks that end with a transaction, as far as no server is needed. tests/acceptance has PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from fencelock import AcquireTimeout, ConfigurationError, Unsupported
from fencelock.connections import POSTGRESQL, Answer, Door
from fencelock.runtime import blocking
from fencelock.sql import (
    _acquire,
    _try,
    _wanted,
    advisory_xact_lock,
    try_advisory_xact_lock,
    try_advisory_xact_lock_async,
)


class Failing(Door):
    """A door behind which a statement fails with a code of PostgreSQL's."""

    dialect = POSTGRESQL

    def __init__(self, code: str) -> None:
        self._code = code

    async def run(self, statement: str, values: Sequence[Any] = ()) -> Answer:
        class DriversError(Exception):
            sqlstate = self._code

        raise DriversError(statement)

    def in_transaction(self) -> bool:
        return True

    def autocommits(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        ("55P03", AcquireTimeout, "lock 'x' not acquired"),
        ("25P02", ConfigurationError, "the transaction has failed: roll it back"),
        ("40P01", Exception, "advisory_xact_lock"),
    ],
)
def test_errors_of_the_driver(code: str, error: type[Exception], message: str) -> None:
    for step in (_acquire, _try):
        with pytest.raises(error, match=message) as caught:
            blocking.run(step(Failing(code), _wanted("x", "", False, None)))  # type: ignore[arg-type]
        told: Any = caught.value if error is Exception else caught.value.__cause__
        assert told.sqlstate == code


def test_sqlite_says_that_it_cannot() -> None:
    words = "sqlite backend does not support locks that end with a transaction"
    with contextlib.closing(sqlite3.connect(":memory:")) as conn:
        for call in (advisory_xact_lock, try_advisory_xact_lock):
            with pytest.raises(Unsupported, match=words):
                call(conn, "x")


def test_what_is_no_connection() -> None:
    wrong: Any = object()
    with pytest.raises(ConfigurationError, match="is not a psycopg connection"):
        advisory_xact_lock(wrong, "x")
    with pytest.raises(ConfigurationError, match="is not a psycopg AsyncConnection"):
        asyncio.run(try_advisory_xact_lock_async(wrong, "x"))
