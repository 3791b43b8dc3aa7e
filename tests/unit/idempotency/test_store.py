"""Claims with a ttl and a token, on SQLite, in both flavours."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fencelock import ConfigurationError, LeaseLost, StaleToken
from fencelock.connections import Answer, Dialect, Door
from fencelock.connections.steps import begun
from fencelock.idempotency import (
    AsyncStore,
    Attempt,
    Crashed,
    Done,
    FingerprintChanged,
    InProgress,
    Store,
    create_table,
    fingerprint,
)
from fencelock.runtime.blocking import run

FLAVOURS = ["blocking", "asyncio"]


class Desk:
    """A store of either flavour, used in the same way."""

    def __init__(self, flavour: str, connect: Callable[[], Any], **options: Any) -> None:
        self.is_async = flavour == "asyncio"
        self.store: Any = (
            AsyncStore(connect, threads=True, **options) if self.is_async else Store(connect, **options)
        )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            found = getattr(self.store, name)(*args, **options)
            return asyncio.run(found) if self.is_async else found

        return call

    def effect(self, function: Callable[[Attempt], Any]) -> Callable[[Attempt], Any]:
        async def as_task(attempt: Attempt) -> Any:
            return await asyncio.to_thread(function, attempt)

        return as_task if self.is_async else function


@pytest.fixture
def connect(tmp_path: Path) -> Callable[[], sqlite3.Connection]:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "keys.db", timeout=30)

    with connect() as conn:
        create_table(conn)
    conn.close()
    return connect


@pytest.fixture(params=FLAVOURS)
def desk(request: pytest.FixtureRequest, connect: Callable[[], Any]) -> Desk:
    return Desk(request.param, connect, ttl=0.3)


def test_it_is_done_once(desk: Desk) -> None:
    calls: list[Attempt] = []
    effect = desk.effect(lambda attempt: calls.append(attempt) or {"n": len(calls)})
    for _ in range(3):
        assert desk.run("k", "f", effect) == {"n": 1}
    assert [call.tries for call in calls] == [1]
    with pytest.raises(FingerprintChanged):
        desk.run("k", "g", effect)


def test_those_who_come_meanwhile_are_told_or_wait(desk: Desk, connect: Callable[[], Any]) -> None:
    attempt = desk.begin("k", "f")
    assert isinstance(attempt, Attempt)
    desk.extend(attempt, 30)
    with pytest.raises(InProgress, match=r"key 'k' is in progress elsewhere \(it has .*s left\)"):
        desk.begin("k", "f", timeout=0)
    with pytest.raises(FingerprintChanged):
        desk.begin("k", "g", timeout=0)
    began = time.monotonic()
    with pytest.raises(InProgress):
        desk.begin("k", "f", timeout=0.3)
    assert 0.29 <= time.monotonic() - began < 20
    timer = threading.Timer(0.2, lambda: Store(connect).finish(attempt, "result"))
    timer.start()
    assert desk.begin("k", "f", timeout=10) == Done("result")
    timer.join()


def test_a_crash_is_seen_and_recovered(desk: Desk) -> None:
    first = desk.begin("k", "f")
    assert not first.is_recovery
    time.sleep(0.35)
    (seen,) = desk.crashed()
    assert isinstance(seen, Crashed) and (seen.key, seen.tries) == ("k", 1) and 0 <= seen.since < 20
    with pytest.raises(FingerprintChanged):
        desk.begin("k", "g")
    calls: list[tuple[str, Attempt]] = []
    result = desk.run(
        "k",
        "f",
        desk.effect(lambda attempt: calls.append(("effect", attempt))),
        recover=desk.effect(lambda attempt: calls.append(("recover", attempt)) or "found"),
    )
    assert result == "found"
    ((kind, second),) = calls
    assert kind == "recover" and second.is_recovery and second.tries == 2 and second.token > first.token
    assert desk.crashed() == []


def test_a_paused_caller_cannot_store_over_its_successor(desk: Desk) -> None:
    first = desk.begin("k", "f")
    time.sleep(0.35)
    second = desk.begin("k", "f")
    for late in (
        lambda: desk.finish(first, "late"),
        lambda: desk.extend(first, 5),
        lambda: desk.abandon(first),
    ):
        with pytest.raises(StaleToken) as caught:
            late()
        assert (caught.value.token, caught.value.newest) == (first.token, second.token)
    desk.finish(second, "right")
    with pytest.raises(StaleToken):
        desk.finish(first, "late")
    with pytest.raises(LeaseLost, match="ended already"):
        desk.finish(second, "twice")
    assert desk.begin("k", "f") == Done("right")


def test_a_token_is_above_the_last_one_whatever_the_clock_says(
    desk: Desk, connect: Callable[[], Any]
) -> None:
    first = desk.begin("k", "f")
    ahead = first.token + 10**12  # as if the clock had been ahead, and was set back
    with connect() as conn:
        conn.execute("UPDATE fencelock_idempotency SET token = ?, deadline = 0", (ahead,))
    conn.close()
    assert desk.begin("k", "f").token == ahead + 1


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_an_error_breaks_the_attempt_off(flavour: str, connect: Callable[[], Any]) -> None:
    desk = Desk(flavour, connect, ttl=60)

    def fail(attempt: Attempt) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        desk.run("k", "f", desk.effect(fail))
    began = time.monotonic()
    assert desk.run("k", "f", desk.effect(lambda attempt: attempt.tries)) == 2
    assert time.monotonic() - began < 30, "at once, not after the ttl"


def test_an_attempt_whose_key_was_deleted(desk: Desk, connect: Callable[[], Any]) -> None:
    attempt = desk.begin("k", "f")
    with connect() as conn:
        conn.execute("DELETE FROM fencelock_idempotency")
    conn.close()
    with pytest.raises(LeaseLost, match="deleted"):
        desk.finish(attempt, 1)
    assert desk.begin("k", "f").token > attempt.token


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_result_is_kept_for_its_time(flavour: str, connect: Callable[[], Any]) -> None:
    desk = Desk(flavour, connect, retention=0.2)
    assert desk.run("k", "f", desk.effect(lambda _: 1)) == 1
    assert desk.run("k", "f", desk.effect(lambda _: 2)) == 1
    time.sleep(0.25)
    assert desk.run("k", "other", desk.effect(lambda attempt: attempt.tries)) == 1


def test_namespaces_are_apart(connect: Callable[[], Any]) -> None:
    assert Store(connect, namespace="a").run("bk", "f", lambda _: 1) == 1
    assert Store(connect, namespace="ab").run("k", "f", lambda _: 2) == 2
    assert Store(connect).run("abk", "f", lambda _: 3) == 3


def test_names_do_not_meet(connect: Callable[[], Any]) -> None:
    store = Store(connect)
    names = ["a", "A", "a ", "á", "á", "a%", "a/b", "a:b", "{a}b", "%2F"]
    for name in names:
        assert store.run(name, "f", lambda _, name=name: name) == name  # type: ignore[misc]


def test_connections_in_autocommit_are_as_good(tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "bare.db", isolation_level=None)

    conn = connect()
    create_table(conn)
    conn.close()
    seen: list[str] = []

    def watched() -> sqlite3.Connection:
        conn = connect()
        conn.set_trace_callback(lambda words: seen.append(words.partition(" ")[0]))
        return conn

    store = Store(watched)
    assert [store.run("k", "f", lambda attempt: attempt.tries) for _ in range(2)] == [1, 1]
    claimed = ["SELECT", "BEGIN", "INSERT", "SELECT", "UPDATE", "COMMIT"]
    assert seen == [*claimed, "BEGIN", "SELECT", "UPDATE", "COMMIT", "SELECT"]


def test_nobody_comes_between_the_steps_of_one_in_autocommit(tmp_path: Path) -> None:
    """What was looked at is locked until it is written, though the connection has no transaction."""
    file = tmp_path / "bare.db"
    kept_out: list[str] = []

    def meddle(statement: str) -> None:
        if statement.startswith("UPDATE fencelock_idempotency"):
            other = sqlite3.connect(file, timeout=0, isolation_level=None)
            try:
                other.execute("UPDATE fencelock_idempotency SET token = token + 1")
            except sqlite3.OperationalError as error:
                kept_out.append(str(error))
            finally:
                other.close()

    def connect() -> sqlite3.Connection:
        conn = sqlite3.connect(file, isolation_level=None)
        conn.set_trace_callback(meddle)
        return conn

    conn = connect()
    create_table(conn)
    conn.close()
    assert Store(connect).run("k", "f", lambda attempt: attempt.tries) == 1
    assert kept_out == ["database is locked"] * 2


class Bare(Door):
    """A door of a connection in autocommit, which writes down what it is asked."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.asked: list[str] = []

    def in_transaction(self) -> bool:
        return len(self.asked) > 0

    def autocommits(self) -> bool:
        return True

    async def run(self, statement: str, values: Sequence[Any] = ()) -> Answer:
        self.asked.append(statement)
        return Answer([])


