"""A flavour and a crew for every acceptance test; a server and a desk for those on Redis and Valkey.

A file that needs another `group`, `server` or `desk` has its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from crew import Crew
from redis_desk import FLAVOURS, Desk, desk_for
from tools.servers import start


@pytest.fixture(params=["redis", "valkey"])
def group(request: pytest.FixtureRequest) -> Iterator[Any]:
    with start(request.param) as group:
        yield group


@pytest.fixture
def server(group: Any) -> Any:
    return group.members[0]


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def desk(group: Any, flavour: str) -> Iterator[Desk]:
    """A client with a good connection."""
    with desk_for(flavour, group.url) as desk:
        yield desk


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew() as crew:
        yield crew
