"""Events on real servers tell what was done: how often, of whom, and why a lease was lost.

Everything is counted twice, by the stream and by what the test itself has done and seen; the text for
Prometheus is read back by its official parser and has the same figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from crew import wait_until
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from redis_desk import FLAVOURS, Desk, desk_for
from tools.servers import start

from fencelock import AcquireTimeout, BackendError, events
from fencelock.contrib import prometheus

QUICK: dict[str, dict[str, str]] = {
    "redis": {},
    "postgres": {"fsync": "off"},
    "etcd": {"unsafe-no-fsync": "true"},
}
BACKENDS = {"redis": "redis", "postgres": "postgresql", "etcd": "etcd"}
TTL = 1.5
PAIRS = 5


@pytest.fixture(scope="module", params=QUICK)
def group(request: pytest.FixtureRequest) -> Iterator[Any]:
    with start(request.param, settings=QUICK[request.param]) as group:
        group.kind = request.param
        yield group


class Ear:
    """Hears everything, and can be asked for it."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def of(self, kind: type[Any], name: str | None = None) -> list[Any]:
        found = [event for event in self.heard if type(event) is kind]
        return found if name is None else [event for event in found if event.name == name]


@pytest.fixture
def ear() -> Iterator[Ear]:
    ear = Ear()
    with events.subscribe(ear.heard.append):
        yield ear


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    registry = CollectorRegistry()
    with prometheus.install(registry, pattern=lambda name: name.partition(":")[0]):
        yield registry


def figures(registry: CollectorRegistry) -> Counter[tuple[str, str]]:
    """Return the samples of the text for Prometheus, by their names and the lock's."""
    found: Counter[tuple[str, str]] = Counter()
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            found[sample.name, sample.labels.get("lock", "")] += int(sample.value)
    return found


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_they_tell_the_truth(group: Any, flavour: str, ear: Ear, registry: CollectorRegistry) -> None:
    backend = BACKENDS[group.kind]
    with desk_for(flavour, group.url, client_name="counter") as desk:
        tokens = pairs(desk)
        acquired, released = ear.of(events.Acquired), ear.of(events.Released)
        assert [event.token for event in acquired] == [event.token for event in released] == tokens
        assert {(event.backend, event.client, event.mode) for event in acquired} == {
            (backend, "counter", "exclusive")
        }

        broken = desk.acquire("broken", ttl=TTL)
        wait_until(lambda: any(event.leases == 1 for event in ear.of(events.Renewed)), "it is renewed")
        assert ear.of(events.BackendFailed) == ear.of(events.Lost) == []
        times_out(desk, ear, broken)
        desk(desk.locks.force_release, "broken")
        wait_until(lambda: ear.of(events.Lost), "the loss is told")
        (lost,) = ear.of(events.Lost)
        assert (lost.name, lost.token, lost.owner) == ("broken", broken.token, broken.owner)
        (told,) = ear.of(events.Broken)
        assert (told.name, told.owners) == ("broken", (broken.owner,))

        silenced(group, desk, ear)
        assert_the_same(ear, figures(registry))
        # What listens for pushes may fail a little later.
        wait_until(lambda: totals(ear) == totals_of(figures(registry)), "Prometheus has the same figures")
        assert all(totals(ear))
    assert len(ear.of(events.Acquired)) == PAIRS + 2
    assert len(ear.of(events.Released)) == PAIRS
    assert len(ear.of(events.Lost)) == 2


def pairs(desk: Desk) -> list[int]:
    """Take and release a few locks; return their tokens."""
    tokens = []
    for number in range(PAIRS):
        lease = desk.acquire(f"pair:{number}")
        assert desk(lease.release)
        tokens.append(lease.token)
    return tokens


def times_out(desk: Desk, ear: Ear, held: Any) -> None:
    """Wait for what is held, for a moment and not at all."""
    with pytest.raises(AcquireTimeout):
        desk.acquire("broken", timeout=0.3)
    assert desk(desk.locks.lock("broken").try_acquire) is None
    waited, tried = ear.of(events.TimedOut)
    assert (waited.timeout, tried.timeout) == (0.3, 0)
    assert 0.3 <= waited.waited < 30 and tried.waited < waited.waited + 30
    assert waited.holder.owner == held.owner
    (waiting,) = ear.of(events.Waiting)
    assert (waiting.name, waiting.owner) == ("broken", waited.owner)


def silenced(group: Any, desk: Desk, ear: Ear) -> None:
    """The server says nothing for longer than the ttl: a lease is lost by its own clock."""
    frozen = desk.acquire("frozen", ttl=TTL)
    group.members[0].pause()
    try:
        wait_until(lambda: ear.of(events.Lost, "frozen"), "the loss is told")
        with pytest.raises((BackendError, AcquireTimeout)):
            desk.acquire("other", timeout=1)
    finally:
        group.members[0].resume()
    (lost,) = ear.of(events.Lost, "frozen")
    assert (lost.token, lost.owner) == (frozen.token, frozen.owner)
    assert lost.held > 0.5 * TTL
    wait_until(lambda: ear.of(events.BackendFailed), "the silence is told")
    (withdrawn,) = [*ear.of(events.Withdrawn, "other"), *ear.of(events.TimedOut, "other")]
    assert withdrawn.waited >= 0.9


def assert_the_same(ear: Ear, told: Counter[tuple[str, str]]) -> None:
    """Prometheus has the figures of the stream."""
    for metric, kind in {
        "acquisitions": events.Acquired,
        "releases": events.Released,
        "losses": events.Lost,
        "withdrawn": events.Withdrawn,
    }.items():
        names = Counter(event.name.partition(":")[0] for event in ear.of(kind))
        for name in ("pair", "broken", "frozen", "other"):
            assert told[f"fencelock_{metric}_total", name] == names[name], (metric, name)
    assert told["fencelock_refused_tries_total", "broken"] == 1
    assert told["fencelock_timeouts_total", "broken"] == 1
    assert told["fencelock_breaks_total", "broken"] == 1
    assert told["fencelock_wait_seconds_count", "pair"] == PAIRS
    assert told["fencelock_held", "pair"] == told["fencelock_held", "frozen"] == 0


def totals(ear: Ear) -> tuple[int, int]:
    """How many leases there were in renewals, and how many steps have failed."""
    renewals = sum(event.leases + event.lost + event.unknown for event in ear.of(events.Renewed))
    return renewals, len(ear.of(events.BackendFailed))


def totals_of(told: Counter[tuple[str, str]]) -> tuple[int, int]:
    return told["fencelock_renewals_total", ""], told["fencelock_backend_errors_total", ""]
