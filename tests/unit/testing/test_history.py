"""Recording, files, order and folding of histories."""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelock import testing
from fencelock.testing import Event, History, HistoryError, HistoryFile, Instant, boottime


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class FakeLease:
    token = 7
    owner = "abc"

    def __init__(self, clock: Clock, deadline: float, *, held: bool = True) -> None:
        self.clock, self.deadline, self.held = clock, deadline, held

    def remaining(self) -> float:
        return max(0.0, self.deadline - self.clock.now)

    def is_held(self) -> bool:
        return self.held


def full_history(clock: Callable[[], float] | None = None) -> History:
    """One of each kind of event."""
    history = History(clock=clock or Clock())
    a = history.acquire("p1", "x")
    a.queued(3)
    a.requeued(4)
    a.granted(token=4, deadline=100.0, owner="o")
    a.renewed(110.0)
    a.held(110.0)
    a.extend(30)
    a.extended(120.0)
    history.write("p1", "ledger", token=4, base=0, value=1, seq=1)
    history.plain("p1", "file", base=0, value=1)
    a.lost("expired")
    a.release()
    a.released()
    history.acquire("p2", "x", mode="shared").timeout()
    history.acquire("p2", "x", mode="permit", limit=3).cancelled()
    history.acquire("p2", "ü\n x").failed("connection reset")
    history.paused("p2")
    history.resumed("p2")
    history.breaking("op", "x", owner="o")
    history.broke("op", "x", owner="o")
    history.crashed("p1")
    return history


def test_exports_are_there_and_sorted_out() -> None:
    assert all(hasattr(testing, name) for name in testing.__all__)
    assert len(set(testing.__all__)) == len(testing.__all__)


def test_the_full_history_has_every_kind() -> None:
    assert {event.kind for event in full_history()} == testing.events.KINDS


def test_folding_gives_one_operation_per_request() -> None:
    first, second, third, fourth = full_history().operations()
    assert first.request == "p1/1"
    assert first.outcome == "granted"
    assert (first.token, first.owner, first.deadline) == (4, "o", 100.0)
    assert first.invoked == Instant(1.0, 0)
    assert first.place == Instant(3.0, 2)
    assert first.returned == Instant(4.0, 3)
    assert [move.kind for move in first.moves] == ["renewed", "held", "extend", "extended"]
    assert first.losses == [Instant(11.0, 10)]
    assert first.release == Instant(12.0, 11)
    assert first.released == Instant(13.0, 12)
    assert first.crashed is not None
    assert (second.mode, second.outcome) == ("shared", "timeout")
    assert (third.mode, third.limit, third.outcome) == ("permit", 3, "cancelled")
    assert (fourth.name, fourth.outcome, fourth.crashed) == ("ü\n x", "failed", None)


def test_operations_follow_what_is_appended() -> None:
    history = History(clock=Clock())
    attempt = history.acquire("p", "x")
    assert history.operations()[0].outcome == "pending"
    attempt.timeout()
    assert history.operations()[0].outcome == "timeout"


def test_a_repeated_acknowledgement_keeps_the_place() -> None:
    history = History(clock=Clock())
    attempt = history.acquire("p", "x")
    for _ in range(3):
        attempt.queued(5)
    assert history.operations()[0].place == Instant(2.0, 1)
    attempt.queued(6)
    assert history.operations()[0].place == Instant(5.0, 4)


def test_only_requests_before_a_crash_crash() -> None:
    history = History(clock=Clock())
    history.acquire("p", "x")
    history.crashed("p")
    history.acquire("p", "x")
    assert [op.crashed is not None for op in history.operations()] == [True, False]


def test_leased_and_observe_never_claim_too_much() -> None:
    clock = Clock()
    history = History(clock=clock)
    attempt = history.acquire("p", "x")
    lease = FakeLease(clock, deadline=10.0)
    attempt.leased(lease)
    assert attempt.observe(lease)
    lease.held = False
    assert not attempt.observe(lease)
    granted, held = history.events[1:]
    assert (granted.kind, granted.token, granted.owner, granted.deadline) == ("granted", 7, "abc", 10.0)
    assert (held.kind, held.deadline) == ("held", 10.0)


def test_dump_and_load_give_the_same_history(tmp_path: Path) -> None:
    history = full_history()
    history.dump(tmp_path / "h")
    loaded = History.load(tmp_path / "h")
    assert loaded == history
    assert loaded.ordered
    assert loaded.operations() == history.operations()


def test_histories_are_equal_if_their_events_are() -> None:
    assert full_history() == full_history()
    shorter = History(full_history().events[:-1])
    assert shorter != full_history()
    assert History(full_history(), ordered=False) != full_history()
    assert full_history() != 3


events = st.builds(
    Event,
    kind=st.sampled_from(sorted(testing.events.KINDS)),
    at=st.floats(allow_nan=False, allow_infinity=False),
    client=st.text(max_size=5),
    request=st.text(max_size=5),
    name=st.text(max_size=5),
    mode=st.none() | st.sampled_from(["exclusive", "shared", "permit"]),
    limit=st.none() | st.integers(),
    token=st.none() | st.integers(),
    deadline=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    ttl=st.none() | st.floats(allow_nan=False),
    base=st.none() | st.integers() | st.text(min_size=1, max_size=3),
    accepted=st.none() | st.booleans(),
    detail=st.none() | st.text(min_size=1),
)


