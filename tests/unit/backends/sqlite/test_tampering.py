"""An operator at work on the file: tokens go on rising, and nobody is put out who was not meant to be."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencelock import Client
from fencelock.backends.sqlite.file import BLOCK

Operator = Callable[[str], list[tuple[Any, ...]]]


def token(client: Client, name: str = "x") -> int:
    with client.lock(name, timeout=10) as lease:
        assert lease.verify()
        return lease.token


def delete_file(path: Path, operator: Operator) -> None:
    path.unlink()


def delete_all_files(path: Path, operator: Operator) -> None:
    for file in path.parent.glob("locks.db*"):
        file.unlink()


def replace_by_an_empty_file(path: Path, operator: Operator) -> None:
    new = path.with_suffix(".new")
    new.touch()
    os.replace(new, path)


def move_away_and_back(path: Path, operator: Operator) -> None:
    copy = path.with_suffix(".copy")
    shutil.copy(path, copy)
    os.replace(copy, path)


def drop_queue(path: Path, operator: Operator) -> None:
    operator("DROP TABLE queue")


def drop_meta(path: Path, operator: Operator) -> None:
    operator("DROP TABLE meta")


def drop_both(path: Path, operator: Operator) -> None:
    operator("DROP TABLE queue")
    operator("DROP TABLE meta")


def delete_rows(path: Path, operator: Operator) -> None:
    operator("DELETE FROM queue")


def delete_counter(path: Path, operator: Operator) -> None:
    operator("DELETE FROM sqlite_sequence")


def set_counter_to_zero(path: Path, operator: Operator) -> None:
    operator("UPDATE sqlite_sequence SET seq = 0")


def delete_meta(path: Path, operator: Operator) -> None:
    operator("DELETE FROM meta")


def delete_everything(path: Path, operator: Operator) -> None:
    for table in ("queue", "meta", "sqlite_sequence"):
        operator(f"DELETE FROM {table}")


TAMPERINGS = [
    delete_file,
    delete_all_files,
    replace_by_an_empty_file,
    move_away_and_back,
    drop_queue,
    drop_meta,
    drop_both,
    delete_rows,
    delete_counter,
    set_counter_to_zero,
    delete_meta,
    delete_everything,
]
every = pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda tamper: tamper.__name__)


@every
def test_tokens_go_on_rising_for_those_who_have_the_file_open(
    tamper: Callable[..., None], path: Path, client: Client, operator: Operator
) -> None:
    before = [token(client, name) for name in "xyxxz"]
    tamper(path, operator)
    after = [token(client, name) for name in "xyxxz"]
    assert min(after) > max(before)
    assert after == sorted(set(after))


@every
def test_tokens_go_on_rising_for_newcomers(
    tamper: Callable[..., None], path: Path, client: Client, operator: Operator
) -> None:
    before = [token(client, name) for name in "xyxxz"]
    client.close()
    tamper(path, operator)
    with Client(f"sqlite://{path}") as newcomer:
        after = [token(newcomer, name) for name in "xyxxz"]
    assert min(after) > max(before)


@every
def test_tokens_go_on_rising_while_something_older_is_held(
    tamper: Callable[..., None], path: Path, client: Client, operator: Operator
) -> None:
    """What is held keeps its row, and SQLite would count on from there."""
    held = client.lock("held", ttl=60).acquire()
    before = [token(client, name) for name in "xyxxz"]
    tamper(path, operator)
    with Client(f"sqlite://{path}") as newcomer:
        after = [token(client), token(newcomer), token(client), token(newcomer)]
    held.release()
    assert min(after) > max(before)
    assert after == sorted(set(after))


@every
def test_two_processes_agree_afterwards(
    tamper: Callable[..., None], path: Path, client: Client, operator: Operator
) -> None:
    with Client(f"sqlite://{path}") as other:
        token(client)
        token(other)
        tamper(path, operator)
        with client.lock("x", timeout=10) as lease:
            assert other.lock("x").try_acquire() is None
            assert [entry.token for entry in other.inspect("x").holders] == [lease.token]
        with other.lock("x", timeout=10):
            assert client.lock("x").try_acquire() is None


@pytest.mark.parametrize("tamper", [delete_counter, set_counter_to_zero, delete_meta, drop_meta])
def test_what_is_held_stays_held_when_only_the_bookkeeping_was_deleted(
    tamper: Callable[..., None], path: Path, client: Client, operator: Operator
) -> None:
    lease = client.lock("held", ttl=60).acquire()
    tamper(path, operator)
    token(client)
    with Client(f"sqlite://{path}") as newcomer:
        token(newcomer)
        assert newcomer.lock("held").try_acquire() is None
    assert lease.verify() and lease.release()


def test_a_lease_older_than_a_block_of_tokens_survives_a_deleted_counter(
    path: Path, client: Client, operator: Operator
) -> None:
    old = client.lock("old", ttl=60).acquire()
    operator(f"UPDATE sqlite_sequence SET seq = seq + {2 * BLOCK}")  # as after two million grants
    before = token(client)
    operator("DELETE FROM sqlite_sequence")
    assert token(client) > before
    assert client.lock("old").try_acquire() is None
    assert old.verify() and old.release()


def test_rows_that_are_deleted_are_locks_that_are_broken(client: Client, operator: Operator) -> None:
    lease = client.lock("x", ttl=0.5).acquire()
    operator("DELETE FROM queue")
    assert lease.lost.wait(10)
    assert not lease.is_held()
    assert token(client) > lease.token


def test_a_deleted_file_is_a_lock_that_is_broken(path: Path, client: Client) -> None:
    lease = client.lock("x", ttl=0.5).acquire()
    path.unlink()
    assert lease.lost.wait(10)
    assert lease.release() is False
    assert token(client) > lease.token


def test_a_deleted_counter_and_then_a_deleted_file(path: Path, client: Client, operator: Operator) -> None:
    """Tokens ran ahead of the clock by a block; a file made anew at once starts at the clock."""
    tokens = [token(client)]
    operator("DELETE FROM sqlite_sequence")
    tokens.append(token(client))
    path.unlink()
    tokens.append(token(client))
    assert tokens == sorted(tokens)
