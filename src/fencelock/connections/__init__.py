"""The user's own SQL connections, of many drivers, behind one face.

A `Door` stands for a connection of sqlite3, psycopg, PyMySQL or asyncmy, or for a connection or session of
SQLAlchemy. `ask` and `ask_async` find the door of a connection, and do some work there:

    found = ask(conn, lambda door: door.run(f"SELECT text FROM {door.table('notes')} WHERE id = {MARK}", [7]))
    found.rows[0]["text"]

A statement has `MARK` where a value goes; each door writes that as its driver wants it, and values go beside
the statement, never into it. `MARK` is NUL, the one character that no name has: a table may be called `a:b`,
`a?` or `%s`. Rows are dicts, whatever row factory the connection has.

The doors of blocking drivers never suspend, so one coroutine serves both flavours. An asynchronous connection
of SQLAlchemy is used inside its own `run_sync`.

Not promised: nothing here ends a transaction, nor flushes a session before `flush` is called, and the errors
of a driver are raised as they are, but for a table that is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencelock.connections.asking import ask, ask_async, blocking_door, not_a_connection
from fencelock.connections.door import MARK, MYSQL, POSTGRESQL, SQLITE, Answer, Dialect, Door, Row
from fencelock.connections.drivers import SQLAlchemy, has, is_a, is_redis_client, settled
from fencelock.connections.statements import (
    LONGEST_WAIT,
    codes,
    lacks_right,
    lock_timeout,
    make_table,
    needs_table,
)

if TYPE_CHECKING:
    from fencelock.connections.asking import Asyncio as Asyncio
    from fencelock.connections.asking import Blocking as Blocking

__all__ = [
    "LONGEST_WAIT",
    "MARK",
    "MYSQL",
    "POSTGRESQL",
    "SQLITE",
    "Answer",
    "Dialect",
    "Door",
    "Row",
    "SQLAlchemy",
    "ask",
    "ask_async",
    "blocking_door",
    "codes",
    "has",
    "is_a",
    "is_redis_client",
    "lacks_right",
    "lock_timeout",
    "make_table",
    "needs_table",
    "not_a_connection",
    "settled",
]
