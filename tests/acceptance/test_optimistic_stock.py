"""Oversold stock: 100 buyers in 16 processes want the last 10 items."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crew import Crew
from tools.servers import start
from workers.databases import done

ITEMS = 10
BUYERS = [7] * 4 + [6] * 12
WAYS = ["lock", "optimistic", "atomic"]


@pytest.fixture(scope="module", params=["sqlite", "postgres", "mariadb"])
def urls(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The database of the shop, and where its locks are."""
    if request.param == "sqlite":
        folder: Path = tmp_path_factory.mktemp("shop")
        yield f"sqlite://{folder}/shop.db", f"sqlite://{folder}/locks.db"
        return
    with start(request.param) as group:
        yield str(group.url), str(group.url)


def sold(crew: Crew, urls: tuple[str, str], way: str) -> tuple[int, int]:
    """Return how many were sold, and how many are left."""
    assert sum(BUYERS) == 100 and len(BUYERS) == 16
    done(
        urls[0],
        "DROP TABLE IF EXISTS stock",
        "DROP TABLE IF EXISTS sales",
        "CREATE TABLE stock (sku VARCHAR(20) PRIMARY KEY, remaining INTEGER, version BIGINT)",
        "CREATE TABLE sales (sku VARCHAR(20))",
        f"INSERT INTO stock VALUES ('A1', {ITEMS}, 1)",
    )
    members = [crew.start("stock", *urls, way, buyers) for buyers in BUYERS]
    for member in members:
        assert member.hear()["ready"]
    for member in members:
        member.tell()
    told: int = sum(member.hear()["sold"] for member in members)
    assert [member.end() for member in members] == [0] * len(members), [m.errors for m in members]
    ((counted,),) = done(urls[0], "SELECT count(*) FROM sales")
    ((left,),) = done(urls[0], "SELECT remaining FROM stock")
    assert told == counted
    return int(counted), int(left)


@pytest.mark.parametrize("way", WAYS)
def test_exactly_what_there_is_is_sold(crew: Crew, urls: tuple[str, str], way: str) -> None:
    assert sold(crew, urls, way) == (ITEMS, 0)


def test_the_naive_way_oversells(crew: Crew, urls: tuple[str, str]) -> None:
    counted: Any = sold(crew, urls, "naive")[0]
    assert counted > ITEMS
