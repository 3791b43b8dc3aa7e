"""OpenTelemetry: spans and metrics, as the SDK's in-memory exporter and reader see them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from fencelock import AcquireTimeout, AsyncClient, Client
from fencelock.contrib.metrics import METRICS
from fencelock.contrib.opentelemetry import install
from fencelock.core import events as core
from fencelock.testing import view
from unit.support import in_fork, until, until_async


class Watched:
    """Providers whose output stays here."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.tracer = self.tracers.get_tracer("test")

    def spans(self, name: str) -> list[ReadableSpan]:
        """The spans of that name that have ended."""
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def points(self) -> dict[str, list[Any]]:
        """The data points of each metric."""
        data = self.reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)
            for resource in (data.resource_metrics if data is not None else [])
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    with install(watched.tracers, watched.meters):
        yield watched
    assert not any(core.subscribers.values())
    watched.tracers.shutdown()
    watched.meters.shutdown()


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def check_a_pair(watched: Watched, lease: Any, parent: Any) -> None:
    """A wait and a hold, both children of the span that was current."""
    (wait,), (hold,) = watched.spans("fencelock wait"), watched.spans("fencelock hold")
    expected = {
        "fencelock.lock": "invoice:42",
        "fencelock.token": lease.token,
        "fencelock.mode": "exclusive",
        "fencelock.backend": "memory",
        "fencelock.owner": lease.owner,
    }
    assert about(wait) == about(hold) == expected
    for span in (wait, hold):
        assert span.parent is not None and span.parent.span_id == parent.get_span_context().span_id
        assert span.status.status_code is StatusCode.UNSET
        assert span.start_time is not None and span.end_time is not None and span.start_time <= span.end_time
    assert wait.end_time <= hold.start_time  # type: ignore[operator]


def test_a_pair_is_two_spans_in_blocking_code(watched: Watched) -> None:
    with (
        Client("memory://") as locks,
        watched.tracer.start_as_current_span("mine") as mine,
        locks.lock("invoice:42") as lease,
    ):
        assert watched.spans("fencelock hold") == []
    check_a_pair(watched, lease, mine)


def test_a_pair_is_two_spans_under_asyncio(watched: Watched) -> None:
    async def main() -> None:
        async def pair(locks: AsyncClient, name: str) -> None:
            with watched.tracer.start_as_current_span(name) as mine:
                async with locks.lock("invoice:42") as lease:
                    await asyncio.sleep(0)
            kept[name] = (lease, mine)

        async with AsyncClient("memory://") as locks:
            await pair(locks, "first")
            check_a_pair(watched, *kept["first"])
            watched.exporter.clear()
            await asyncio.gather(*(pair(locks, f"task {number}") for number in range(5)))

    kept: dict[str, Any] = {}
    asyncio.run(main())
    parents = {kept[name][0].owner: kept[name][1].get_span_context().span_id for name in kept}
    seen = {about(span)["fencelock.owner"]: span.parent for span in watched.spans("fencelock hold")}
    assert len(seen) == 5
    assert all(parent is not None and parents[owner] == parent.span_id for owner, parent in seen.items())


def test_a_timeout_is_an_error_and_a_try_is_none(watched: Watched) -> None:
    with Client("memory://") as locks, locks.lock("x"):
        assert locks.lock("x").try_acquire() is None
        with pytest.raises(AcquireTimeout):
            locks.lock("x").acquire(timeout=0.05)
    granted, tried, timed_out = watched.spans("fencelock wait")
    assert granted.status.status_code is tried.status.status_code is StatusCode.UNSET
    assert timed_out.status.status_code is StatusCode.ERROR
    assert timed_out.status.description == "not acquired within 0.05s"
    assert "fencelock.token" not in about(timed_out)
    lasted = timed_out.end_time - timed_out.start_time  # type: ignore[operator]
    assert lasted >= 0.05e9


