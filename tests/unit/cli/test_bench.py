"""`fencelock bench`: what the figures are, how they are shown, and what happens when something is wrong.

No test looks at how fast anything is.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fencelock
from fencelock.backends.base import Outcome
from fencelock.backends.memory import MemoryBackend
from fencelock.cli import bench, main
from fencelock.cli.measuring import processes, report, sweeps
from fencelock.cli.measuring.course import MOST, Course, Stop
from fencelock.cli.measuring.race import Heat, contend, judged
from fencelock.cli.measuring.row import NotMeasured, Row, latency
from fencelock.errors import BackendUnavailable, Unsupported
from fencelock.lease import LeaseBase

KEYS = [
    *("round_trip", "pair_blocking", "pair_asyncio", "pairs_tasks"),
    *("handoff_threads", "handoff_processes", "renewal_sweep"),
]
SHORT = ["--seconds", "50ms", "--tasks", "3", "--contenders", "2", "--leases", "5"]
ALWAYS = Heat(0.0, math.inf)
QUIET = report.Machine(4, 0.5, "3.11")


def a_course(**changed: Any) -> Course:
    course = Course("memory://", None, 0.05, 3, 2, 5, Stop())
    return replace(course, **changed)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    with fencelock.Client("memory://") as locks:
        assert locks.list("fencelock-bench-") == []


def measured(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main(["bench", "--json", *args]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


# Figures ------------------------------------------------------------------------------------


def test_latency() -> None:
    figures = latency([0.005, 0.001, 0.002, 0.004, 0.003])
    assert figures == {"min": 0.001, "median": 0.003, "p95": 0.005, "p99": 0.005, "spread": 0.002}
    assert latency([0.5]) == {"min": 0.5, "median": 0.5, "p95": 0.5, "p99": 0.5, "spread": 0.0}


def test_a_handoff_goes_to_somebody_else() -> None:
    """Ordered by token; who takes the lock back at once has handed it to nobody."""
    row = judged("k", "t", [[(1, 1.0), (2, 1.5), (5, 4.0)], [(3, 2.0), (4, 3.0)]], ALWAYS)
    assert row.times == [0.5, 1.0]
    assert row.rate == pytest.approx(2 / 3)
    assert row.share == pytest.approx(2 / 3)


def test_what_counts_in_a_race() -> None:
    taken = [[(1, 1.0), (3, 3.0), (5, 5.0)], [(2, 2.0), (4, 4.0)]]
    row = judged("k", "t", taken, Heat(2.0, 5.0))
    assert row.times == [1.0, 1.0] and row.share == 0.5
    starved = judged("k", "t", [*taken, []], ALWAYS)
    assert starved.share == 0.0
    for nothing in ([[], []], [[(1, 1.0), (2, 2.0)], []]):
        with pytest.raises(NotMeasured, match=r"no handoff within 2\.0s"):
            judged("k", "t", nothing, Heat(0.0, 2.0))


def test_a_contender_ends_in_time() -> None:
    with fencelock.Client("memory://") as locks:
        lock = locks.lock("fencelock-bench-x")
        assert contend(lock, time.monotonic() - 1, lambda: False) == []
        assert contend(lock, math.inf, lambda: True) == []
        turns = iter([False, False, False, True])
        taken = contend(lock, time.monotonic() + 60, lambda: next(turns))
        assert len(taken) == 3 and taken == sorted(taken)
        with lock:  # never served: it ends without an error
            assert contend(lock, time.monotonic() + 0.05 - 1.9, lambda: False) == []
            assert not locks.inspect("fencelock-bench-x").waiters


def test_a_step_is_done_once_at_least_and_not_for_ever() -> None:
    done: list[int] = []
    assert len(a_course(seconds=0.0).repeat(lambda: done.append(1))) == len(done) == 1
    stopped = a_course()
    stopped.stop.signum = signal.SIGINT
    assert stopped.repeat(lambda: done.append(1)) == []
    assert MOST * 8 < 2**27, "their times fit into memory"


# How it is shown ----------------------------------------------------------------------------


def test_axis_and_distribution() -> None:
    rows = [Row("a", "a", [0.001] * 90 + [0.01] * 10), Row("b", "b", [0.0005]), Row("c", "c", note="none")]
    axis = report.axis_of(rows, 30)
    first, second = (report.distribution(row.times, axis) for row in rows[:2])
    assert len(first) == len(second) == 30
    assert first.count("█") == 1 and first.index("█") < len(first.rstrip()) - 1
    assert second[0] == "█" and second.strip() == "█"
    assert first.rstrip()[-1] == "▁"
    labels = axis.labels()
    assert labels.index("1 ms") == first.index("█") and len(labels) <= 30
    slow = report.distribution([5.0], axis)
    assert slow.index("█") == 29, "what is beyond the end belongs to the last column"


@pytest.mark.parametrize("times", [[1e-7], [3.0, 400.0], [0.002, 0.002], [0.0]])
def test_any_times_have_an_axis(times: Sequence[float]) -> None:
    axis = report.axis_of([Row("a", "a", times)], 12)
    assert "█" in report.distribution(times, axis) and len(axis.labels()) <= 12
    assert report.axis_of([Row("a", "a")], 12).columns == 12


def test_multiples_of_a_round_trip() -> None:
    rows = [Row("round_trip", "trip", [0.001]), Row("pair", "pair", [0.003]), Row("x", "x", note="why")]
    found = report.as_data(a_course(), QUIET, "memory", rows)["measurements"]
    assert [found[key]["round_trips"] for key in found] == [1.0, pytest.approx(3.0), None]
    assert found["x"]["latency_seconds"] is None and found["x"]["note"] == "why"
    without = report.as_data(a_course(), QUIET, "memory", [Row("round_trip", "trip"), rows[1]])
    assert without["measurements"]["pair"]["round_trips"] is None


def test_plain_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        Row("round_trip", "round trip", [0.0005]),
        Row("pair", "pair", [0.0123, 0.0124], 81.2),
        Row("h", "handoff", [0.2, 0.3], 12345.6, 0.5),
        Row("x", "other", note="not measured: \x1b"),
    ]
    report.show(a_course(url="redis://u:s3cret@h/0"), QUIET, rows)
    out = capsys.readouterr().out
    assert "redis://u:***@h/0" in out and "\x1b" not in out
    header, *lines = [" ".join(line.split()) for line in out.splitlines()[3:8]]
    assert header == "STEP COUNT MEDIAN P95 P99 SPREAD TRIPS A SECOND SHARE NOTE"
    assert lines[0] == "round trip 1 0.500 ms 0.500 ms 0.500 ms 0.000 ms 1.0 - -"
    assert lines[1] == "pair 2 12.3 ms 12.4 ms 12.4 ms 0.100 ms 24.6 81 -"
    assert lines[2] == "handoff 2 200 ms 300 ms 300 ms 100 ms 400 12,346 0.50"
    assert lines[3] == r"other - - - - - - - - not measured: \x1b"
    assert out.endswith("Python 3.11 on 4 processors, load 0.5 before it began.\n")


def test_a_busy_machine_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    report.show(a_course(), report.Machine(2, 9.0, "3.11"), [Row("a", "a", [1.0])])
    assert "The machine was busy: rates are too low." in capsys.readouterr().out
    report.show(a_course(), report.Machine(2, None, "3.11"), [Row("a", "a", [1.0])])
    assert "load" not in capsys.readouterr().out


# Runs ---------------------------------------------------------------------------------------


def test_memory(capsys: pytest.CaptureFixture[str]) -> None:
    data = measured(capsys, "memory://", *SHORT)
    assert (data["url"], data["backend"], data["seconds"]) == ("memory://", "memory", 0.05)
    assert (data["tasks"], data["contenders"], data["leases"]) == (3, 2, 5)
    assert set(data["machine"]) == {"processors", "load", "python"}
    found = data["measurements"]
    assert list(found) == KEYS
    for key, one in found.items():
        assert set(one) == {
            *("title", "count", "latency_seconds", "round_trips", "per_second", "smallest_share", "note")
        }
        if one["count"]:
            figures = one["latency_seconds"]
            assert 0 < figures["min"] <= figures["median"] <= figures["p95"] <= figures["p99"]
            assert figures["spread"] >= 0 and one["round_trips"] > 0
            assert (one["per_second"] is None) == (key == "round_trip")
            assert (one["smallest_share"] is not None) == key.startswith("handoff")
        else:
            assert one["note"].startswith("not measured: ")
    assert found["handoff_processes"]["note"] == "not measured: a lock of this backend ends at the process"
    always = {"round_trip", "pair_blocking", "pair_asyncio", "pairs_tasks", "renewal_sweep"}
    assert all(found[key]["count"] and not found[key]["note"] for key in always)


def test_sqlite_with_processes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/locks.db"
    for seconds in ("100ms", "2s", "15s"):  # a busy machine may need time for a single handoff
        data = measured(capsys, url, *SHORT, "--seconds", seconds)["measurements"]
        if all(data[key]["count"] for key in KEYS):
            break
    assert all(data[key]["count"] for key in KEYS), data
    assert all(0 <= data[key]["smallest_share"] <= 1 for key in ("handoff_threads", "handoff_processes"))
    with fencelock.Client(url) as locks:
        assert locks.list() == []


def test_default_url_and_namespace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "plan", lambda course: [bench.Step(_holding, "round_trip", "trip")])
    url = f"sqlite://{tmp_path}/locks.db"
    monkeypatch.setenv("FENCELOCK_URL", url)
    assert measured(capsys, "--namespace", "apart")["url"] == url
    assert seen == [("apart", [f"{prefix}:x" for prefix in prefixes])]


seen: list[tuple[str | None, list[str]]] = []
prefixes: list[str] = []


def _holding(course: Course, key: str, title: str) -> Row:
    with course.blocking() as locks, locks.lock(course.name("x")), course.blocking() as others:
        seen.append((course.namespace, [state.name for state in others.list()]))
        prefixes.append(course.prefix)
    return Row(key, title, [1.0])


def test_what_a_backend_lacks_is_said_in_its_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_pulse(self: MemoryBackend, *, deadline: float) -> Any:
        raise Unsupported(capability="inspect", backend="memory")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryBackend, "pulse", no_pulse)
        found = measured(capsys, "memory://", *SHORT)["measurements"]
        assert "does not support inspect" in found["round_trip"]["note"]
        assert found["pair_blocking"]["count"] and found["pair_blocking"]["round_trips"] is None
        patched.setattr(MemoryBackend, "capabilities", frozenset({"inspect", "list"}))
        found = measured(capsys, "memory://", *SHORT)["measurements"]
        assert all("does not support" in found[key]["note"] for key in KEYS if key != "handoff_processes")


def test_leases_that_take_a_connection_are_few(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    true = MemoryBackend.guarantees.fget  # type: ignore[attr-defined]
    bound = property(lambda self: replace(true(self), crash_release="connection"))
    with monkeypatch.context() as patched:
        patched.setattr(MemoryBackend, "guarantees", bound)
        patched.setattr(bench, "plan", lambda course: [bench.Step(sweeps.sweeps, "s", "s")])
        found = measured(capsys, "memory://", "--seconds", "200ms", "--leases", "50")
    found = found["measurements"]["s"]
    held = re.fullmatch(r"(\d+) of 50 leases: each takes a connection here", found["note"])
    assert held and int(held[1]) <= 20 and found["count"]


def test_a_slow_backend_has_fewer_leases(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = MemoryBackend.acquire

    async def slow(self: MemoryBackend, *args: Any, **options: Any) -> Any:
        await self.runtime.sleep(0.1)
        return await quick(self, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(MemoryBackend, "acquire", slow)
        patched.setattr(bench, "plan", lambda course: [bench.Step(sweeps.sweeps, "s", "s")])
        found = measured(capsys, "memory://", "--seconds", "50ms", "--leases", "200")["measurements"]["s"]
    assert found["note"] == "16 of 200 leases: there was no time for more" and found["count"]


# Errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        *(["--seconds", text] for text in ("0", "-1", "nan", "1h", "49ms", "soon")),
        *(["--tasks", text] for text in ("0", "1001", "x")),
        *(["--contenders", text] for text in ("1", "65")),
        *(["--leases", text] for text in ("0", "10001")),
        ["--url", "memory://other"],
        ["too", "many"],
        ["--nosuch"],
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], args: list[str]) -> None:
    assert main(["bench", "memory://", *args]) == 64
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("fencelock: ") and len(err.splitlines()) == 1


def test_wrong_urls_and_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    for url in ("nosuch://u:s3cret@h", "u:s3cret@h", "sqlite://u:s3cret@h/x"):
        assert main(["bench", url]) == 64
    assert main(["bench", "redis://u:s3cret@127.0.0.1:1/0"]) == 69
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 4 and "s3cret" not in err


def test_a_backend_that_is_down(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["bench", f"sqlite://{tmp_path}/no/such/folder/locks.db"]) == 69
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("fencelock: ") and len(err.splitlines()) == 1


@pytest.mark.parametrize("key", [key for key in KEYS if key not in {"round_trip", "handoff_processes"}])
def test_a_backend_that_goes_down(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Within each measurement: one line, 69, and what was held is given back."""
    quick = MemoryBackend.acquire
    steps = [0]

    async def fails(self: MemoryBackend, *args: Any, **options: Any) -> Any:
        steps[0] += 1
        if steps[0] > 4:
            raise BackendUnavailable(backend="memory", detail="gone away", transient=False)
        return await quick(self, *args, **options)

    plan = bench.plan
    with monkeypatch.context() as patched:
        patched.setattr(MemoryBackend, "acquire", fails)
        patched.setattr(bench, "plan", lambda course: [step for step in plan(course) if step.key == key])
        assert main(["bench", "memory://", "--seconds", "30s", "--contenders", "3"]) == 69
    assert capsys.readouterr() == ("", "fencelock: memory: gone away\n")


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, None])
def test_renewals_without_an_answer_are_no_fast_sweep(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, outcome: Outcome | None
) -> None:
    async def silent(self: MemoryBackend, renewals: Sequence[Any], *, deadline: float) -> list[Outcome]:
        if outcome is None:
            raise BackendUnavailable(backend="memory", detail="gone away")
        return [outcome] * len(renewals)

    with monkeypatch.context() as patched:
        patched.setattr(MemoryBackend, "renew", silent)
        patched.setattr(bench, "plan", lambda course: [bench.Step(sweeps.sweeps, "s", "s")])
        assert main(["bench", "memory://", *SHORT]) == 69
    assert capsys.readouterr() == ("", "fencelock: memory: leases could not be renewed\n")


