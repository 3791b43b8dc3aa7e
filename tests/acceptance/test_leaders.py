"""Leaders that are killed, stopped and cut off: no two definite leaderships overlap, and how long it takes.

Three candidates for one election, real processes with a proxy each. The leader is killed, stopped for longer
than its ttl, or cut off from the store, in turn; each time the next one must lead. They write down when they
lead (`workers/leader.py`), on the clock that all processes of a host share, and the checker of
`fencelock.testing` judges what they wrote. At the end each hands over of its own will.

`FENCELOCK_LOSSES=200` forces so many losses on each store, in several elections at once.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from crew import wait_until
from leader_lane import MOST, TTL, Lane, Loss
from redis_desk import proxied
from tools.servers import start

from fencelock import Client
from fencelock.testing import History, boottime, check, definite_holds

STORES = ["redis", "postgres", "zookeeper", "etcd"]
SETTINGS = {"etcd": {"unsafe-no-fsync": "true"}}
KINDS = ["kill", "stop", "cut"]
LOSSES = int(os.environ.get("FENCELOCK_LOSSES", "3"))
LANES = 1 if LOSSES < 20 else 5
"""How many elections go on at once."""
CANDIDATES = 3


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:

        def lane(url: str, name: str) -> Lane:
            return Lane(url, name, tmp_path / name, stack)

        yield lane


def forced(lane: Lane) -> int:
    """Count the losses whose leader definitely led when it was struck."""
    holds = definite_holds(lane.history())
    return sum(
        any(h.operation.client == loss.client and h.start.at < loss.at <= h.end.at for h in holds)
        for loss in lane.losses
    )


def judge(history: History) -> None:
    """No two definite leaderships overlap, a loss is told once and for good, and tokens rise."""
    report = check(history, fifo=False)
    assert report.ok, str(report)
    holds = sorted(definite_holds(history), key=lambda hold: hold.start)
    assert len(holds) >= 2
    tokens = [hold.operation.token or 0 for hold in holds]
    assert tokens == sorted(set(tokens))


def head_starts(lane: Lane) -> list[float]:
    """Return how long before the next one led the work of each leader that was cut off knew of its loss."""
    operations = lane.history().operations()
    return [
        loss.at + loss.took - lost.at
        for loss in lane.losses
        for operation in operations
        for lost in operation.losses
        if loss.kind == "cut" and operation.client == loss.client and 0 < lost.at - loss.at < MOST
        if operation.returned is not None and operation.returned.at < loss.at
    ]


def told(store: str, losses: list[Loss], handed: list[float], starts: list[float]) -> None:
    """Print the fail-over times, for those who look."""
    for kind in [*KINDS, "resign"]:
        times = sorted(handed if kind == "resign" else [loss.took for loss in losses if loss.kind == kind])
        p95 = times[min(len(times) - 1, int(0.95 * len(times)))]
        figures = f"median {statistics.median(times):.2f}s, p95 {p95:.2f}s, worst {times[-1]:.2f}s"
        print(f"\n{store:<10} {kind:<6} {len(times):>4} times, ttl {TTL:g}s: {figures}", end="")
    if starts:
        figures = f"median {statistics.median(starts):.2f}s, least {starts[0]:.2f}s"
        print(f"\n{store:<10} cut: the work was told {figures} before the next one led")


@pytest.mark.parametrize("store", STORES)
def test_no_two_lead_whatever_is_lost(store: str, lanes: Any) -> None:
    with start(store, settings=SETTINGS.get(store)) as group:
        elections = [lanes(group.url, f"boss{number}") for number in range(LANES)]

        def campaign(number: int) -> None:
            lane = elections[number]
            for _ in range(CANDIDATES):
                lane.stand()
            wanted = LOSSES // LANES
            for turn in range(3 * wanted):
                lane.strike(KINDS[(turn + number) % len(KINDS)])
                if turn + 1 >= wanted and forced(lane) >= wanted:
                    return

        with ThreadPoolExecutor(LANES) as pool:
            list(pool.map(campaign, range(LANES)))
        handed = [elections[0].resign() for _ in range(CANDIDATES)]
        starts = sorted(start for lane in elections for start in head_starts(lane))
        told(store, [loss for lane in elections for loss in lane.losses], handed, starts)
        assert sum(forced(lane) for lane in elections) >= LOSSES // LANES * LANES
        for lane in elections:
            judge(lane.history())
            assert all(loss.took < MOST for loss in lane.losses)


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    with start("redis") as group:
        yield group.url


def test_a_candidate_that_ignores_its_loss_is_found_out(redis: str, lanes: Any) -> None:
    """The teeth: the same test with a leader that goes on after it was stopped."""
    lane: Lane = lanes(redis, "deaf")
    lane.stand("deaf")
    lane.line_up()
    lane.stand()
    lane.strike("stop")

    def broken() -> set[str]:
        return {str(violation.rule) for violation in check(lane.history(), fifo=False).violations}

    assert wait_until(broken, "both claim to lead") == {"exclusion"}
    with pytest.raises(AssertionError, match="exclusion"):
        judge(lane.history())


def test_a_store_that_is_away_makes_the_campaign_longer(redis: str, lanes: Any) -> None:
    """In both flavours, at the beginning and later; it is said once when it goes and once when it is back."""
    lane: Lane = lanes(redis, "away")
    candidates = [lane.stand(away=True) for _ in range(2)]
    for candidate in candidates:
        said = candidate.member.hear()
        assert said["level"] == "WARNING"
        assert said["message"].startswith("the campaign for 'away' goes on, though the store is away: ")
    with pytest.raises(AssertionError, match="said nothing for 1s"):
        candidates[0].member.hear(1)
    for candidate in candidates:
        candidate.proxy.accept()
        assert candidate.member.hear()["message"].startswith("the campaign for 'away': the store is back")
    for _ in range(2):
        leader, _ = lane.line_up()
        at = boottime()
        leader.proxy.refuse()
        leader.proxy.reset()
        assert lane.next_after(at, leader.client).client != leader.client
        leader.proxy.accept()
    lane.line_up()
    judge(lane.history())


def test_observers_see_every_leader_through_an_outage(redis: str, lanes: Any) -> None:
    lane: Lane = lanes(redis, "seen")
    with proxied(redis) as (proxy, url), Client(url) as locks:
        changes = locks.election("seen").observe()
        assert next(changes) is None
        lane.stand()
        first = next(changes)
        assert first is not None
        assert (first.client, first.metadata) == ("seen-1", {"candidate": "seen-1"})
        lane.line_up()
        lane.stand()
        lane.line_up()
        proxy.refuse()
        proxy.reset()
        lane.strike("kill")
        proxy.accept()
        second = next(changes)
        assert second is not None
        assert (second.client, second.metadata) == ("seen-2", {"candidate": "seen-2"})
        assert second.token > first.token
        changes.close()  # type: ignore[attr-defined]
