"""A gate in the process that has the resource: the holder that slept, 32 writers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crew import Crew
from fencing_drills import Cast


@pytest.fixture(scope="module")
def cast() -> Iterator[Cast]:
    with Cast() as cast:
        yield cast


@pytest.fixture
def where(crew: Crew, tmp_path: Path) -> str:
    socket = str(tmp_path / "gate")
    assert crew.start("fencing_gate", socket).hear() == {"ready": True}
    return socket


def test_the_holder_that_slept(cast: Cast, where: str, tmp_path: Path) -> None:
    cast.paused_holder("gate", where, tmp_path)


def test_32_writers(cast: Cast, where: str) -> None:
    cast.crowd("gate", where)