# Signals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [key for key in KEYS if key != "handoff_processes"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, key: str, signum: signal.Signals
) -> None:
    """It comes in the middle of a measurement that would take minutes; nothing after that is measured."""
    plan = bench.plan
    later: list[str] = []
    sender = threading.Timer(0.2, os.kill, (os.getpid(), signum))

    def steps(course: Course) -> list[bench.Step]:
        (chosen,) = (step for step in plan(course) if step.key == key)

        def measure(course: Course, key: str, title: str) -> Row:
            sender.start()
            return chosen.measure(course, key, title)

        def never(course: Course, key: str, title: str) -> Row:
            later.append(key)
            return Row(key, title)

        return [bench.Step(measure, key, ""), bench.Step(never, "never", "")]

    monkeypatch.setattr(bench, "plan", steps)
    stray: list[int] = []
    before = signal.signal(signum, lambda number, _: stray.append(number))
    try:
        assert main(["bench", "memory://", *SHORT, "--seconds", "5m"]) == 128 + signum
        assert signal.getsignal(signum) not in {before, signal.SIG_DFL}, "ours is back"
    finally:
        sender.cancel()
        signal.signal(signum, before)
    assert capsys.readouterr() == ("", "")
    assert later == stray == []


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = Stop()
        with stop.listening():
            signal.raise_signal(signal.SIGHUP)
            assert not stop
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
        assert stop and stop.signum == signal.SIGTERM, "the first one counts"
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


