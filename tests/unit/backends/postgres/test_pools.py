"""Connections of a client: what is read off before something is undone."""

from __future__ import annotations

import threading
from typing import Any

from holdfast.backends.postgres.address import Address
from holdfast.backends.postgres.pools import ThreadPool
from holdfast.runtime import blocking, clock


class Late:
    """A connection whose answer comes when the test says so."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.is_read = threading.Event()
        self.closed = False

    def drain(self, until: float) -> None:
        self.is_read.set()
        self.answer.wait(until - clock.now())

    def close(self) -> None:
        self.closed = True


def test_a_clean_up_waits_for_answers_that_another_one_reads_off(monkeypatch: Any) -> None:
    """Or it would undo what the server has yet to do."""
    monkeypatch.setattr("holdfast.backends.postgres.pools.DRAIN", 60.0)
    address, _ = Address.from_url("postgresql://127.0.0.1/test")
    pool, link = ThreadPool(address), Late()
    pool._late.append(link)  # type: ignore[arg-type]

    def settle() -> None:
        blocking.run(pool.settled(clock.now() + 60.0))

    first, second = threading.Thread(target=settle), threading.Thread(target=settle)
    first.start()
    assert link.is_read.wait(60)
    second.start()
    second.join(0.2)
    assert second.is_alive()
    link.answer.set()
    first.join(60)
    second.join(60)
    assert link.closed
    assert not second.is_alive()
    assert not pool._late


def test_a_clean_up_does_not_wait_for_longer_than_it_may() -> None:
    address, _ = Address.from_url("postgresql://127.0.0.1/test")
    pool, link = ThreadPool(address), Late()
    pool._late.append(link)  # type: ignore[arg-type]
    blocking.run(pool.settled(clock.now() + 0.01))
    assert link.closed
    assert not pool._late
