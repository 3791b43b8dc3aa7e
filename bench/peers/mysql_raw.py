"""The limits on MySQL and MariaDB, and what people write by hand: PyMySQL's connection, without its cursors.

    try      GET_LOCK without waiting, and RELEASE_LOCK: what the wire, the driver and the server take
    wait     the same, waiting in the server
    row      a row is inserted, unless one is there that has not expired, and deleted: two durable commits
    polled   the same, tried again after `sleep` seconds

None of them has a queue of its own, a token or renewal.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pymysql  # type: ignore[import-untyped]

from bench.peers import TTL, Make

__all__ = ["blocking", "place"]

TABLE = """
CREATE TABLE IF NOT EXISTS bench_lock
(name VARCHAR(200) PRIMARY KEY, owner VARCHAR(32) NOT NULL, deadline DATETIME(6) NOT NULL) ENGINE = InnoDB
"""
INSERT = """
INSERT INTO bench_lock VALUES ('{name}', '{owner}', NOW(6) + INTERVAL {ttl} SECOND)
ON DUPLICATE KEY UPDATE
owner = IF(deadline < NOW(6), VALUES(owner), owner),
deadline = IF(owner = VALUES(owner), VALUES(deadline), deadline)
"""
DELETE = "DELETE FROM bench_lock WHERE name = '{name}' AND owner = '{owner}'"
PATIENCE = 60
DEADLOCK = 1213


def place(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": parts.password,
        "database": parts.path[1:],
        "autocommit": True,
    }


class Section:
    def __init__(self, url: str) -> None:
        self.connection: Any = pymysql.connect(**place(url))

    def answer(self, statement: bytes) -> Any:
        """The first value of the first row."""
        self.connection.query(statement)
        return self.connection._result.rows[0][0]


class GetLock(Section):
    def __init__(self, url: str, name: str, patience: int = 0) -> None:
        super().__init__(url)
        self.take = f"SELECT GET_LOCK('{name}', {patience})".encode()
        self.give = f"SELECT RELEASE_LOCK('{name}')".encode()

    def __enter__(self) -> None:
        if self.answer(self.take) != 1:
            raise RuntimeError("it was held already")

    def __exit__(self, *_: object) -> None:
        if self.answer(self.give) != 1:
            raise RuntimeError("it was not held")


class Row(Section):
    def __init__(self, url: str, name: str) -> None:
        super().__init__(url)
        owner = os.urandom(8).hex()
        self.take = INSERT.format(name=name, owner=owner, ttl=TTL).encode()
        self.give = DELETE.format(name=name, owner=owner).encode()

    def __enter__(self) -> None:
        if not self.try_it():
            raise RuntimeError("the row was there already")

    def try_it(self) -> bool:
        return bool(self.connection.query(self.take))

    def __exit__(self, *_: object) -> None:
        while not self.leave():
            pass

    def leave(self) -> bool:
        try:
            if not self.connection.query(self.give):
                raise RuntimeError("the row was gone")
        except pymysql.OperationalError as error:
            if error.args[0] != DEADLOCK:
                raise
            return False
        return True


class PolledRow(Row):
    def __init__(self, url: str, name: str, sleep: float) -> None:
        super().__init__(url, name)
        self.sleep = sleep

    def __enter__(self) -> None:
        while not self.try_it():
            time.sleep(self.sleep)

    def try_it(self) -> bool:
        try:
            return super().try_it()
        except pymysql.OperationalError as error:
            if error.args[0] != DEADLOCK:
                raise
            return False


KINDS: dict[str, Callable[..., Any]] = {
    "try": GetLock,
    "wait": partial(GetLock, patience=PATIENCE),
    "row": Row,
    "polled": PolledRow,
}


@contextmanager
def blocking(url: str, kind: str = "try", **options: Any) -> Iterator[Make]:
    setup = Section(url)
    setup.connection.query(TABLE)
    setup.connection.close()
    section = partial(KINDS[kind], url, **options)
    made: list[Any] = []

    def make(name: str) -> Any:
        made.append(section(name))
        return made[-1]

    yield make
    for one in made:
        one.connection.close()