# Contenders ---------------------------------------------------------------------------------


def contender(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(processes, "COMMAND", (sys.executable, "-c", code))


def raced(tmp_path: Path) -> Row:
    return processes.processes(a_course(url=f"sqlite://{tmp_path}/locks.db"), "race", "race")


def test_contenders_that_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    contender(monkeypatch, "raise SystemExit(3)")
    with pytest.raises(NotMeasured, match="a contender ended with status 3"):
        raced(tmp_path)


def test_contenders_that_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    contender(monkeypatch, """print('{"error": "odd", "backend": null}', flush=True)""")
    with pytest.raises(NotMeasured, match="a contender failed: odd"):
        raced(tmp_path)
    contender(monkeypatch, """print('{"error": "gone", "backend": "sqlite"}', flush=True)""")
    with pytest.raises(BackendUnavailable, match="sqlite: gone"):
        raced(tmp_path)


def test_contenders_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processes, "COMMAND", (str(tmp_path / "nosuch"),))
    with pytest.raises(NotMeasured, match="processes cannot be started: No such file"):
        raced(tmp_path)


DEAF = """
import json, sys, time
import fencelock
told = json.loads(sys.stdin.readline())
locks = fencelock.Client(told["url"])
lease = locks.lock(told["name"], ttl=300, timeout=0).try_acquire()
own = locks.lock(told["own"], ttl=300).acquire()
print(json.dumps({"ready": True}), flush=True)
time.sleep(300)
"""


