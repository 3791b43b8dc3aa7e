"""The statements for servers, seen without one: how many there are, and that no value is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fencelock import ConfigurationError
from fencelock.connections import MARK, Answer, Dialect, Door, Row
from fencelock.optimistic.cells import place
from fencelock.optimistic.results import Updated
from fencelock.optimistic.rows import AT_ONCE, TAG, Change, _update_all
from fencelock.runtime.blocking import run

ROW = {"id": 1, "note": "new", "version": 8}


class Recording(Door):
    """A door that writes down what it is asked, and answers from a list."""

    def __init__(self, dialect: Dialect, answers: Sequence[list[Row]], *, bare: bool = False) -> None:
        self.dialect = dialect
        self.asked: list[tuple[str, tuple[Any, ...]]] = []
        self._answers = iter(answers)
        self._bare = bare

    def in_transaction(self) -> bool:
        return not self._bare

    def autocommits(self) -> bool:
        return self._bare

    async def run(self, statement: str, values: Sequence[Any] = ()) -> Answer:
        assert statement.count(MARK) == len(values)
        self.asked.append((statement.partition(" ")[0], tuple(values)))
        assert "secret" not in statement
        return Answer(next(self._answers, []))


CHANGE = Change({"id": 1}, 7, {"note": "secret"})


def test_postgresql_needs_one_statement() -> None:
    door = Recording("postgresql", [[{TAG: 1, **ROW}]])
    assert run(_update_all(door, "t", [CHANGE], "version")) == [Updated(ROW)]
    assert [word for word, _ in door.asked] == ["WITH"]


def test_postgresql_needs_one_statement_for_many() -> None:
    changes = [Change({"id": number}, 7, {"note": "secret"}) for number in range(AT_ONCE + 1)]
    answers = [[{TAG: 2 * n + 1, **ROW} for n in range(AT_ONCE)], [{TAG: 1, **ROW}]]
    door = Recording("postgresql", answers)
    assert run(_update_all(door, "t", changes, "version")) == [Updated(ROW)] * (AT_ONCE + 1)
    assert len(door.asked) == 2


def test_mysql_has_a_transaction_around_where_there_is_none() -> None:
    answers = [[], [{**ROW, "version": 7}], [], [ROW], []]
    door = Recording("mysql", answers, bare=True)
    assert run(_update_all(door, "t", [CHANGE], "version")) == [Updated(ROW)]
    assert [word for word, _ in door.asked] == ["START", "SELECT", "UPDATE", "SELECT", "COMMIT"]
    door = Recording("mysql", answers[1:])
    run(_update_all(door, "t", [CHANGE], "version"))
    assert [word for word, _ in door.asked] == ["SELECT", "UPDATE", "SELECT"]


def test_mysql_rolls_its_own_transaction_back() -> None:
    door = Recording("mysql", [[], [{**ROW, "version": 3}]], bare=True)
    with pytest.raises(ConfigurationError, match="does not exist"):
        run(_update_all(door, "t", [CHANGE], "version"))
    assert [word for word, _ in door.asked] == ["START", "SELECT", "ROLLBACK"]


def test_a_table_without_the_column() -> None:
    door = Recording("mysql", [[{"id": 1}]])
    with pytest.raises(ConfigurationError, match="table 't' has no column 'version'"):
        run(_update_all(door, "t", [CHANGE], "version"))


def test_places_of_registers_are_apart_and_harmless() -> None:
    names = ["a", "A", "a/b", "a=2Fb", "a%2Fb", ".", "..", "a b", "é", "=", "==", "x" * 512, "x" * 511, "~"]
    found = [place(name) for name in names]
    assert len(set(found)) == len(names)
    for one in found:
        assert len(one) <= 200 and set(one) <= set(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-~="
        )
