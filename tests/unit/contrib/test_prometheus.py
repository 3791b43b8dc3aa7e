"""Prometheus: what is exported, as the official parser reads it."""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from fencelock import AcquireTimeout, AsyncClient, Client, ConfigurationError
from fencelock.contrib import prometheus
from fencelock.contrib.metrics import METRICS
from fencelock.contrib.prometheus import Tally, install
from fencelock.core import events as core
from unit.support import in_fork, in_process, until


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    registry = CollectorRegistry()
    with install(registry):
        yield registry
    assert not any(core.subscribers.values())


class Scrape:
    """What a scrape gave, by the official parser."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}

    def value(self, sample: str, **labels: str) -> float:
        """The one sample of that name with at least these labels."""
        found = [
            one.value
            for family in self.families.values()
            for one in family.samples
            if one.name == sample and labels.items() <= one.labels.items()
        ]
        assert len(found) == 1, (sample, labels, found)
        return found[0]


def scrape(registry: CollectorRegistry) -> Scrape:
    return Scrape(generate_latest(registry).decode())


LOCK = {"lock": "invoice:*", "mode": "exclusive", "backend": "memory"}


def test_the_text_parses_and_has_every_metric_with_its_labels(registry: CollectorRegistry) -> None:
    with Client("memory://") as locks, locks.lock("invoice:42"):
        assert locks.lock("invoice:42").try_acquire() is None
        with pytest.raises(AcquireTimeout):
            locks.lock("invoice:42").acquire(timeout=0.01)
        text = generate_latest(registry).decode()
    found = Scrape(text)
    assert set(found.families) == {f"fencelock_{metric.name}" for metric in METRICS}
    for metric in METRICS:
        family = found.families[f"fencelock_{metric.name}"]
        assert (family.type, family.documentation) == (metric.kind, metric.about)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)
    assert found.value("fencelock_acquisitions_total", **LOCK) == 1
    assert found.value("fencelock_held", **LOCK) == 1
    assert found.value("fencelock_waiting", **LOCK) == 0
    assert found.value("fencelock_timeouts_total", **LOCK) == 1
    assert found.value("fencelock_refused_tries_total", **LOCK) == 1
    assert found.value("fencelock_wait_seconds_count", **LOCK) == 1
    assert found.value("fencelock_releases_total", **LOCK) == 0
    after = scrape(registry)
    assert after.value("fencelock_held", **LOCK) == 0
    assert after.value("fencelock_releases_total", **LOCK) == 1
    assert after.value("fencelock_hold_seconds_count", **LOCK) == 1
    assert 0 < after.value("fencelock_hold_seconds_sum", **LOCK) < 60


def test_losses_breaks_renewals_and_waiters_are_counted(registry: CollectorRegistry) -> None:
    with Client("memory://") as locks:
        lease = locks.lock("invoice:7", ttl=0.6).acquire()
        renewed = {"backend": "memory", "outcome": "renewed"}
        assert until(lambda: registry.get_sample_value("fencelock_renewals_total", renewed), 30)
        waiter = threading.Thread(target=lambda: locks.lock("invoice:7").acquire(timeout=60).release())
        waiter.start()
        assert until(lambda: scrape(registry).value("fencelock_waiting", **LOCK) == 1, 30)
        locks.force_release("invoice:7")
        assert not lease.verify()
        waiter.join(30)
    found = scrape(registry)
    assert found.value("fencelock_losses_total", **LOCK) == 1
    assert found.value("fencelock_releases_total", **LOCK) == 1
    assert found.value("fencelock_hold_seconds_count", **LOCK) == 2
    assert found.value("fencelock_breaks_total", lock="invoice:*", backend="memory") == 1
    assert found.value("fencelock_renewals_total", backend="memory", outcome="renewed") >= 1
    assert found.value("fencelock_renewals_total", backend="memory", outcome="lost") == 0
    assert found.value("fencelock_renewal_seconds_count", backend="memory") >= 1


def test_asyncio_is_counted_the_same_and_a_cancelled_call_is_withdrawn(registry: CollectorRegistry) -> None:
    async def main() -> None:
        async with AsyncClient("memory://") as locks, locks.lock("invoice:1"):
            task = asyncio.create_task(locks.lock("invoice:1").acquire())
            async with asyncio.timeout(30):
                while scrape(registry).value("fencelock_waiting", **LOCK) != 1:
                    await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    found = scrape(registry)
    assert found.value("fencelock_acquisitions_total", **LOCK) == 1
    assert found.value("fencelock_releases_total", **LOCK) == 1
    assert found.value("fencelock_withdrawn_total", **LOCK) == 1


def test_a_backend_that_fails_is_counted_by_step(registry: CollectorRegistry, tmp_path: Any) -> None:
    with Client(f"sqlite://{tmp_path}/no/such/folder.db") as locks, pytest.raises(Exception, match="folder"):
        locks.lock("x").acquire(timeout=0)
    errors = scrape(registry).families["fencelock_backend_errors"].samples
    steps = {(one.labels["step"], one.labels["backend"]): one.value for one in errors}
    assert steps["acquire", "sqlite"] == 1


def test_many_names_make_few_series(registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "REMEMBERED", 50)
    with Client("memory://") as locks:
        for number in range(200):
            with locks.lock(f"job:{number}"):
                pass
        for number in range(150):
            word = "".join(chr(97 + int(digit)) for digit in f"{number:03}")
            with locks.lock(f"user:{word}"):
                pass
    samples = scrape(registry).families["fencelock_acquisitions"].samples
    by = {one.labels["lock"]: one.value for one in samples}
    assert len(by) == 101 and by["job:*"] == 200 and by["other"] == 51
    assert sum(by.values()) == 350


def test_one_name_in_two_modes_is_two_series(registry: CollectorRegistry) -> None:
    with Client("memory://") as locks:
        rw = locks.rwlock("rw")
        for _ in range(3):
            with rw.read():
                pass
            with rw.write():
                pass
    found = scrape(registry)
    for mode in ("shared", "exclusive"):
        assert found.value("fencelock_acquisitions_total", lock="rw", mode=mode) == 3
        assert found.value("fencelock_hold_seconds_count", lock="rw", mode=mode) == 3


def test_nothing_is_lost_between_threads_and_scrapes(registry: CollectorRegistry) -> None:
    each, many = 600, 4
    done = threading.Event()

    def work(locks: Client, number: int) -> None:
        lock = locks.lock(f"n{number}")
        for _ in range(each):
            with lock:
                pass

    def look() -> None:
        while not done.is_set():
            scrape(registry)

    with Client("memory://") as locks:
        threads = [threading.Thread(target=work, args=(locks, number)) for number in range(many)]
        looker = threading.Thread(target=look)
        for thread in [looker, *threads]:
            thread.start()
        for thread in threads:
            thread.join(60)
        done.set()
        looker.join(60)
    found = scrape(registry)
    assert found.value("fencelock_acquisitions_total", lock="n*") == each * many
    assert found.value("fencelock_hold_seconds_count", lock="n*") == each * many


def test_buckets_hold_what_is_at_most_their_bound() -> None:
    tally = Tally((1.0, 2.0, 4.0))
    tally.fold()
    for values in ([0.5], [1.0, 1.5, 2.0, 3.0, 9.0], [5.0, 6.0], [2.5, 3.5]):
        tally.fresh.extend(values)
        tally.fold()
    assert tally.buckets() == [("1.0", 2), ("2.0", 4), ("4.0", 7), ("+Inf", 10)]
    assert tally.sum == sum([0.5, 1.0, 1.5, 2.0, 3.0, 9.0, 5.0, 6.0, 2.5, 3.5]) and tally.fresh == []


def test_templates_and_functions_name_the_locks() -> None:
    for pattern, label in ((["invoice:{id}"], "invoice:{id}"), (lambda name: name[:3], "inv")):
        registry = CollectorRegistry()
        with Client("memory://") as locks, install(registry, pattern=pattern), locks.lock("invoice:1"):
            pass
        # Closed: the registry has none of ours any more, and may have them again.
        assert scrape(registry).families == {}
        with Client("memory://") as locks, install(registry, pattern=pattern), locks.lock("invoice:1"):
            assert scrape(registry).value("fencelock_held", lock=label) == 1


def test_a_registry_has_it_once(registry: CollectorRegistry) -> None:
    with pytest.raises(ConfigurationError, match="has the metrics of fencelock already"):
        install(registry)


def test_locks_that_were_held_before_are_counted_as_held_and_when_released() -> None:
    registry = CollectorRegistry()
    with Client("memory://") as locks:
        lease = locks.lock("invoice:1").acquire()
        with install(registry):
            assert scrape(registry).value("fencelock_held", **LOCK) == 1
            lease.release()
            found = scrape(registry)
    assert found.value("fencelock_held", **LOCK) == 0
    assert found.value("fencelock_releases_total", **LOCK) == 1
    assert found.value("fencelock_acquisitions_total", **LOCK) == 0


def test_a_forked_child_holds_nothing_and_can_count(registry: CollectorRegistry) -> None:
    def child() -> list[float]:
        held = scrape(registry).value("fencelock_held", **LOCK)
        with Client("memory://") as own, own.lock("invoice:9"):
            return [held, scrape(registry).value("fencelock_held", **LOCK)]

    with Client("memory://") as locks, locks.lock("invoice:1"):
        assert in_fork(child) == [0, 1]


def test_it_is_served_by_the_official_server(registry: CollectorRegistry) -> None:
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        with (
            Client("memory://") as locks,
            locks.lock("invoice:1"),
            urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=30) as answer,
        ):
            found = Scrape(answer.read().decode())
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)
    assert found.value("fencelock_held", **LOCK) == 1


@pytest.mark.parametrize("module", ["prometheus", "opentelemetry"])
def test_a_package_that_is_missing_is_one_line_with_the_command(module: str) -> None:
    package = {"prometheus": "prometheus_client"}.get(module, module)
    said = in_process(
        f"""
        import sys
        sys.modules[{package!r}] = None
        import fencelock
        try:
            import fencelock.contrib.{module}
        except fencelock.ConfigurationError as error:
            print(error)
        """
    )
    assert said.strip().endswith(f"pip install 'fencelock[{module}]'") and said.count("\n") == 1