def test_contenders_that_do_not_end_are_killed_and_leave_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    contender(monkeypatch, DEAF)
    monkeypatch.setattr(processes, "ENDING", 0.1)
    monkeypatch.setattr(processes, "GRACE", -9.0)
    with pytest.raises(NotMeasured, match="contenders did not end within"):
        raced(tmp_path)
    with fencelock.Client(f"sqlite://{tmp_path}/locks.db") as locks:
        assert not [state for state in locks.list() if state.holders]


def test_a_contender_alone(tmp_path: Path) -> None:
    """What it says when nobody tells it to go, and when there is no backend."""
    told = {"url": f"sqlite://{tmp_path}/locks.db", "namespace": None, "name": "n", "own": "o", "ttl": 30}

    def answers(**changed: Any) -> list[dict[str, Any]]:
        lines = json.dumps({**told, **changed}) + "\n"
        done = subprocess.run(processes.COMMAND, input=lines, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert answers() == [{"ready": True}, {"taken": []}]
    (failed,) = answers(url=f"sqlite://{tmp_path}/no/such/locks.db")
    assert failed["backend"] == "sqlite" and "no/such" in failed["error"]
    (wrong,) = answers(ttl=-1)
    assert wrong["backend"] is None and wrong["error"].startswith("ConfigurationError: ")


# Imports ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["fencelock", "fencelock.cli.run", "fencelock.cli"])
def test_it_is_imported_when_it_is_asked_for(what: str) -> None:
    code = f"import sys, {what}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not re.search(r"fencelock\.cli\.(bench|measuring)", loaded)


def test_a_lease_that_nobody_kept_would_be_seen() -> None:
    """The check that nothing is left has teeth."""
    with fencelock.Client("memory://") as locks:
        lease = locks.lock("fencelock-bench-left").acquire()
        assert isinstance(lease, LeaseBase) and locks.list("fencelock-bench-")