@pytest.mark.parametrize(
    ("dialect", "word"),
    [("sqlite", "BEGIN IMMEDIATE"), ("postgresql", "BEGIN"), ("mysql", "START TRANSACTION")],
)
def test_a_step_in_autocommit_is_a_transaction(dialect: Dialect, word: str) -> None:
    async def work(door: Door) -> str:
        await door.run("the work")
        return "done"

    door = Bare(dialect)
    assert run(begun(door, work, None)) == "done"
    assert door.asked == [word, "the work"]


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (5, {}, "neither a client of redis-py nor a function"),
        (print, {"ttl": 0}, "no time at all"),
        (print, {"ttl": -1}, "ttl=-1"),
        (print, {"retention": "x"}, "retention='x'"),
        (print, {"namespace": 3}, "not a string"),
    ],
)
def test_bad_input(target: Any, options: dict[str, Any], message: str) -> None:
    for cls in (Store, AsyncStore):
        with pytest.raises(ConfigurationError, match=message):
            cls(target, **options)


def test_what_is_no_connection_and_no_attempt(connect: Callable[[], Any]) -> None:
    with pytest.raises(ConfigurationError, match="is not a connection"):
        Store(lambda: 5).begin("k", "f")
    with pytest.raises(ConfigurationError, match="is no attempt"):
        Store(connect).finish("k", 1)  # type: ignore[arg-type]


def test_a_fingerprint_is_of_what_it_is_given() -> None:
    assert fingerprint("a", "b") != fingerprint("ab")
    assert fingerprint(b"1") != fingerprint("1") != fingerprint(1)
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    with pytest.raises(ConfigurationError, match="not JSON"):
        fingerprint(object())
