"""Bad input: each is one line that names the cause, without the password, and never a grant.

Both flavours and both forms, and the command line: one line, no traceback.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from cli_helpers import fencelock_command
from mysql_desk import FLAVOURS, ask, desk_for, getlock, residue, tables_locked
from tools.servers import start

from fencelock import BackendUnavailable, Client, ConfigurationError, FencelockError

SECRET = "s3cr3t-and-never-shown"
UNAVAILABLE, USAGE = 69, 64
FORMS = ["mysql", "mysql+getlock"]


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("mariadb", settings={"log-bin": "bin", "server-id": "1"}) as group:
        with Client(group.url) as locks, locks.lock("ready"):
            pass
        with Client(getlock(group.url)) as locks, locks.lock("ready"):
            pass
        yield group.members[0]


def url_of(
    server: Any, user: str = "fencelock:reef-knot", database: str = "fencelock", form: str = "mysql"
) -> str:
    return f"{form}://{user}@{server.address}/{database}"


def with_user(server: Any, *grants: str, database: str = "fencelock") -> str:
    ask(
        server,
        "DROP USER IF EXISTS worker",
        f"CREATE USER worker IDENTIFIED BY '{SECRET}'",
        *(f"GRANT {grant} TO worker" for grant in grants),
    )
    return f"worker:{SECRET}"


def wrong_password(server: Any) -> tuple[str, str]:
    return f"fencelock:{SECRET}", "fencelock"


def no_such_database(server: Any) -> tuple[str, str]:
    return "fencelock:reef-knot", "nowhere"


def no_rights_at_all(server: Any) -> tuple[str, str]:
    return with_user(server, "SELECT ON fencelock.*"), "fencelock"


def may_not_create(server: Any) -> tuple[str, str]:
    ask(server, "CREATE DATABASE IF NOT EXISTS empty")
    return with_user(server, "SELECT, INSERT, UPDATE, DELETE, EXECUTE ON empty.*"), "empty"


def newer_tables(server: Any) -> tuple[str, str]:
    ask(
        server,
        "CREATE DATABASE IF NOT EXISTS newer",
        "CREATE TABLE IF NOT EXISTS newer.fencelock_schema (version INT PRIMARY KEY)",
        "CREATE TABLE IF NOT EXISTS newer.fencelock_getlock (version INT PRIMARY KEY)",
        "INSERT IGNORE INTO newer.fencelock_schema VALUES (1), (99)",
        "INSERT IGNORE INTO newer.fencelock_getlock VALUES (1), (99)",
    )
    return "fencelock:reef-knot", "newer"


def statement_time(server: Any) -> tuple[str, str]:
    user = with_user(server, "ALL ON fencelock.*")
    ask(server, "GRANT USAGE ON *.* TO worker WITH MAX_STATEMENT_TIME 0.2")
    return user, "fencelock"


def too_many(server: Any) -> tuple[str, str]:
    user = with_user(server, "ALL ON fencelock.*")
    ask(server, "GRANT USAGE ON *.* TO worker WITH MAX_CONNECTIONS_PER_HOUR 1")
    with pytest.raises(FencelockError), Client(url_of(server, user)) as locks:
        for number in range(3):
            locks._session.backend._pool._idle.clear()
            locks.lock(f"one-{number}").acquire(timeout=1).release()
    return user, "fencelock"


CASES: dict[str, tuple[Callable[[Any], tuple[str, str]], type[FencelockError], str]] = {
    "password": (wrong_password, BackendUnavailable, "user name or the password is wrong"),
    "database": (no_such_database, BackendUnavailable, "no such database"),
    "rights": (no_rights_at_all, BackendUnavailable, "this user may not do that"),
    "create": (may_not_create, BackendUnavailable, "fencelock schema --print URL"),
    "newer": (newer_tables, ConfigurationError, "of version 99, this fencelock knows 1: install a newer one"),
    "statement time": (statement_time, BackendUnavailable, "max_statement_time"),
    "connections": (too_many, BackendUnavailable, "used up its allowance"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_one_clear_line(server: Any, case: str, form: str) -> None:
    make, kind, words = CASES[case]
    user, database = make(server)
    with tables_locked(server) if case == "statement time" else nullcontext():
        one_clear_line(server, url_of(server, user, database, form), kind, words)
    assert residue(server) == 0


def one_clear_line(server: Any, url: str, kind: type[FencelockError], words: str) -> None:
    for flavour in FLAVOURS:
        with desk_for(flavour, url) as desk, pytest.raises(kind) as caught:
            desk(desk.locks.lock("job").try_acquire)
        text = str(caught.value)
        assert words in text
        assert "\n" not in text
        assert SECRET not in text
        assert SECRET not in repr(desk.locks)
        if isinstance(caught.value, BackendUnavailable):
            assert server.address in text
            assert caught.value.__cause__ is not None
    told = fencelock_command(url, "run", "--try", "job", "--", "true")
    assert told.returncode == (USAGE if kind is ConfigurationError else UNAVAILABLE), told.stderr
    assert words in told.stderr
    assert "Traceback" not in told.stderr
    assert SECRET not in told.stderr + told.stdout


def test_nothing_is_half_done_without_rights(server: Any) -> None:
    user, database = may_not_create(server)
    with Client(url_of(server, user, database)) as locks, pytest.raises(BackendUnavailable):
        locks.lock("job").try_acquire()
    assert ask(server, "SHOW TABLES FROM empty") == ()
    assert ask(server, "SELECT COUNT(*) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = 'empty'") == (
        (0,),
    )


@pytest.mark.parametrize(
    ("setting", "form"), [("read_only", "mysql"), ("read_only", "mysql+getlock"), ("binlog_format", "mysql")]
)
def test_settings_that_forbid_it(server: Any, setting: str, form: str) -> None:
    words = {"read_only": "read-only", "binlog_format": "binlog_format=STATEMENT"}[setting]
    wrong, right = {"read_only": ("1", "0"), "binlog_format": ("'STATEMENT'", "'MIXED'")}[setting]
    user = with_user(server, "ALL ON fencelock.*")
    ask(server, f"SET GLOBAL {setting} = {wrong}")
    try:
        for flavour in FLAVOURS:
            desk = desk_for(flavour, url_of(server, user, form=form))
            with desk, pytest.raises(BackendUnavailable, match=words):
                desk(desk.locks.lock("job").try_acquire)
    finally:
        ask(server, f"SET GLOBAL {setting} = {right}")
    with Client(url_of(server, user, form=form)) as locks, locks.lock("job", timeout=5):
        pass


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["silent", "http"])
def test_what_is_no_mysql(form: str, answer: bytes) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            taken.append(one)
            if answer:
                one.sendall(answer)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        url = f"{form}://u:{SECRET}@127.0.0.1:{listener.getsockname()[1]}/db?connect_timeout=0.5"
        for flavour in FLAVOURS:
            with desk_for(flavour, url) as desk, pytest.raises(BackendUnavailable) as caught:
                desk(desk.locks.lock("job").try_acquire)
            assert "\n" not in str(caught.value)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)
        for one in taken:
            one.close()


@pytest.mark.parametrize("form", FORMS)
def test_nobody_listens(form: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for flavour in FLAVOURS:
        with desk_for(flavour, f"{form}://u:{SECRET}@127.0.0.1:{port}/db") as desk:
            with pytest.raises(BackendUnavailable, match="connection refused") as caught:
                desk(desk.locks.lock("job").try_acquire)
            assert caught.value.transient
