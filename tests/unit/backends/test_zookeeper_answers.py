"""Answers from ZooKeeper: set once, by one thread, and waited for by others; lists of children."""

from __future__ import annotations

import threading

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import GetChildren, write_string

from fencelock.backends.zookeeper.answers import Answer, Children
from fencelock.backends.zookeeper.hearing import LENGTH

SOON = 30.0


def test_an_answer_is_set_once_and_told_once() -> None:
    answer, told = Answer(), []
    answer.rawlink(lambda one: told.append(one.value))
    with pytest.raises(KazooTimeoutError):
        answer.get(timeout=0.0)
    answer.set(1)
    answer.set(2)
    answer.set_exception(ConnectionLoss())
    answer.rawlink(lambda one: told.append(-one.value))
    assert (told, answer.get_nowait(), answer.successful()) == ([1, -1], 1, True)


def test_a_callback_that_an_interrupt_hit_is_called_again() -> None:
    """A waiter that comes later may just call those of others: their answer was set in between."""
    answer, told = Answer(), []
    interrupts = [KeyboardInterrupt()]

    def callback(one: Answer) -> None:
        if interrupts:
            raise interrupts.pop()
        told.append(one.value)

    answer._is_set, answer.value = True, 1
    with pytest.raises(KeyboardInterrupt):
        answer.rawlink(callback)
    answer.set(1)
    assert told == [1]


def test_an_answer_wakes_its_waiter() -> None:
    for _ in range(200):
        answer = Answer()
        setter = threading.Thread(target=answer.set, daemon=True)
        setter.start()
        assert answer.get(timeout=SOON) is None
        setter.join(SOON)


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["a"],
        ["a", "bc", "d" * 90],
        ["x" * length for length in range(1, 300, 7)],
        ["x" * 256, "y" * 257, "z"],
        ["x" * 65536],
        ["\u00e9t\u00e9", "plain"],
        ["\u00e9" * 100],
        [f"{number:010d}" for number in range(700)],
    ],
)
def test_children_are_read_as_kazoo_reads_them(names: list[str]) -> None:
    said = b"head" + LENGTH.pack(len(names)) + b"".join(map(write_string, names))
    assert Children.deserialize(said, 4) == GetChildren.deserialize(said, 4) == names
