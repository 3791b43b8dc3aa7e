"""The gate's connection belongs to one request at a time, whoever loses what in the middle of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencelock.backends.postgres.gate import Gate, Turn
from fencelock.backends.postgres.link import Broken
from fencelock.runtime import clock


class PaperLink:
    is_pooled = False

    def __init__(self) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.users = 0
        self.closed = False

    def hang_up(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(Broken("shut down"))

    def close(self) -> None:
        assert self.users == 0, "closed under the hands of its user"
        self.closed = True


class PaperSource:
    has_gates = True

    def __init__(self) -> None:
        self.links: list[PaperLink] = []

    async def dial(self, deadline: float) -> PaperLink:
        self.links.append(PaperLink())
        await asyncio.sleep(0)
        return self.links[-1]

    async def call(self, link: PaperLink, *_: Any) -> Any:
        assert not link.closed
        link.users += 1
        assert link.users == 1, "two at once"
        try:
            return await asyncio.shield(link.answer)
        finally:
            link.users -= 1

    async def run(self, link: PaperLink, *_: Any) -> Any:
        return await self.call(link)

    def late(self, link: PaperLink) -> None:
        link.close()

    interrupted = late


def soon() -> float:
    return clock.now() + 30


def of(source: PaperSource) -> Gate:
    return Gate(source, None)  # type: ignore[arg-type]


async def step(gate: Gate, owner: str) -> Any:
    return await gate.call(owner, None, (), soon())  # type: ignore[arg-type]


async def begun(gate: Gate, owner: str) -> asyncio.Task[Any]:
    task = asyncio.create_task(step(gate, owner))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


def test_a_gate_that_is_aborted_in_the_middle_of_a_release_goes_to_nobody_until_that_has_ended() -> None:
    async def main() -> None:
        source = PaperSource()
        gate = of(source)
        assert gate.claim("first", soon())
        release = await begun(gate, "first")
        gate.abort()  # its renewal found that it was lost
        assert not gate.claim("second", soon())
        assert await release is None
        assert source.links[0].closed
        assert gate.claim("second", soon())
        other = await begun(gate, "second")
        source.links[1].answer.set_result("done")
        assert await other == "done"
        assert not source.links[1].closed
        gate.close()
        assert [link.closed for link in source.links] == [True, True]

    asyncio.run(main())


def test_a_gate_that_is_aborted_while_nobody_uses_it_is_free_for_the_next() -> None:
    async def main() -> None:
        source = PaperSource()
        gate = of(source)
        assert gate.claim("first", soon())
        held = await begun(gate, "first")
        source.links[0].answer.set_result("granted")
        assert await held == "granted"
        gate.abort()
        assert gate.claim("second", soon())
        assert source.links[0].closed
        assert gate.owner == "second"

    asyncio.run(main())


@pytest.mark.parametrize("what", ["call", "wait", "open"])
def test_who_has_not_the_gate_does_nothing_with_it(what: str) -> None:
    async def main() -> None:
        source = PaperSource()
        gate = of(source)
        assert gate.claim("first", soon())
        mine = await begun(gate, "first")
        if what == "call":
            assert await step(gate, "second") is None
        elif what == "wait":
            assert await gate.wait((b"place", b"1", b"second"), soon()) is Turn.USELESS
        else:
            await gate.open("second")
        gate.give_up("second")
        assert gate.owner == "first"
        source.links[0].answer.set_result("done")
        assert await mine == "done"

    asyncio.run(main())


def test_a_gate_that_is_closed_in_the_middle_of_a_step_leaves_no_connection() -> None:
    async def main() -> None:
        source = PaperSource()
        gate = of(source)
        assert gate.claim("first", soon())
        mine = await begun(gate, "first")
        gate.close()
        assert await mine is None
        assert source.links[0].closed
        assert not gate.claim("second", soon())

    asyncio.run(main())


def test_a_step_that_is_cancelled_gives_its_connection_away() -> None:
    async def main() -> None:
        source = PaperSource()
        gate = of(source)
        assert gate.claim("first", soon())
        mine = await begun(gate, "first")
        mine.cancel()
        with pytest.raises(asyncio.CancelledError):
            await mine
        assert source.links[0].closed
        assert gate.claim("second", soon())

    asyncio.run(main())
