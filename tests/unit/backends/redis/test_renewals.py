"""Many renewals on one server: a script after the other, and what is known when one of them fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import BackendUnavailable
from holdfast.backends.base import Origin, Outcome, Renewal, Request
from holdfast.backends.redis import CHUNK, RedisBackend
from holdfast.backends.redis.commands import Script
from holdfast.backends.redis.server import Server
from holdfast.runtime.blocking import BlockingRuntime, run

COUNT = 2 * CHUNK + 50
DOWN = BackendUnavailable(backend="redis", detail="down")


class Answers:
    """A server that renews all it is asked for, but for the calls that fail."""

    def __init__(self, *failures: int) -> None:
        self.failures = failures
        self.sizes: list[int] = []

    async def call(self, script: Script, bucket: int, packed: bytes, deadline: float) -> list[int]:
        self.sizes.append(packed.count(b"holdfast:{"))
        if len(self.sizes) - 1 in self.failures:
            raise DOWN
        return [2] * self.sizes[-1]


def renewals(count: int) -> Sequence[Renewal]:
    origin = Origin("client", "host", 1)
    return [
        Renewal(Request(f"{n:032x}", f"job-{n}", "exclusive", 1, 30.0, origin, None), n, 30.0, extend=True)
        for n in range(count)
    ]


def renewed(answers: Answers) -> Sequence[Outcome]:
    backend = RedisBackend(Server(host="nowhere"))
    backend.open(BlockingRuntime(), "", lambda owner, reason: None)
    backend._call = answers.call  # type: ignore[method-assign, assignment]
    result: Any = run(backend.renew(renewals(COUNT), deadline=1e9))
    return result


def test_one_script_after_the_other() -> None:
    answers = Answers()
    assert renewed(answers) == [Outcome.RENEWED] * COUNT
    assert answers.sizes == [CHUNK, CHUNK, 50]


def test_after_a_failure_nobody_is_asked_and_nothing_is_known() -> None:
    answers = Answers(1)
    assert renewed(answers) == [Outcome.RENEWED] * CHUNK + [Outcome.UNKNOWN] * (COUNT - CHUNK)
    assert len(answers.sizes) == 2


def test_a_server_that_answers_nothing_is_an_error() -> None:
    with pytest.raises(BackendUnavailable, match="down"):
        renewed(Answers(0))
