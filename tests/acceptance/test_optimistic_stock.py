"""Oversold stock: 100 buyers in 16 processes want the last 10 items.

The first buyers of all processes have read before any of them writes, so that what goes wrong without care
goes wrong surely. `FENCELOCK_ROUNDS=5` does each of them so many times.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from crew import Crew, Member
from tools.servers import start
from workers.databases import connected, done

from fencelock import fencing

ITEMS = 10
BUYERS = [7] * 4 + [6] * 12
ROUNDS = int(os.environ.get("FENCELOCK_ROUNDS", "1"))


class Shop(NamedTuple):
    url: str
    member: Member


class Day(NamedTuple):
    sold: int
    left: int
    refused: int


@pytest.fixture(scope="module", params=["sqlite", "postgres", "mariadb"])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A database with a worker that lets people buy there."""
    if request.param == "sqlite":
        folder: Path = tmp_path_factory.mktemp("shop")
        with Crew() as crew:
            url = f"sqlite://{folder}/shop.db"
            yield opened(url, crew.start("stock", url, f"sqlite://{folder}/locks.db"))
        return
    with start(request.param) as group, Crew() as crew:
        url = str(group.url)
        few = "?pool_size=2" if request.param == "postgres" else ""  # it has 100 connections for all
        yield opened(url, crew.start("stock", url, url + few))


def opened(url: str, member: Member) -> Shop:
    assert member.hear()["ready"]
    return Shop(url, member)


def day(shop: Shop, way: str) -> Day:
    """Let everybody buy, in one way; count what was sold in the books."""
    assert sum(BUYERS) == 100 and len(BUYERS) == 16
    done(
        shop.url,
        "DROP TABLE IF EXISTS stock",
        "DROP TABLE IF EXISTS sales",
        f"DROP TABLE IF EXISTS {fencing.TABLE}",
        "CREATE TABLE stock (sku VARCHAR(20) PRIMARY KEY, remaining INTEGER, version BIGINT)",
        "CREATE TABLE sales (sku VARCHAR(20))",
        f"INSERT INTO stock VALUES ('A1', {ITEMS}, 1)",
    )
    conn = connected(shop.url)
    fencing.create_table(conn)
    conn.commit()
    conn.close()
    shop.member.tell(json.dumps([way, BUYERS]))
    said = shop.member.hear()
    assert said["errors"] == []
    ((counted,),) = done(shop.url, "SELECT count(*) FROM sales")
    ((left,),) = done(shop.url, "SELECT remaining FROM stock")
    assert said["sold"] == counted
    return Day(int(counted), int(left), int(said["refused"]))


@pytest.mark.parametrize("way", ["lock", "fence", "optimistic", "atomic"])
def test_exactly_what_there_is_is_sold(shop: Shop, way: str) -> None:
    for _ in range(ROUNDS):
        found = day(shop, way)
        assert (found.sold, found.left) == (ITEMS, 0)
        if way in {"fence", "optimistic"}:  # of the 16 who had all read, one may write
            assert found.refused >= len(BUYERS) - 1


@pytest.mark.parametrize("way", ["naive", "broken"])
def test_without_care_it_is_oversold(shop: Shop, way: str) -> None:
    """Also under a lock, if it is broken and the resource does not look at the token."""
    for _ in range(ROUNDS):
        assert day(shop, way).sold >= len(BUYERS) > ITEMS