def test_a_loss_is_an_error_of_the_hold(watched: Watched) -> None:
    with Client("memory://") as locks:
        lease = locks.lock("x").acquire()
        locks.force_release("x")
        assert until(lambda: not lease.verify(), 30)
    (hold,) = watched.spans("fencelock hold")
    assert hold.status.status_code is StatusCode.ERROR
    assert hold.status.description == "it was force-released"


def test_a_loss_under_asyncio_is_an_error_of_the_hold_and_a_cancelled_wait_is_none(watched: Watched) -> None:
    async def main() -> None:
        async with AsyncClient("memory://") as locks:
            lease = await locks.lock("x").acquire()
            task = asyncio.create_task(locks.lock("x").acquire())
            assert await until_async(lambda: view.acquiring(locks), 30)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await locks.force_release("x")
            assert not await lease.verify()

    asyncio.run(main())
    assert [span.status.status_code for span in watched.spans("fencelock hold")] == [StatusCode.ERROR]
    assert [span.status.status_code for span in watched.spans("fencelock wait")] == [StatusCode.UNSET] * 2


def test_a_backend_that_fails_is_an_error_of_the_wait(watched: Watched, tmp_path: Any) -> None:
    with Client(f"sqlite://{tmp_path}/no/such/folder.db") as locks, pytest.raises(Exception, match="folder"):
        locks.lock("x").acquire(timeout=0)
    (wait,) = watched.spans("fencelock wait")
    assert wait.status.status_code is StatusCode.ERROR and wait.status.description
    assert {point.attributes["step"] for point in watched.points()["fencelock.backend_errors"]} >= {"acquire"}


def test_the_metrics_are_those_of_prometheus(watched: Watched) -> None:
    with Client("memory://") as locks:
        with locks.lock("invoice:42", ttl=0.5):
            assert until(lambda: "fencelock.renewal" in watched.points(), 30)
            assert locks.lock("invoice:42").try_acquire() is None
            with pytest.raises(AcquireTimeout):
                locks.lock("invoice:42").acquire(timeout=0.01)
            (held,) = watched.points()["fencelock.held"]
            assert held.value == 1
        lease = locks.lock("invoice:43").acquire()
        locks.force_release("invoice:43")
        assert not lease.verify()
        points = watched.points()
    labels = {"lock": "invoice:*", "mode": "exclusive", "backend": "memory"}
    for name, value in {
        "acquisitions": 2,
        "releases": 1,
        "losses": 1,
        "timeouts": 1,
        "refused_tries": 1,
    }.items():
        (point,) = points[f"fencelock.{name}"]
        assert (point.value, dict(point.attributes)) == (value, labels), name
    (wait,), (hold,) = points["fencelock.wait"], points["fencelock.hold"]
    assert (wait.count, hold.count, dict(hold.attributes)) == (2, 2, labels)
    assert tuple(wait.explicit_bounds) == next(one.bounds for one in METRICS if one.name == "wait_seconds")
    assert {one.name for one in METRICS} >= {"held", "waiting"}
    assert set(points) <= {metric.opentelemetry for metric in METRICS}
    assert {p.attributes["outcome"] for p in points["fencelock.renewals"]} == {"renewed", "lost", "unknown"}


def test_what_was_closed_says_nothing_more(watched: Watched) -> None:
    other = Watched()
    with Client("memory://") as locks:
        lease = locks.lock("before").acquire()
        with install(other.tracers, other.meters):
            lease.release()  # acquired before there was anybody to trace it
        with locks.lock("after"):
            assert "fencelock.held" not in other.points()
    assert other.exporter.get_finished_spans() == ()
    assert len(watched.spans("fencelock hold")) == 2


def test_a_forked_child_leaves_the_spans_of_its_parent_alone(watched: Watched) -> None:
    def child() -> int:
        with Client("memory://") as own, own.lock("own"):
            pass
        return len(watched.spans("fencelock hold"))

    with Client("memory://") as locks:
        with locks.lock("x"):
            assert in_fork(child) == 1
        assert len(watched.spans("fencelock hold")) == 1


def test_without_an_sdk_nothing_happens_and_nothing_breaks() -> None:
    with install(), Client("memory://") as locks, locks.lock("x") as lease:
        assert lease.is_held()
