"""Once, inside a transaction, on SQLite."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from fencelock import ConfigurationError
from fencelock.idempotency import FingerprintChanged, create_table, once, purge


@pytest.fixture
def file(tmp_path: Path) -> str:
    name = str(tmp_path / "keys.db")
    with connected(name) as conn:
        create_table(conn)
        create_table(conn)
        conn.execute("CREATE TABLE ledger (amount INTEGER)")
    conn.close()
    return name


def connected(name: str, **options: Any) -> sqlite3.Connection:
    return sqlite3.connect(name, **options)


def paid(conn: sqlite3.Connection) -> list[int]:
    return [row[0] for row in conn.execute("SELECT amount FROM ledger")]


def test_the_second_time_gets_the_result_of_the_first(file: str) -> None:
    conn = connected(file)

    def pay() -> dict[str, int]:
        conn.execute("INSERT INTO ledger VALUES (5)")
        return {"receipt": 1}

    for _ in range(3):
        assert once(conn, "k", "f", pay) == {"receipt": 1}
        conn.commit()
    assert paid(conn) == [5]
    with pytest.raises(FingerprintChanged, match="another fingerprint"):
        once(conn, "k", "g", pay)
    assert once(conn, "k", "g", lambda: "other", namespace="elsewhere") == "other"
    conn.close()


def test_a_rollback_undoes_all_of_it(file: str) -> None:
    conn = connected(file)

    def fail() -> None:
        conn.execute("INSERT INTO ledger VALUES (5)")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        once(conn, "k", "f", fail)
    conn.rollback()
    assert paid(conn) == []
    assert once(conn, "k", "another", lambda: None) is None  # nothing is known of the first
    conn.close()


def test_an_error_that_is_committed_is_no_result(file: str) -> None:
    conn = connected(file)

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        once(conn, "k", "f", fail)
    conn.commit()
    assert once(conn, "k", "f", lambda: 1) == 1
    conn.close()


def test_threads_with_one_key_do_it_once(file: str) -> None:
    results: list[Any] = []

    def work() -> None:
        conn = connected(file, timeout=30)
        results.append(once(conn, "k", "f", lambda: conn.execute("INSERT INTO ledger VALUES (1)").rowcount))
        conn.commit()
        conn.close()

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1] * 16
    conn = connected(file)
    assert paid(conn) == [1]
    conn.close()


def test_a_result_is_kept_for_its_time_and_purged(file: str) -> None:
    conn = connected(file)
    assert once(conn, "k", "f", lambda: 1, retention=0) == 1
    assert once(conn, "k", "g", lambda: 2, retention=60) == 2  # the first is over: a new request
    assert once(conn, "k", "g", lambda: 3) == 2
    once(conn, "old", "f", lambda: 1, retention=0)
    assert purge(conn) == 1
    assert purge(conn) == 0
    conn.close()


def test_the_wait_is_the_callers(file: str) -> None:
    first, second = connected(file), connected(file, timeout=60)
    once(first, "k", "f", lambda: 1)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        once(second, "k", "f", lambda: 2, timeout=0.1)
    assert second.execute("PRAGMA busy_timeout").fetchone() == (60_000,)
    first.commit()
    assert once(second, "k", "f", lambda: 2, timeout=0.1) == 1
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": ""}, "key='' is empty"),
        ({"key": "x" * 513}, "513 bytes"),
        ({"fingerprint": ""}, "tells nothing"),
        ({"fingerprint": None}, "tells nothing"),
        ({"timeout": -1}, "timeout=-1"),
        ({"retention": "x"}, "retention='x'"),
        ({"namespace": "a\0"}, "NUL"),
    ],
)
def test_bad_input_begins_nothing(file: str, change: dict[str, Any], message: str) -> None:
    conn = connected(file)
    given = {"key": "k", "fingerprint": "f", "effect": lambda: pytest.fail("it was run"), **change}
    with pytest.raises(ConfigurationError, match=message):
        once(conn, given.pop("key"), given.pop("fingerprint"), given.pop("effect"), **given)
    assert not conn.in_transaction
    conn.close()


def test_a_result_that_is_not_json(file: str) -> None:
    conn = connected(file)
    with pytest.raises(ConfigurationError, match=r"result=.* is not JSON"):
        once(conn, "k", "f", object)
    with pytest.raises(ConfigurationError, match="are possible"):
        once(conn, "k", "f", lambda: "x" * 2_000_000)
    conn.close()


def test_there_must_be_a_transaction_and_a_table(file: str, tmp_path: Path) -> None:
    bare = connected(file, isolation_level=None)
    with pytest.raises(ConfigurationError, match="no transaction"):
        once(bare, "k", "f", lambda: 1)
    bare.execute("BEGIN")
    assert once(bare, "k", "f", lambda: 1) == 1
    bare.close()
    empty = connected(str(tmp_path / "empty.db"))
    with pytest.raises(ConfigurationError, match=r"no table fencelock_idempotency: .*create_table\(conn\)"):
        once(empty, "k", "f", lambda: 1)
    empty.close()


def test_on_a_connection_of_sqlalchemy(file: str) -> None:
    engine = create_engine(f"sqlite:///{file}")
    for _ in range(2):
        with engine.begin() as conn:
            assert (
                once(conn, "k", "f", lambda: conn.execute(text("INSERT INTO ledger VALUES (1)")).rowcount)
                == 1
            )
    with engine.begin() as conn:
        assert conn.execute(text("SELECT count(*) FROM ledger")).scalar() == 1
    engine.dispose()