@given(events)
def test_any_event_survives_its_line(event: Event) -> None:
    line = event.to_json()
    assert "\n" not in line
    assert Event.from_json(line) == event
    assert event.render()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "3",
        '{"at":1,"client":"p"}',
        '{"kind":"sing","at":1,"client":"p"}',
        '{"kind":"lost","at":1,"client":"p","mood":2}',
        '{"kind":"acquire","at":1,"client":"p","mode":"greedy"}',
    ],
)
def test_what_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(HistoryError):
        Event.from_json(line)


def test_a_torn_last_line_is_left_out_and_a_bad_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "h"
    line = Event("crashed", 1.0, "p").to_json()
    path.write_text(f"{line}\n{line[:9]}")
    assert len(History.load(path)) == 1
    path.write_text(f"{line}\n{line[:9]}\n{line}\n")
    with pytest.raises(HistoryError, match="line 2"):
        History.load(path)


def test_a_version_it_cannot_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h"
    path.write_text(json.dumps({"fencelock-history": 99, "ordered": True}) + "\n")
    with pytest.raises(HistoryError, match="version 99"):
        History.load(path)


def _append(path: Path, client: str, count: int) -> None:
    with HistoryFile(path) as file:
        threads = [
            threading.Thread(target=_append_some, args=(file, f"{client}.{n}", count)) for n in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _append_some(file: HistoryFile, client: str, count: int) -> None:
    for number in range(count):
        attempt = file.acquire(client, "x" * 300)
        attempt.granted(token=number, deadline=boottime() + 1)


def test_a_file_is_closed_and_a_short_write_is_an_error(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / "h")
    file.crashed("p")
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.crashed("p")
    assert [event.kind for event in History.load(tmp_path / "h")] == ["crashed"]
    with pytest.raises(NotImplementedError):
        testing.Recorder().crashed("p")


def test_many_processes_append_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "h"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append, args=(path, f"p{n}", 200)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    history = History.load(path)
    assert len(history) == 3 * 2 * 200 * 2
    assert not history.ordered
    operations = history.operations()
    assert len(operations) == 1200
    assert all(op.outcome == "granted" and op.returned and op.invoked < op.returned for op in operations)


def test_many_threads_append_to_one_history() -> None:
    history = History()

    def work(client: str) -> None:
        for _ in range(500):
            history.acquire(client, "x").timeout()

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({op.request for op in history.operations()}) == 2000


def test_merging_forgets_the_order_at_equal_times(tmp_path: Path) -> None:
    one, two = History([Event("crashed", 2.0, "a")]), History([Event("crashed", 1.0, "b")])
    merged = History.merge(one, two)
    assert [event.client for event in merged] == ["b", "a"]
    assert [when for when, _ in merged.timeline()] == [(1.0, 0), (2.0, 0)]
    one.dump(tmp_path / "1")
    two.dump(tmp_path / "2")
    assert History.load(tmp_path / "1", tmp_path / "2") == merged


def test_a_deadline_strikes_before_what_is_recorded_at_its_time() -> None:
    assert Instant(5.0, 0) > Instant.deadline(5.0) > Instant(4.999, 10)


def test_boottime_is_shared_with_other_processes() -> None:
    before = boottime()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.apply(boottime)
    assert before < there < boottime()


def test_rendering_is_short_and_relative() -> None:
    text = str(full_history(clock=lambda: 1000.0))
    assert text.splitlines()[0].split() == ["0.000000", "p1", "acquire", "p1/1", "'x'", "exclusive"]
    assert "until=-900.000000" in text
    assert full_history().render(limit=3).endswith("more")
    assert str(History()) == "(empty history)"
    assert "p1/1 exclusive 'x' granted token 4" in str(full_history().operations()[0])
    assert "permit(3)" in str(full_history().operations()[2])
    assert repr(History()) == "<History of 0 events>"


def _lines(*events: Event) -> History:
    return History(events)


@pytest.mark.parametrize(
    "broken",
    [
        _lines(Event("granted", 1, "p", "r", token=1, deadline=2)),
        _lines(Event("acquire", 1, "p", "r"), Event("acquire", 2, "p", "r")),
        _lines(Event("acquire", 1, "p", "r"), Event("timeout", 2, "p", "r"), Event("failed", 3, "p", "r")),
        _lines(Event("acquire", 1, "p", "r"), Event("granted", 2, "p", "r", token=1)),
        _lines(Event("acquire", 1, "p", "r"), Event("renewed", 2, "p", "r")),
        _lines(Event("acquire", 1, "p", "r", mode="permit")),
        _lines(Event("acquire", 1, "p", "r", mode="shared", limit=2)),
        _lines(Event("acquire", 1, "p")),
        _lines(Event("acquire", 1, "p", "r"), Event("paused", 2, "p", "r")),
    ],
)
def test_a_history_that_makes_no_sense_is_refused(broken: History) -> None:
    with pytest.raises(HistoryError):
        broken.operations()


def test_an_accepted_write_needs_its_place_in_the_resource() -> None:
    with pytest.raises(ValueError, match="seq"):
        History().write("p", "r", token=1)
