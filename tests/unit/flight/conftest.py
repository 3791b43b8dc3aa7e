"""Flavours, and places for locks and values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.flight.desk import FLAVOURS, Desk, desk_for


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"memory://{tmp_path.name}"


@pytest.fixture(params=["memory", "sqlite"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path, url: str) -> str:
    return url if request.param == "memory" else f"sqlite://{tmp_path}/locks.db"


@pytest.fixture
def desk(flavour: str, url: str) -> Iterator[Desk]:
    with desk_for(flavour, url) as desk:
        yield desk


@pytest.fixture
def stored(flavour: str, any_url: str) -> Iterator[Desk]:
    with desk_for(flavour, any_url) as desk:
        yield desk
