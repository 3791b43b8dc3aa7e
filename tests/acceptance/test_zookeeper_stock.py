"""ZooKeeper as it comes: sessions of 4 to 40 seconds, or of 1 to 10 with a tick of half a second.

The other tests have sessions of 1 to 60 seconds. Conformance has a row for stock settings, `zookeeper@stock`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cli_helpers import fencelock_command
from redis_desk import FLAVOURS, desk_for
from tools.servers import start
from zookeeper_desk import znodes

from fencelock import ConfigurationError, LeaseLost

both = pytest.mark.parametrize("flavour", FLAVOURS)


def with_tick(milliseconds: int) -> Any:
    longest = 20 * milliseconds
    return start(
        "zookeeper",
        settings={"tickTime": str(milliseconds), "maxSessionTimeout": str(longest), "forceSync": "no"},
    )


@pytest.fixture(scope="module")
def stock() -> Iterator[Any]:
    with with_tick(2000) as group:
        yield group


@pytest.fixture(scope="module")
def brief() -> Iterator[Any]:
    with with_tick(500) as group:
        yield group


@both
def test_the_guarantees_are_what_was_negotiated(stock: Any, flavour: str) -> None:
    with desk_for(flavour, stock.url) as desk:
        desk.inspect("job")
        guarantees = desk.locks.guarantees
        assert (guarantees.min_ttl, guarantees.max_ttl) == (4.0, 40.0)
        for ttl, limit in ((3.9, "4s"), (41, "40s")):
            with pytest.raises(ConfigurationError, match=f"{ttl}.*{limit}"):
                desk.locks.lock("job", ttl=ttl)
        for ttl in (4, 40):
            lease = desk.acquire("job", ttl=ttl)
            assert desk(lease.verify)
            assert desk(lease.release)


@both
@pytest.mark.parametrize(("ttl", "says"), [(1, "at least 4s"), (3, "at least 4s"), (60, "at most 40s")])
def test_the_first_acquire_refuses_what_cannot_be_kept(
    stock: Any, flavour: str, ttl: float, says: str
) -> None:
    with desk_for(flavour, stock.url) as desk:
        with pytest.raises(ConfigurationError, match=says) as raised:
            desk.acquire("job", ttl=ttl, timeout=5)
        assert len(str(raised.value).splitlines()) == 1
        assert znodes(stock.members[0]) == []
        assert desk(desk.acquire("job", ttl=30, timeout=5).release)


@both
def test_the_rest_of_max_hold_may_be_shorter_than_a_ttl(stock: Any, flavour: str) -> None:
    with desk_for(flavour, stock.url) as desk:
        lease = desk.acquire("job", ttl=4, max_hold=6)
        assert desk(lease.lost.wait, 8)
        with pytest.raises(LeaseLost, match="max_hold of 6s is over"):
            lease.check()


@both
def test_with_sessions_below_the_usual_ttl_shorter_ones_work(brief: Any, flavour: str) -> None:
    with desk_for(flavour, brief.url) as desk:
        with pytest.raises(ConfigurationError, match="at most 10s"):
            desk.acquire("job", timeout=5)
        lease = desk.acquire("job", ttl=10, timeout=5)
        assert desk(lease.verify)
        assert desk(lease.release)


def test_doctor_tells_which_ttls_are_refused(stock: Any, brief: Any) -> None:
    found = fencelock_command(stock.url, "doctor")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "a ttl of less than 4 s is refused" in found.stdout
    assert "minSessionTimeout = 4000" in found.stdout
    found = fencelock_command(brief.url, "doctor")
    assert "a ttl of more than 10 s is refused" in found.stdout, found.stderr
    assert "maxSessionTimeout = 10000" in found.stdout
    assert "max ttl" in found.stdout
