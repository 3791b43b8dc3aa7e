"""The check of a block that is stopped tells what became of the block, and does not blame the time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencelock.testing.conformance.expect import Late
from fencelock.testing.conformance.peers import PeerError
from fencelock.testing.conformance.themes.reach import _is_inside


class Peer:
    """Another process, whose lease is not held."""

    async def __call__(self, op: str, *, name: str) -> dict[str, Any]:
        return {"held": False}


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ("LeaseLost", "LeaseLost"),
        ("", "no error"),
        (PeerError("BackendUnavailable", "redis: no answer in time"), "redis: no answer in time"),
    ],
)
def test_a_block_that_ended_before_it_was_stopped(end: str | PeerError, says: str) -> None:
    async def look() -> bool:
        block: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        assert await _is_inside(Peer(), "job", block) is False  # type: ignore[arg-type]
        block.set_result(end) if isinstance(end, str) else block.set_exception(end)
        return await _is_inside(Peer(), "job", block)  # type: ignore[arg-type]

    with pytest.raises(AssertionError, match=says) as caught:
        asyncio.run(look())
    assert not isinstance(caught.value, Late)
